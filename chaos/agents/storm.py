"""Kills the pod of an agent at random instants until enough were killed, one agent after another.

Two pods are there at any time, so that the other one takes the job over. A person resolves effects
whose outcome is unknown, by what the servers wrote.
"""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from attrs import define, field, frozen

from chaos.agents import server
from chaos.agents.script import APPEND, PUT, prompt_of
from chaos.agents.script import __name__ as script_name
from chaos.evidence import ModelCall
from chaos.people import enrol, person
from chaos.points.bench import Bench, Trial, TrialPod
from chaos.points.programs import APP
from cortex.agent.mcp.terms import McpServer
from cortex.agent.spec import AgentSpec
from cortex.domain.clock import system_chance
from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import CortexError
from cortex.domain.job import RUN_AGENT, JobStatus, Submission
from cortex.store import effects, jobs, specs
from cortex.store.specs import SpecKind

SCRIPT: Final = f"{script_name}:script"
AGENT: Final = "storm"
IMPORTED: Final = ("mcp.client.session", "mcp.client.stdio")
TURNS: Final = 30
"""Answers of the model; the last one has no call."""
PODS: Final = 2
AHEAD_MAX: Final = 3
"""A kill comes after the job has got on by up to so many answers since a pod took it, at a random
instant of the turn that follows: so slow machines try the same as fast ones."""
PACE_S: Final = 0.3
"""How long a turn takes, until one was observed."""
DEATHS_MAX: Final = 50
"""No agent is to be blamed for the storm."""
POLL_S: Final = 0.01
QUICK_POLL_S: Final = 0.002
PERSON_POLL_S: Final = 0.1
WITHIN_S: Final = 120.0
"""For one agent to get on: far more than it needs on a busy machine."""
NAME: Final = "ann"
FILES: Final = {APPEND: "ledger", PUT: "once"}
"""Where the servers write, in the job's folder, by the model's name of the tool."""
CALLED: Final = f"{FILES[PUT]}.calls"
_SERVER: Final = Path(server.__file__)
_PYTHON: Final = str(Path(sys.base_prefix) / "bin" / "python3")
"""Which confined programs see."""

_JOB: Final = """
    SELECT j.status, p.name AS pod FROM cortex.job j LEFT JOIN cortex.pod p ON p.id = j.pod_id
    WHERE j.id = $1
"""
_TURNS: Final = "SELECT count(*) AS count FROM cortex.job_step WHERE job_id = $1 AND kind = 'model'"
ENDED: Final = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED})


class Instant(Enum):
    """When pods are killed; the value: how long servers wait before they answer, in seconds."""

    RANDOM = 0.05
    EFFECT = 1.0
    """After an effect was applied, and before its server has answered."""


@define(kw_only=True)
class _Plan:
    kills: int
    turns: int
    when: Instant
    dice: random.Random
    on_kill: Callable[[int], None]
    pace_s: float = PACE_S
    """How long a turn took lately."""


@frozen(kw_only=True)
class Kill:
    """One pod that was killed."""

    job_id: UUID
    at_s: float
    """Seconds of the run; just before it died."""
    dead_s: float
    """Just after: a machine without time for us may stop us in between."""
    turns: int
    """Answers of the model that were recorded when it was dead."""


@frozen(kw_only=True)
class Run:
    """One agent, at its end."""

    job_id: UUID
    key: str
    turns: int
    status: str
    result: Any
    written: dict[str, list[str]]
    """The lines of the servers' files, by the model's name of the tool."""
    called: list[str] = field(factory=list)
    """The texts of all calls of `put`, also of those that its server had kept."""


@define(kw_only=True)
class Storm:
    """What happened, for the judge."""

    kills: list[Kill] = field(factory=list)
    runs: list[Run] = field(factory=list)
    resolved: int = 0
    """Effects whose unknown outcome the person looked up."""
    calls: tuple[ModelCall, ...] = ()


def spec(wait_s: float) -> AgentSpec:
    """Return the agent: one server only reads, one has effects, one keeps each text once.

    `wait_s`: how long servers wait between writing and answering.
    """
    return AgentSpec(
        name=AGENT,
        model="scripted",
        system="Call the tools.",
        mcp={
            "notes": _program("notes", read_only=["*"]),
            "ledger": _program("ledger", "{workspace}/ledger", f"{wait_s}", folder="write"),
            "once": _program("once", "{workspace}/once", f"{wait_s}", folder="write", trusted=True),
        },
    )


def _program(*words: str, **terms: object) -> McpServer:
    command = [_PYTHON, "-I", "-S", str(_SERVER), *words]
    return McpServer(command=command, reads=[str(_SERVER.parent)], **terms)  # type: ignore[arg-type]


def bench_in(folder: Path, app: str = APP) -> Bench:
    """Return a bench, to be entered, for pods that run agents with MCP servers."""
    return Bench(folder, app, script=SCRIPT, has_own_models=True, imported=IMPORTED)


async def storm(
    bench: Bench,
    *,
    kills: int,
    seed: int,
    turns: int = TURNS,
    when: Instant = Instant.RANDOM,
    on_kill: Callable[[int], None] = lambda _: None,
) -> Storm:
    """Let agents run, one after another, until so many pods were killed. Raises `MissingError`."""
    dice = random.Random(f"agents {seed}")
    plan = _Plan(kills=kills, turns=turns, when=when, dice=dice, on_kill=on_kill)
    found = Storm()
    async with bench.trial(has_stops=False) as trial:
        await _apply(trial, wait_s=when.value)
        await enrol(trial.db, NAME)
        attending = asyncio.create_task(_attend(trial, found))
        try:
            pods = Pods(trial)
            while len(found.kills) < kills:
                await _agent(trial, pods, found, plan)
        finally:
            attending.cancel()
            await asyncio.wait([attending])
        found.calls = await trial.model.calls()
    return found


async def _apply(trial: Trial, *, wait_s: float) -> None:
    await specs.apply(
        trial.db,
        SpecKind.AGENT,
        new_id=system_chance().new_id(),
        name=AGENT,
        spec=spec(wait_s).to_json(),
        by=NAME,
    )


class Pods:
    """Two pods at any time."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._alive: list[TrialPod] = []
        self._count = 0
        for _ in range(PODS):
            self._start()

    def _start(self) -> None:
        self._count += 1
        self._alive.append(self._trial.start(f"pod-{self._count}", deaths_max=DEATHS_MAX, slots=2))

    def named(self, record: str | None) -> TrialPod | None:
        """Return the living pod with this name in the record."""
        fitting = (each for each in self._alive if each.ready and each.ready["pod"] == record)
        return next(fitting, None)

    def kill(self, pod: TrialPod) -> None:
        pod.process.kill()
        self._alive.remove(pod)

    def refill(self) -> None:
        """Start a pod in place of one that was killed."""
        self._start()


async def _agent(trial: Trial, pods: Pods, found: Storm, plan: _Plan) -> None:
    """Run one agent to its end, and kill its pods meanwhile."""
    key = f"{trial.key}-{len(found.runs)}"
    job_id, turns = system_chance().new_id(), plan.turns
    await trial.until_row("SELECT FROM cortex.pod", what="a pod is there")
    payload = json.dumps({"prompt": prompt_of(key, turns)})
    submission = Submission(id=job_id, type=RUN_AGENT, agent=AGENT, payload=payload)
    await jobs.submit(trial.db, [submission])
    async with asyncio.timeout(WITHIN_S * (1 + plan.kills)):
        while (pod := await _holder(trial, pods, job_id)) is not None:
            if len(found.kills) == plan.kills:
                await asyncio.sleep(POLL_S)
                continue
            await _until_instant(trial, job_id, plan)
            if await _holder(trial, pods, job_id) is not pod:
                continue
            at_s = trial.bench.history.now_s
            pods.kill(pod)
            dead_s = trial.bench.history.now_s
            turns_done = await _turns_after(trial, job_id, 0)
            found.kills.append(Kill(job_id=job_id, at_s=at_s, dead_s=dead_s, turns=turns_done))
            pods.refill()  # takes so long on a busy machine that the other pod may be ahead
            plan.on_kill(len(found.kills))
    job = await jobs.show(trial.db, job_id)
    found.runs.append(
        Run(
            job_id=job_id,
            key=key,
            turns=turns,
            status=job.status,
            result=job.result,
            written={tool: written(trial, job_id, tool) for tool in FILES},
            called=_lines(trial, job_id, CALLED),
        )
    )


async def _until_instant(trial: Trial, job_id: UUID, plan: _Plan) -> None:
    """Wait until a kill is due."""
    if plan.when is Instant.RANDOM:
        first = await _turns_after(trial, job_id, 0)
        ahead = min(first + plan.dice.randint(0, AHEAD_MAX), plan.turns)
        if ahead > first:
            begun = await _turns_after(trial, job_id, first + 1)  # a pod needs longer for its first
            began_s = trial.bench.history.now_s
            if ahead > begun:
                turns = await _turns_after(trial, job_id, ahead) - begun
                plan.pace_s = (trial.bench.history.now_s - began_s) / turns
        await asyncio.sleep(plan.dice.uniform(0, plan.pace_s))
        return
    before = written(trial, job_id, APPEND)
    async with asyncio.timeout(WITHIN_S):
        while written(trial, job_id, APPEND) == before:  # noqa: ASYNC110 -- a file
            await asyncio.sleep(QUICK_POLL_S)


async def _turns_after(trial: Trial, job_id: UUID, least: int) -> int:
    """Wait until so many answers of the model are recorded; return how many."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            (row,) = await trial.sql(_TURNS, job_id)
            count: int = row["count"]
            if count >= least:
                return count
            await asyncio.sleep(POLL_S)


async def _holder(trial: Trial, pods: Pods, job_id: UUID) -> TrialPod | None:
    """Wait until a living pod runs the job, and return it; None once the job has ended."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            (row,) = await trial.sql(_JOB, job_id)
            if row["status"] in ENDED:
                return None
            if row["status"] == JobStatus.RUNNING and (pod := pods.named(row["pod"])) is not None:
                return pod
            await asyncio.sleep(POLL_S)


def written(trial: Trial, job_id: UUID, tool: str) -> list[str]:
    """Return the lines that a server wrote for a job."""
    return _lines(trial, job_id, FILES[tool])


def _lines(trial: Trial, job_id: UUID, name: str) -> list[str]:
    file = trial.folder / "workspaces" / str(job_id) / name
    return file.read_text("utf-8").splitlines() if file.exists() else []


async def _attend(trial: Trial, found: Storm) -> None:
    """Resolve unknown outcomes by what the servers wrote, until cancelled."""
    while True:
        with contextlib.suppress(CortexError):  # the next poll finds what is left
            for effect in await effects.page(trial.db, statuses=[EffectStatus.UNKNOWN]):
                text = effect.arguments["text"]
                tool = effect.tool.replace(".", "__")
                is_applied = text in written(trial, effect.job_id, tool)
                await effects.resolve(
                    trial.db,
                    effect.id,
                    Resolution.APPLIED if is_applied else Resolution.NOT_APPLIED,
                    by=person(NAME),
                    reason="as the server wrote",
                    result=f'"{FILES[tool]}: {text}"' if is_applied else None,
                )
                found.resolved += 1
        await asyncio.sleep(PERSON_POLL_S)
