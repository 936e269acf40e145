"""The actor that stores log lines: outages, bounds, the end of a pod, jobs in own processes."""

import math
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from cortex.domain.backoff import Backoff
from cortex.domain.errors import InvalidValueError, UnavailableError
from cortex.domain.job import Lease
from cortex.domain.log_line import Level, LogLine
from cortex.durable.job_log import Why
from cortex.runtime.logs import writer as writing
from cortex.runtime.logs.relay import LineSender, received
from cortex.runtime.logs.writer import LogWriter
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.tracing.start import NoLogExporter
from cortex.store import logs
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench, a_claim
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql


class Exported(NoLogExporter):
    def __init__(self) -> None:
        self.lines: list[LogLine] = []

    def add(self, lines: Sequence[LogLine]) -> None:
        self.lines += lines


@pytest.fixture
async def writer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> LogWriter:
    monkeypatch.setattr(writing, "GATHER_S", 0.01)
    made = LogWriter(bench.port, Exported(), rng=bench.rng, metrics=Metrics())
    await bench.start(made)
    return made


def write(writer: LogWriter, job_id: UUID, *texts: str) -> None:
    claim = a_claim(lease=Lease(job_id, 1))
    for text in texts:
        writer.buffer.add(claim, Level.INFO, text, step=None, source=None)


def stored(dsn: str, job_id: UUID) -> list[str]:
    query = "SELECT message FROM cortex.log_line WHERE job_id = $1 ORDER BY number"
    return [row["message"] for row in sql(dsn, query, job_id)]


async def test_lines_of_any_thread_are_stored_in_order(database: str, writer: LogWriter) -> None:
    job_id = new_id()
    write(writer, job_id, "a", "b")
    await trio.to_thread.run_sync(write, writer, job_id, "c")
    await eventually_async(
        lambda: stored(database, job_id) == ["a", "b", "c"], what="all are stored"
    )
    assert isinstance(writer.exporter, Exported)
    assert [line.message for line in writer.exporter.lines] == ["a", "b", "c"]


@pytest.mark.smoke("A log line is kept once, and a missing one is counted", case="True")
@pytest.mark.parametrize("is_done", [False, True])
async def test_a_lost_reply_costs_and_doubles_no_line(
    database: str, writer: LogWriter, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, failures = logs.keep, [UnavailableError("away"), UnavailableError("away")]

    async def fails_first(*given: Any, **named: Any) -> None:
        if failures and not is_done:
            raise failures.pop()
        await keep(*given, **named)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(logs, "keep", fails_first)
    monkeypatch.setattr(writing, "BACKOFF", Backoff(base_s=0.01, cap_s=0.01))
    job_id = new_id()
    write(writer, job_id, "a", "b")
    await eventually_async(lambda: not failures, what="it was sent again")
    write(writer, job_id, "c")
    await eventually_async(
        lambda: stored(database, job_id) == ["a", "b", "c"], what="each is stored"
    )


async def test_a_refused_line_costs_only_itself(
    database: str, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = logs.keep

    async def refuses(db: Any, lines: Sequence[LogLine], *, now: float) -> None:
        if any(line.message == "bad" for line in lines):
            raise InvalidValueError("no")
        await keep(db, lines, now=now)

    monkeypatch.setattr(logs, "keep", refuses)
    job_id = new_id()
    write(writer, job_id, "a", "b", "bad", "c")
    remark = "1 line is missing here: the database refused them"
    await eventually_async(
        lambda: stored(database, job_id) == ["a", "b", "c", remark], what="the others are stored"
    )
    assert writer.buffer.dropped_counts[Why.REFUSED] == 1


async def test_a_pod_that_ends_stores_what_it_has_and_waits_for_no_database(
    database: str, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = new_id()
    write(writer, job_id, *(f"{n}" for n in range(2_500)))
    await writer.flush(5.0)
    assert len(stored(database, job_id)) == 2_500

    async def away(*_: Any, **__: Any) -> None:
        raise UnavailableError("away")

    monkeypatch.setattr(logs, "keep", away)
    writer.buffer.is_closed = False
    write(writer, job_id, "lost")
    began = trio.current_time()
    await writer.flush(math.inf)
    assert trio.current_time() - began < writing.FLUSH_S
    write(writer, job_id, "of a thread that goes on")
    assert writer.buffer.dropped_counts[Why.BUFFER] == 2


async def test_a_process_of_its_own_hands_lines_on_to_its_pod(
    database: str, writer: LogWriter
) -> None:
    job_id, sent = new_id(), list[dict[str, Any]]()
    claim = a_claim(lease=Lease(job_id, 1))
    sender = LineSender(sent.append, lambda: False)
    sender.begin(claim.lease)
    sender.buffer.write(claim, "begun", step="s", stream="stdout", thread=1)
    sender.buffer.add(claim, Level.ERROR, "bad", step=None, source=None, fields={"n": 1})
    other = a_claim(lease=Lease(new_id(), 1))
    sender.buffer.add(other, Level.INFO, "late", step=None, source=None)
    sender.finish()
    (message,) = sent
    received(writer.buffer, claim, **message)
    await eventually_async(lambda: stored(database, job_id) == ["bad", "begun"], what="both stored")
    assert writer.buffer.dropped_counts[Why.LATE] == 1


async def test_a_line_that_comes_after_its_attempt_is_none_of_the_next_one(
    mock_clock: MockClock,
) -> None:
    async def pass_time() -> None:
        await wait_all_tasks_blocked()
        mock_clock.jump(10.0)
        await wait_all_tasks_blocked()

    sent = list[dict[str, Any]]()
    first, second = (a_claim(lease=Lease(new_id(), 1)) for _ in range(2))
    sender = LineSender(sent.append, lambda: False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        sender.begin(first.lease)
        sender.finish()
        sender.buffer.add(first, Level.INFO, "late", step=None, source=None)
        await pass_time()
        assert sent == [], "the pod takes lines as those of the attempt that it hosts next"
        sender.begin(second.lease)
        sender.buffer.add(second, Level.INFO, "own", step=None, source=None)
        await pass_time()
        nursery.cancel_scope.cancel(reason="test")
    (message,) = sent
    assert ([line[4] for line in message["lines"]], message["late"]) == (["own"], 1)


@pytest.mark.parametrize(
    "lines",
    [[1], [[]], [["x", 20, None, None, "m", None]], [[math.inf, 20, None, None, "m", None]]],
)
async def test_lines_that_no_process_sends_are_refused(writer: LogWriter, lines: list[Any]) -> None:
    claim = a_claim(lease=Lease(new_id(), 1))
    with pytest.raises((InvalidValueError, TypeError)):
        received(writer.buffer, claim, lines=lines, dropped={}, late=0)
    with pytest.raises(ValueError, match="rat"):
        received(writer.buffer, claim, lines=[], dropped={"rat": 1}, late=0)
