"""A pod's diagnosis from its calls: which trouble there is, when it is reported, when it ends."""

from collections.abc import Iterator, MutableMapping
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from cortex.domain.drain import TroubleReport
from cortex.domain.errors import Trouble, UnavailableError
from cortex.runtime.liveness.database_watch import (
    FORGOTTEN_S,
    LOG_AGAIN_S,
    LOG_APART_S,
    SILENT_S,
    DatabaseWatch,
)

Clock = trio.testing.MockClock
Lines = list[MutableMapping[str, Any]]
BEGUN, LASTS, OVER = (
    "database trouble",
    "database trouble persists",
    "database recovered",
)
SHORTAGES = [each for each in Trouble if each.is_shortage]


class Calls:
    """A watch, and the reports to its owner."""

    def __init__(self) -> None:
        self.changes = 0
        self.failures: list[UnavailableError] = []
        self.watch = DatabaseWatch(on_failure=self.failures.append, on_change=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def fails(self, trouble: Trouble | None, method: object = len) -> None:
        self.watch.sent()
        self.watch.ended(method, UnavailableError("so it says", trouble=trouble))

    def succeeds(self, method: object = len) -> None:
        self.watch.sent()
        self.watch.ended(method, None)


@pytest.fixture
def log_lines() -> Iterator[Lines]:
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def calls() -> Calls:
    return Calls()


async def later(clock: Clock, seconds: float) -> None:
    """Advance the clock, and run the tasks that waited for it."""
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


def events(lines: Lines) -> list[str]:
    return [line["event"] for line in lines]


@pytest.mark.parametrize("trouble", [Trouble.UNREACHABLE, Trouble.SILENT])
async def test_any_answer_shows_a_reachable_database(
    mock_clock: Clock, calls: Calls, log_lines: Lines, trouble: Trouble
) -> None:
    calls.fails(trouble)
    await later(mock_clock, 3)
    assert calls.watch.report == TroubleReport(trouble, 3.0)
    calls.succeeds(sorted)
    assert calls.watch.report is None
    assert events(log_lines) == [BEGUN, OVER]
    assert [line["log_level"] for line in log_lines] == ["warning", "info"]
    assert log_lines[1]["for_s"] == 3
    assert calls.changes == 2


@pytest.mark.parametrize("trouble", [*SHORTAGES, Trouble.READ_ONLY])
async def test_shortage_ends_only_when_the_failed_call_succeeds(
    mock_clock: Clock, calls: Calls, trouble: Trouble
) -> None:
    calls.fails(trouble, partial(sorted, "a row"))
    calls.succeeds(len)
    assert calls.watch.report == TroubleReport(trouble, 0.0)
    calls.succeeds(partial(sorted, "another row"))
    assert calls.watch.report is None


async def test_shortage_is_logged_at_its_start_and_once_a_minute(
    mock_clock: Clock, calls: Calls, log_lines: Lines
) -> None:
    tries = 200
    for _ in range(tries):
        calls.fails(Trouble.DISK_FULL)
        await later(mock_clock, LOG_AGAIN_S / 100)
    calls.succeeds()
    assert events(log_lines) == [BEGUN, LASTS, OVER]
    assert [line["log_level"] for line in log_lines] == ["error", "error", "info"]
    assert log_lines[0]["trouble"] == "disk_full"
    assert log_lines[0]["error"] == "so it says"
    assert log_lines[2]["for_s"] == 2 * LOG_AGAIN_S
    assert len(calls.failures) == tries
    assert calls.changes == 2


async def test_flapping_trouble_is_logged_once(
    mock_clock: Clock, calls: Calls, log_lines: Lines
) -> None:
    for _ in range(20):
        calls.fails(Trouble.UNREACHABLE)
        calls.succeeds()
        await later(mock_clock, LOG_APART_S / 10)
    assert events(log_lines)[:2] == [BEGUN, OVER]
    assert len(log_lines) == 4
    calls.fails(Trouble.DISK_FULL)
    assert len(log_lines) == 5, "another one"
    assert calls.changes == 41


async def test_trouble_without_a_retry_is_forgotten(
    mock_clock: Clock, calls: Calls, log_lines: Lines, nursery: trio.Nursery
) -> None:
    await nursery.start(calls.watch.run)
    assert FORGOTTEN_S == 20.0, "the longest pause of a loop, and the longest statement"
    calls.fails(Trouble.DISK_FULL)
    await later(mock_clock, FORGOTTEN_S - 1)
    assert calls.watch.report is not None
    await later(mock_clock, 2.5)
    assert calls.watch.report is None
    assert events(log_lines) == [BEGUN, OVER]


async def test_silence_is_trouble_before_any_call_has_failed(
    mock_clock: Clock, calls: Calls, log_lines: Lines, nursery: trio.Nursery
) -> None:
    await nursery.start(calls.watch.run)
    await later(mock_clock, 3600)
    assert calls.watch.report is None, "nobody asked anything"
    calls.watch.sent()
    await later(mock_clock, SILENT_S / 2)
    calls.watch.sent()
    await later(mock_clock, SILENT_S / 2)
    assert calls.watch.report is None
    assert calls.changes == 0
    await later(mock_clock, 2)
    assert calls.watch.report == TroubleReport(Trouble.SILENT, SILENT_S + 2)
    assert calls.changes == 1, "the heartbeat is to look"
    calls.watch.ended(sorted, None)
    assert calls.watch.report is None, "one answer is enough"
    await later(mock_clock, SILENT_S - 1)
    assert calls.watch.report is None
    await later(mock_clock, 2)
    assert calls.watch.report is not None, "the other one still waits"
    assert events(log_lines) == [BEGUN, OVER]


async def test_abandoned_call_is_no_answer(mock_clock: Clock, calls: Calls) -> None:
    calls.fails(Trouble.UNREACHABLE)
    calls.watch.sent()
    calls.watch.given_up()
    assert calls.watch.report == TroubleReport(Trouble.UNREACHABLE, 0.0), "it is no answer"
    calls.succeeds()
    await later(mock_clock, 3600)
    assert calls.watch.report is None, "and nobody waits for one"


async def test_a_busy_database_is_in_no_trouble(
    mock_clock: Clock, calls: Calls, log_lines: Lines
) -> None:
    """A deadlock, or no connection of the pool's own that is free."""
    calls.fails(None)
    assert calls.watch.report is None
    assert log_lines == []
    assert len(calls.failures) == 1
