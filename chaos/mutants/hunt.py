"""Breaks copies of the tree, and runs each mutant's scene in its copy; several at a time.

Each scene also runs in an unbroken copy: what it finds there as well proves nothing.
"""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import field, frozen

from chaos.mutants.everyday import EVERYDAY, SHARE_WANTED, try_everyday
from chaos.mutants.mutant import Mutant
from chaos.mutants.program import BrokenTrialError, run_program

ROOT: Final = Path(__file__).parent.parent.parent
PARTS: Final = ("chaos", "cortex", "sql")
SEEDS_MAX: Final = 3
"""How often a mutant is tried, each with the next seed: chance may let it pass once.

An unbroken scene has to be clean at once; it is repeated only if it did not run at all."""
WITHIN_S: Final = 300.0
"""A trial ends by itself long before that."""


@frozen(kw_only=True)
class TrialFindings:
    """The findings of one trial."""

    invalid: Mapping[str, Sequence[str]]
    """The findings, by invariant."""
    stuck: str | None

    @property
    def is_clean(self) -> bool:
        return not self.invalid and self.stuck is None


@frozen(kw_only=True)
class Result:
    """The result of a mutant, or of an unbroken scene."""

    scene: str
    mutant: Mutant | None
    seed: int
    """Of its last trial."""
    took_s: float
    """All its trials together."""
    findings: TrialFindings | None = None
    error: str = ""
    """Why its trial did not run."""

    @property
    def is_right(self) -> bool:
        """The mutant was caught by the invariant that it breaks, or the scene was clean."""
        if self.findings is None:
            return False
        if self.mutant is None:
            return self.findings.is_clean
        if self.scene == EVERYDAY:
            return bool(self.findings.invalid)
        return self.mutant.invariant in self.findings.invalid


@frozen(kw_only=True)
class Hunt:
    """Tries mutants."""

    folder: Path
    """For the copies."""
    seed: int
    at_once: int
    report: Path | None = None
    """Where each trial's history, logs and verdicts are kept; None to keep none."""
    on_result: Callable[[Result], None] = field(default=lambda _: None)
    is_everyday: bool = False
    """By an ordinary run and the simulation, once, instead of each mutant's scene."""

    async def run(self, mutants: Sequence[Mutant]) -> list[Result]:
        """Try all mutants, and their unbroken scenes. Raises `StaleError` before anything runs.

        When cancelled, nothing runs any more; the copies remain.
        """
        whole = self.folder / "whole"
        await asyncio.to_thread(_copy, ROOT, whole)
        trees = {each.name: self.folder / each.name for each in mutants}
        for each in mutants:
            await asyncio.to_thread(_copy, whole, trees[each.name])
            each.apply(trees[each.name])
        turns = asyncio.Semaphore(self.at_once)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._control(scene, whole, turns))
                for scene in dict.fromkeys(map(self._scene, mutants))
            ]
            tasks += [
                group.create_task(self._mutant(each, trees[each.name], turns)) for each in mutants
            ]
        return [task.result() for task in tasks]

    def _scene(self, mutant: Mutant) -> str:
        return EVERYDAY if self.is_everyday else mutant.scene

    async def _control(self, scene: str, tree: Path, turns: asyncio.Semaphore) -> Result:
        async with turns:
            result = await self._tries(scene, None, tree)
        self.on_result(result)
        return result

    async def _mutant(self, mutant: Mutant, tree: Path, turns: asyncio.Semaphore) -> Result:
        async with turns:
            result = await self._tries(self._scene(mutant), mutant, tree)
        await asyncio.to_thread(shutil.rmtree, tree)
        self.on_result(result)
        return result

    async def _tries(self, scene: str, mutant: Mutant | None, tree: Path) -> Result:
        result = await self._trial(scene, mutant, tree, self.seed)
        for seed in range(self.seed + 1, self.seed + SEEDS_MAX):
            if result.is_right or (
                result.findings is not None and (mutant is None or self.is_everyday)
            ):
                break
            result = await self._trial(scene, mutant, tree, seed, before_s=result.took_s)
        return result

    async def _trial(
        self, scene: str, mutant: Mutant | None, tree: Path, seed: int, *, before_s: float = 0.0
    ) -> Result:
        loop = asyncio.get_running_loop()
        began = loop.time()
        findings, error, target = None, "", None
        if self.report is not None:
            target = self.report / f"{scene if mutant is None else mutant.name}-{seed}"
        try:
            findings = await _try(scene, seed, tree, target)
        except BrokenTrialError as broken:
            error = str(broken)
        return Result(
            scene=scene,
            mutant=mutant,
            seed=seed,
            took_s=before_s + loop.time() - began,
            findings=findings,
            error=error,
        )


def is_good(results: Iterable[Result]) -> bool:
    """All were caught and no unbroken scene broke a rule; for everyday proofs: nearly all."""
    every = list(results)
    everyday = [each for each in every if each.scene == EVERYDAY and each.mutant is not None]
    caught = sum(each.is_right for each in everyday)
    return caught >= SHARE_WANTED * len(everyday) and all(
        each.is_right for each in every if each not in everyday
    )


def _copy(source: Path, target: Path) -> None:
    for part in PARTS:
        shutil.copytree(source / part, target / part, ignore=shutil.ignore_patterns(".mypy_cache"))


async def _try(scene: str, seed: int, tree: Path, report: Path | None) -> TrialFindings:
    """Run a scene in a tree. Raises `BrokenTrialError`; if cancelled, nothing of it remains."""
    if scene == EVERYDAY:
        return TrialFindings(invalid=await try_everyday(seed, tree), stuck=None)
    arguments = [scene, str(seed), *([] if report is None else [str(report)])]
    command = ("-m", "chaos.mutants.trial", *arguments)
    result: dict[str, Any] = json.loads(await run_program(command, tree, within_s=WITHIN_S))
    return TrialFindings(invalid=result["invalid"], stuck=result["stuck"])
