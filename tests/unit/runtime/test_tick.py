"""One tick: order, budgets, failures, an early end."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from cortex.actors.runner import AT_ONCE, Run, Runner, TickBudget, TickResult
from cortex.domain.errors import UnavailableError
from cortex.runtime.tick import Outcome, Tick, TickReport, TickTerms
from tests.support.eventually import virtually

TERMS = TickTerms(max_s=480.0, runner_max_s=60.0, items=200)
GONE = UnavailableError("gone")
LOCKED = UnavailableError("held", is_locked=True)


class Recorder:
    """Stands for the recorder."""

    def __init__(self, *, failure: Exception | None = None) -> None:
        self.runs: list[Run] = []
        self.failure = failure

    def add(self, run: Run) -> None:
        self.runs.append(run)

    async def flush(self) -> None:
        if self.failure is not None:
            raise self.failure


class Fake(Runner):
    """Takes this long per tick, and returns or raises one given result, then `NOTHING`."""

    failure = "not done"

    def __init__(self, name: str, *results: TickResult | Exception, takes_s: float = 1.0) -> None:
        super().__init__(rng=random.Random(1))
        self.name = name  # type: ignore[misc]
        self.results = list(results)
        self.takes_s = takes_s
        self.budgets: list[TickBudget] = []

    async def tick(self, budget: TickBudget, /) -> TickResult:
        self.budgets.append(budget)
        await virtually(self.takes_s)
        result = self.results.pop(0) if self.results else TickResult()
        if isinstance(result, Exception):
            raise result
        return result


async def ticked(
    runners: Sequence[Runner],
    *,
    dispatch: Any = None,
    recorder: Recorder | None = None,
    terms: TickTerms = TERMS,
) -> TickReport:
    tick = Tick(recorder=recorder or Recorder(), terms=terms)  # type: ignore[arg-type]
    with capture_logs():
        return await tick.run(runners, dispatch)


def outcomes(report: TickReport) -> dict[str, Outcome]:
    return {each.name: each.outcome for each in report.runners}


async def test_runners_run_once_with_dispatch_after_those_that_make_jobs_due(
    autojump_clock: MockClock,
) -> None:
    asked: list[tuple[float, int]] = []

    async def dispatch(left_s: float, items: int) -> int:
        asked.append((left_s, items))
        return 7

    recorder = Recorder()
    names = ("retries", "limits", "housekeeping")
    report = await ticked([Fake(each) for each in names], dispatch=dispatch, recorder=recorder)
    order = ["retries", "limits", "dispatch", "housekeeping"]
    assert [each.name for each in report.runners] == order
    assert [run.name for run in recorder.runs] == order
    assert (asked, report.runners[2].items) == ([(60.0, 200)], 7)
    assert not report.has_failed


async def test_runner_repeats_while_more_is_due_within_its_items(autojump_clock: MockClock) -> None:
    more, part = TickResult(items=90, next_s=AT_ONCE), TickResult(is_partial=True, next_s=0.25)
    behind, parts = Fake("behind", *[more] * 9), Fake("parts", part, part, TickResult(items=1))
    soon = Fake("soon", *[TickResult(items=1, next_s=0.25)] * 9)
    report = await ticked([behind, parts, soon])
    assert [each.items for each in behind.budgets] == [200, 110, 20]
    assert [len(each.budgets) for each in (parts, soon)] == [3, 1]
    assert [each.items for each in report.runners] == [270, 1, 1]


async def test_slow_runner_is_cancelled_and_the_tick_ends_in_time(
    autojump_clock: MockClock,
) -> None:
    terms = TickTerms(max_s=90.0, runner_max_s=60.0, items=200)
    fakes = [Fake("stuck", takes_s=1e6), Fake("next", takes_s=1e6), Fake("last")]
    report = await ticked(fakes, terms=terms)
    assert trio.current_time() == pytest.approx(90.0)
    assert list(outcomes(report).values()) == [Outcome.FAILED, Outcome.FAILED, Outcome.NOT_RUN]
    assert [each.error for each in report.runners] == [
        *("the run took longer than 60 s", "the run took longer than 30 s"),
        None,
    ]


async def test_a_failure_keeps_no_other_from_running(autojump_clock: MockClock) -> None:
    skipped = TickResult(is_skipped=True)
    broken, held = Fake("broken", ValueError("wrong")), Fake("held", LOCKED)
    report = await ticked([broken, held, Fake("other"), Fake("locked", skipped)])
    assert outcomes(report) == {
        "broken": Outcome.FAILED,
        "held": Outcome.FAILED,
        "other": Outcome.OK,
        "locked": Outcome.SKIPPED,
    }
    assert report.has_failed
    assert not report.is_database_gone


@pytest.mark.parametrize("by", ["a runner", "dispatch", "a pod that cannot begin", "the record"])
async def test_tick_stops_when_the_database_is_gone(by: str, autojump_clock: MockClock) -> None:
    async def dispatch(left_s: float, items: int) -> int:
        if by == "dispatch":
            raise GONE
        if by == "a pod that cannot begin":
            raise ExceptionGroup("nursery", [ExceptionGroup("nursery", [GONE])])
        return 0

    first = Fake("retries", *([GONE] if by == "a runner" else []))
    last = Fake("housekeeping")
    recorder = Recorder(failure=GONE if by == "the record" else None)
    report = await ticked([first, last], dispatch=dispatch, recorder=recorder)
    assert report.is_database_gone
    assert len(last.budgets) == (by == "the record")


async def test_stopped_tick_cancels_its_runner_and_runs_no_more(
    autojump_clock: MockClock,
) -> None:
    tick = Tick(recorder=Recorder(), terms=TERMS)  # type: ignore[arg-type]
    reports: list[TickReport] = []

    async def run() -> None:
        reports.append(await tick.run([Fake("a", takes_s=50.0), Fake("b")], None))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await virtually(10.0)
        tick.stop()
    assert trio.current_time() == pytest.approx(10.0)
    assert outcomes(reports[0]) == {"a": Outcome.FAILED, "b": Outcome.NOT_RUN}
    assert reports[0].runners[0].error == "the run was interrupted"
