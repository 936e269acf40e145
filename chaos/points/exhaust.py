"""Every trial: each program undisturbed, then once for each passing of each point, in each way.

With a seed, a sample: each point once; the seed draws the program, the passing and the way.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, field, frozen

from chaos.points.bench import TROUBLE, Bench
from chaos.points.judge import problems
from chaos.points.programs import ANYONES, EVERYONES, PROGRAMS, Program
from chaos.points.shot import NotPassedError, Recorded, Shot, fire, record
from cortex.crash_points import BETWEEN, POINTS, Kind

AT_ONCE: Final = 8
"""Trials; more only wait for each other on two cores."""
WAYS: Final = ("kill", "stop")
MAKERS_MAX: Final = 3
"""Programs that are tried for one point between two transactions."""


@frozen(kw_only=True)
class Result:
    """The result of one shot, or of an undisturbed trial."""

    program: str
    point: str | None = None
    nth: int | None = None
    how: str | None = None
    is_pair: bool = False
    is_passed: bool = True
    """False: a point between two transactions, of an operation that had no second one this time."""
    took_s: float = 0.0
    problems: list[str] = field(factory=list)

    @property
    def name(self) -> str:
        """A short name of the trial."""
        if self.point is None:
            return f"{self.program}, undisturbed"
        return f"{self.program}, {self.how} at {self.point}:{self.nth}"


async def exhaust(
    bench: Bench,
    programs: Sequence[Program] = PROGRAMS,
    *,
    at_once: int = AT_ONCE,
    seed: int | None = None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Try everything with these programs, or the sample that `seed` draws.

    `on_result` is called with each result as it arrives.
    """
    turns = asyncio.Semaphore(at_once)
    recorded: dict[str, Recorded] = {}

    async def undisturbed(program: Program) -> Result:
        result = await _timed(turns, Result(program=program.name), lambda: _record(program))
        on_result(result)
        return result

    async def _record(program: Program) -> list[str]:
        observed = recorded[program.name] = await record(bench, program)
        strangers = sorted(
            {each for each in observed.points if not each.startswith(BETWEEN)}
            - points_of(program.kinds | program.also | ANYONES)
        )
        wrong = [f"it passes {point}, which its kind does not" for point in strangers]
        return wrong + problems(program, observed.left, shot=None, baseline=observed.left)

    async def shot(one: Shot) -> Result:
        is_hit = True

        async def judged() -> list[str]:
            nonlocal is_hit
            found = await _fired(bench, one, makers.get(one.point), recorded)
            is_hit = found is not None
            return found or []

        result = Result(
            program=one.program.name,
            point=one.point,
            nth=one.nth,
            how=one.how,
            is_pair=is_second(one.program, one.point),
        )
        result = evolve(await _timed(turns, result, judged), is_passed=is_hit)
        on_result(result)
        return result

    results = list(await asyncio.gather(*map(undisturbed, programs)))
    passed = {name: observed.points for name, observed in recorded.items()}
    shots = [one for each in programs for one in shots_of(each, passed.get(each.name, ()))]
    makers = makers_between(programs, passed)
    shots += shots_between(makers)
    if seed is not None:
        shots = drawn(shots, seed)
    results += await asyncio.gather(*map(shot, shots))
    if programs is PROGRAMS:
        results += unpassed(programs, passed)
    return results


async def _fired(
    bench: Bench, one: Shot, makers: Sequence[Program] | None, recorded: Mapping[str, Recorded]
) -> list[str] | None:
    """Carry out a shot, at the first of `makers` that passes it; return its problems.

    None: none of them passed it this time. Raises `MissingError`.
    """
    for program in makers or [one.program]:
        this = evolve(one, program=program)
        try:
            left = await fire(bench, this)
        except NotPassedError:
            if makers is None:
                raise
        else:
            return problems(program, left, shot=this, baseline=recorded[program.name].left)
    return None


async def _timed(
    turns: asyncio.Semaphore, result: Result, judged: "Callable[[], Awaitable[list[str]]]"
) -> Result:
    loop = asyncio.get_running_loop()
    async with turns:
        began = loop.time()
        try:
            problems_found = await judged()
        except TROUBLE as error:
            problems_found = [f"{type(error).__name__}: {error}"]
        return evolve(result, problems=problems_found, took_s=round(loop.time() - began, 2))


def points_of(kinds: frozenset[Kind]) -> set[str]:
    """The points that things of these kinds pass."""
    return {name for name, point in POINTS.items() if kinds & set(point.kinds)}


def shots_of(program: Program, passed: Sequence[str]) -> Iterator[Shot]:
    """All shots at a program whose pod passed these points, in this order."""
    for point in sorted(points_of(program.kinds) & set(passed), key=list(POINTS).index):
        for nth in passings(point, passed):
            for how in WAYS:
                if how == "kill" or not is_second(program, point):
                    yield Shot(program=program, point=point, nth=nth, how=how)


def makers_between(
    programs: Sequence[Program], passed: Mapping[str, Sequence[str]]
) -> dict[str, list[Program]]:
    """Return the programs that passed each point between two transactions of one operation.

    No table names them: an operation that begins to use a second transaction is tried from then on.
    Whether a tick has two depends on what it finds, so a shot may need another program.
    """
    makers: defaultdict[str, list[Program]] = defaultdict(list)
    for program in programs:
        if not program.is_pair:
            for point in dict.fromkeys(passed.get(program.name, ())):
                if point.startswith(BETWEEN) and len(makers[point]) < MAKERS_MAX:
                    makers[point].append(program)
    return dict(makers)


def shots_between(makers: Mapping[str, Sequence[Program]]) -> Iterator[Shot]:
    """The shots at such points."""
    for point, programs in sorted(makers.items()):
        for how in WAYS:
            yield Shot(program=programs[0], point=point, nth=1, how=how)


def drawn(shots: Sequence[Shot], seed: int) -> list[Shot]:
    """One shot for each point, and one for each point that is the second of a pair."""
    alike: defaultdict[tuple[str, bool], list[Shot]] = defaultdict(list)
    for each in shots:
        alike[each.point, is_second(each.program, each.point)].append(each)
    dice = random.Random(f"points {seed}")
    return [dice.choice(alike[what]) for what in sorted(alike)]


def is_second(program: Program, point: str) -> bool:
    """Whether the point is one of a pair, and not one that only an unknown outcome leads to."""
    return program.is_pair and Kind.DOUBT not in POINTS[point.partition(".")[0]].kinds


def passings(point: str, passed: Sequence[str]) -> Sequence[int]:
    """Which passings of a point are tried: for repeated ones, those where it matters."""
    if not EVERYONES & set(POINTS[point].kinds):
        return range(1, passed.count(point) + 1)
    after = f"after_{point.removeprefix('before_')}"
    if point.startswith("before_") and after in passed:
        return [passed[: passed.index(after)].count(point)]
    return [1]


def unpassed(programs: Sequence[Program], passed: Mapping[str, Sequence[str]]) -> Iterator[Result]:
    """Points that no program of a kind passes although the table says so: nothing tries them."""
    for name, point in POINTS.items():
        if name == BETWEEN:
            continue  # its names have the operations in them: see shots_between
        for kind in point.kinds:
            if not any(
                kind in each.kinds and name in passed.get(each.name, ()) for each in programs
            ):
                why = f"nothing of kind {kind} passes it"
                yield Result(program="the table", point=name, problems=[why])
