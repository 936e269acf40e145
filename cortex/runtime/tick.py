"""One tick: runs each chosen runner once, one after the other, within budgets.

Reads and writes: what the runners do, and the record of their runs at the end.
Invariants: a failed runner does not keep the others from running; nothing begins after the end of
the tick's time, and a runner that takes longer than its own is cancelled.

On failure: when the database is gone the tick ends, and reports what it did not run.
On stop: the present runner is cancelled; what it has not committed is left to the next tick.
"""

import zlib
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final

import attrs
import structlog
import trio

from cortex.actors.runner import Run, Runner, TickBudget
from cortex.crash_points import crash_point
from cortex.domain.classification import leading
from cortex.domain.errors import CortexError, UnavailableError
from cortex.runtime.maintenance.recorder import RunRecorder, error_text
from cortex.store.background.runners import DISPATCH

AFTER: Final = "limits"
"""Dispatch comes after the runners that make jobs due."""

_log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """How a runner's turn in a tick ended."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Another process holds its lock."""
    NOT_RUN = "not run"
    """The tick ended before its turn."""


@attrs.frozen(kw_only=True)
class RunnerReport:
    """What one runner did in a tick."""

    name: str
    outcome: Outcome
    items: int = 0
    duration_s: float = 0.0
    error: str | None = None


@attrs.frozen(kw_only=True)
class TickReport:
    """What a tick did."""

    runners: tuple[RunnerReport, ...]
    is_database_gone: bool

    @property
    def has_failed(self) -> bool:
        return any(each.outcome is Outcome.FAILED for each in self.runners)


@attrs.frozen(kw_only=True)
class TickTerms:
    """The limits of a tick."""

    max_s: float
    runner_max_s: float
    items: int


Dispatch = Callable[[float, int], Awaitable[int]]
"""Takes the seconds and the number of jobs to claim and run; returns how many were claimed."""


def of_shard(name: str, *, index: int, count: int) -> bool:
    """Return whether a runner runs in this of `count` ticks that divide the runners."""
    return zlib.crc32(name.encode()) % count == index


class Tick:
    """One tick; `stop` ends it early, from anywhere in the trio thread."""

    def __init__(self, *, recorder: RunRecorder, terms: TickTerms) -> None:
        self._recorder = recorder
        self._terms = terms
        self._is_stopped = False
        self._is_database_gone = False
        self._present = trio.CancelScope()

    def stop(self) -> None:
        """Cancel the present runner, unless it is dispatch, and run no more."""
        self._is_stopped = True
        self._present.cancel(reason="asked to end")

    async def run(self, runners: Sequence[Runner], dispatch: Dispatch | None) -> TickReport:
        """Run each once; `dispatch` takes its turn among them."""
        until = trio.current_time() + self._terms.max_s
        turns: list[tuple[str, Callable[[float], Awaitable[RunnerReport]]]] = []
        for runner in runners:
            runner.on_run = self._recorder.add
            turns.append((runner.name, self._turn_of(runner)))
        if dispatch is not None:
            names = [name for name, _ in turns]
            place = names.index(AFTER) + 1 if AFTER in names else 0
            turns.insert(place, (DISPATCH, self._turn_of_dispatch(dispatch)))
        reports = []
        for name, turn in turns:
            left_s = min(self._terms.runner_max_s, until - trio.current_time())
            if self._is_stopped or self._is_database_gone or left_s <= 0:
                reports.append(RunnerReport(name=name, outcome=Outcome.NOT_RUN))
            else:
                reports.append(await turn(left_s))
        try:
            crash_point("before_tick_record")
            await self._recorder.flush()
            crash_point("after_tick_record")
        except UnavailableError as error:
            self._is_database_gone = self._is_database_gone or not error.is_locked
            _log.warning("runs not recorded", error=error.message)
        return TickReport(runners=tuple(reports), is_database_gone=self._is_database_gone)

    def _turn_of(self, runner: Runner) -> Callable[[float], Awaitable[RunnerReport]]:
        async def turn(left_s: float) -> RunnerReport:
            began = trio.current_time()
            until = began + left_s
            items, is_skipped = 0, False
            failure: str | None = None
            self._present = trio.CancelScope(deadline=until)
            with self._present:
                try:
                    while True:
                        left = self._terms.items - items
                        result = await runner.run_once(TickBudget(items=left, until=until))
                        items += result.items
                        is_skipped = result.is_skipped
                        if not result.is_more_due or items >= self._terms.items:
                            break
                except Exception as error:  # noqa: BLE001 -- the other runners still run
                    failure = self._failed(runner.name, error)
            took_s = trio.current_time() - began
            if self._present.cancelled_caught:
                why = "was interrupted" if self._is_stopped else f"took longer than {left_s:.0f} s"
                failure = f"the run {why}"
            return _report(runner.name, items, took_s, failure, is_skipped=is_skipped)

        return turn

    def _turn_of_dispatch(self, dispatch: Dispatch) -> Callable[[float], Awaitable[RunnerReport]]:
        async def turn(left_s: float) -> RunnerReport:
            began = trio.current_time()
            items = 0
            caught: BaseException | None = None
            try:
                items = await dispatch(left_s, self._terms.items)
            except Exception as error:  # noqa: BLE001 -- the other runners still run
                caught = leading(error)  # a pod that could not begin raises a group
            took_s = trio.current_time() - began
            self._recorder.add(
                Run(
                    name=DISPATCH,
                    longest_s=0.0,
                    started_at=began,
                    duration_s=took_s,
                    items=items,
                    is_skipped=False,
                    error=caught,
                )
            )
            failure = None if caught is None else self._failed(DISPATCH, caught)
            return _report(DISPATCH, items, took_s, failure, is_skipped=False)

        return turn

    def _failed(self, name: str, error: BaseException) -> str:
        """Log a failure, note if it is the database's, and return its text."""
        if isinstance(error, UnavailableError) and not error.is_locked:
            self._is_database_gone = True
        stack = None if isinstance(error, CortexError) else error
        _log.error("runner failed", runner=name, error=error_text(error), exc_info=stack)
        return error_text(error)


def _report(
    name: str, items: int, took_s: float, failure: str | None, *, is_skipped: bool
) -> RunnerReport:
    if failure is not None:
        outcome = Outcome.FAILED
    elif is_skipped and not items:
        outcome = Outcome.SKIPPED
    else:
        outcome = Outcome.OK
    return RunnerReport(name=name, outcome=outcome, items=items, duration_s=took_s, error=failure)
