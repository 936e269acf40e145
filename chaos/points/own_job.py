"""A user's own job, killed at every point that it passes, to see whether it survives that.

First it runs undisturbed, twice: this shows which points it passes, how it ends, and whether it
always ends so. Its model is the scripted one. Approvals are granted. An effect with an unknown
outcome stays a person's to resolve, which is an answer, not a fault.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from attrs import field, frozen

from chaos.points.bench import TROUBLE, Bench
from chaos.points.exhaust import shots_of
from chaos.points.programs import Program
from chaos.points.shot import Left, NotPassedError, Shot, fire, record
from cortex.crash_points import POINTS, Kind

OWN: Final = frozenset(Kind) - {Kind.POD}
ENDS_WELL: Final = "COMPLETED"


class UndisturbedError(Exception):
    """The job does not end well although nothing disturbs it."""


@frozen(kw_only=True)
class Outcome:
    """The effect of one kill on the job."""

    point: str
    nth: int
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Correct, but worth knowing."""
    asks: bool = False
    """It waits for a person to resolve an effect."""
    is_passed: bool = True
    """Concurrent steps may be committed together, so it may pass a point less often."""


@frozen(kw_only=True)
class Survival:
    job_type: str
    step_count: int
    is_steady: bool
    """It ends with the same result each time it runs undisturbed."""
    outcomes: tuple[Outcome, ...] = field(factory=tuple)

    @property
    def is_good(self) -> bool:
        """It survives being killed anywhere."""
        return not any(each.wrong for each in self.outcomes)


def program_of(job_type: str, payload: dict[str, Any]) -> Program:
    """The user's job as a program."""
    return Program(
        name=job_type, kinds=OWN, job_type=job_type, own_payload=payload, may_wait_for_people=True
    )


async def survive(
    bench: Bench,
    program: Program,
    *,
    at_once: int,
    on_outcome: Callable[[int, int], None] = lambda *_: None,
) -> Survival:
    """Kill the job once at each passing of each point. Raises `UndisturbedError`.

    `on_outcome` is called with the number done and the total.
    """
    job_types = [each["name"] for each in bench.job_types]
    if program.job_type not in job_types:
        message = (
            f"the app has no job type {program.job_type!r}: it has {', '.join(sorted(job_types))}"
        )
        raise UndisturbedError(message)
    try:
        recorded, again = await asyncio.gather(record(bench, program), record(bench, program))
    except TROUBLE as error:
        raise UndisturbedError(f"undisturbed, {program.name} does not end: {error!r}") from error
    usual = recorded.left
    if usual.job["status"] != ENDS_WELL:
        end = f"{usual.job['status']}: {usual.job['error_message']}"
        raise UndisturbedError(f"undisturbed, {program.name} ends {end}")
    is_steady = usual.job["result"] == again.left.job["result"]
    shots = [one for one in shots_of(program, recorded.points) if _matters(one, recorded.points)]
    turns = asyncio.Semaphore(at_once)
    done = 0

    async def outcome(shot: Shot) -> Outcome:
        nonlocal done
        async with turns:
            outcome = await _outcome(bench, shot, usual, is_steady=is_steady)
        done += 1
        on_outcome(done, len(shots))
        return outcome

    outcomes = await asyncio.gather(*map(outcome, shots))
    return Survival(
        job_type=program.name,
        step_count=len(usual.record["steps"]),
        is_steady=is_steady,
        outcomes=tuple(outcomes),
    )


def _matters(shot: Shot, passed: Sequence[str]) -> bool:
    """Whether to try a shot: kills only; for repeated points, only where they did something."""
    is_everyones = Kind.POD in POINTS[shot.point].kinds
    return shot.how == "kill" and (
        not is_everyones or f"after_{shot.point.removeprefix('before_')}" in passed
    )


async def _outcome(bench: Bench, shot: Shot, usual: Left, *, is_steady: bool) -> Outcome:
    try:
        left = await fire(bench, shot)
    except NotPassedError:
        return Outcome(point=shot.point, nth=shot.nth, is_passed=False)
    except TROUBLE as error:
        return Outcome(point=shot.point, nth=shot.nth, wrong=(f"it did not end: {error!r}",))
    wrong = tuple(_wrong(left, usual, is_steady=is_steady))
    return Outcome(
        point=shot.point,
        nth=shot.nth,
        wrong=wrong,
        notes=tuple(_notes(left, usual)),
        asks=left.job["status"] == "WAITING_FOR_APPROVAL",
    )


def _wrong(left: Left, usual: Left, *, is_steady: bool) -> Iterator[str]:
    job = left.job
    if job["error_code"] in ("diverged", "unfit"):
        yield f"its replay diverged: {job['error_message']}"
    elif job["status"] == "WAITING_FOR_APPROVAL":
        return  # a note
    elif job["status"] != ENDS_WELL:
        yield f"it ended {job['status']}: {job['error_message']}"
    elif is_steady and job["result"] != usual.job["result"]:
        yield f"its result was {job['result']}, undisturbed it is {usual.job['result']}"
    keys, others = _keys(left), _keys(usual)
    if job["status"] == ENDS_WELL and keys != others:
        more, less = sorted(keys - others), sorted(others - keys)
        yield f"its steps differ: {', '.join([*(f'+{k}' for k in more), *(f'-{k}' for k in less)])}"
    requested, expected = len(left.record["approvals"]), len(usual.record["approvals"])
    if requested > expected:
        yield f"approval was requested {requested} times, undisturbed {expected}"
    paid, allowed = _model_calls(left, usual), _open_model_steps(left, usual)
    if paid > allowed:
        yield f"{paid} model calls were paid twice, {allowed} could not be avoided"


def _notes(left: Left, usual: Left) -> Iterator[str]:
    for effect in left.record["effects"]:
        if effect["status"] == "UNKNOWN":
            yield (
                f"a person has to say whether {effect['tool']} was applied: declare it idempotent, "
                "or give it a reconcile, to avoid this"
            )
        elif effect["calls_count"] > 1:
            yield f"{effect['tool']} is called again, under the same invocation id"
    if 0 < _model_calls(left, usual) <= _open_model_steps(left, usual):
        yield "a model call is paid again: its answer was not recorded yet"


def _keys(left: Left) -> set[str]:
    return {step["key"] for step in left.record["steps"]}


def _model_calls(left: Left, usual: Left) -> int:
    """How many more than undisturbed."""
    return left.calls.total() - usual.calls.total()


def _open_model_steps(left: Left, usual: Left) -> int:
    """Model steps that were not recorded yet when the pod was killed."""
    kept = {step["key"] for step in left.before["steps"]}
    return sum(s["kind"] == "model" and s["key"] not in kept for s in usual.record["steps"])


def lines(survival: Survival) -> Iterator[str]:
    """The report for the author."""
    by_point: dict[str, list[Outcome]] = {}
    for outcome in survival.outcomes:
        if outcome.is_passed:
            by_point.setdefault(outcome.point, []).append(outcome)
    width = max(map(len, by_point), default=0)
    for point, own in by_point.items():
        good = sum(not each.wrong for each in own)
        mark = f"{good} ok" if good == len(own) else f"{good} of {len(own)} ok"
        yield f"{point:<{width}}  {mark:<12}  {POINTS[point].what}"
    wrong = [(each, why) for each in survival.outcomes for why in each.wrong]
    if wrong:
        yield from ("", "wrong:", *(f"  killed at {e.point}:{e.nth}: {why}" for e, why in wrong))
    notes: dict[str, list[str]] = {}
    for each in survival.outcomes:
        for note in each.notes:
            notes.setdefault(note, []).append(f"{each.point}:{each.nth}")
    if notes:
        yield from ("", "good to know:")
        yield from (f"  killed at {', '.join(where)}: {note}" for note, where in notes.items())
    if not survival.is_steady:
        yield from ("", "undisturbed, its result differs from run to run: it was not compared")
    kills = sum(len(own) for own in by_point.values())
    asking = sum(each.asks for each in survival.outcomes)
    verdict = "survives being killed anywhere" if survival.is_good else "does not survive"
    if survival.is_good and asking:
        verdict += f", {asking} times with the help of a person"
    yield from (
        "",
        f"{survival.job_type}, {survival.step_count} steps, killed {kills} times: {verdict}",
    )
