"""Circuit breakers in the record: shared, one probe at a time, each change a fact."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import orjson
import pytest

from cortex.domain.breaker import Breaker, BreakerState
from cortex.domain.errors import NotFoundError, UsageError
from cortex.domain.failure import Failure, FailureClass
from cortex.postgres.database import Profile
from cortex.postgres.session import Session, open_session
from cortex.store import breakers
from tests.support.eventually import WITHIN_S
from tests.support.records.messages import announced, subscribe
from tests.support.records.rows import as_runtime, move_clock, new_id
from tests.support.servers.postgres import run_asyncio, sql

NAME = "llm:m"
LEASE_S = 30.0


def fail(
    store: Session, name: str = NAME, *, probe: int | None = None, asked_s: float | None = None
) -> Breaker:
    failure = Failure(
        cls=FailureClass.TRANSIENT_APP, code="overloaded", message="busy", retry_after_s=asked_s
    )
    return store(breakers.failed, name, failure=failure, requests=1, probe=probe).breaker


def open_it(store: Session, name: str = NAME) -> Breaker:
    return fail(store, name, asked_s=20.0)


def probe(store: Session, name: str = NAME) -> int | None:
    return store(breakers.take_probe, name, pod_id=new_id(), lease_s=LEASE_S)[1]


def facts(dsn: str, name: str = NAME) -> list[tuple[str, dict[str, Any]]]:
    query = (
        "SELECT subtype, data FROM cortex.fact WHERE type = 'lifecycle' AND source = $1 ORDER BY id"
    )
    return [(row["subtype"], orjson.loads(row["data"])) for row in sql(dsn, query, name)]


def unhealthy(store: Session) -> list[str]:
    return [breaker.name for breaker in store(breakers.look, limit=100)[1]]


@pytest.fixture
def pods(database: str) -> Iterator[list[Session]]:
    """Eight pods' ways to one database, each on a connection of its own."""
    with ExitStack() as stack, ThreadPoolExecutor(8) as threads:

        def opened(_: int) -> Session:
            return stack.enter_context(open_session(Profile(dsn=database, hot_path=True)))

        yield list(threads.map(opened, range(8)))


def at_once(pods: list[Session], work: Any) -> list[Any]:
    with ThreadPoolExecutor(len(pods)) as threads:
        return list(threads.map(work, pods))


def test_an_outage_is_recorded_from_its_first_failure_to_its_end(
    store: Session, database: str
) -> None:
    assert [fail(store).state for _ in range(3)] == ["CLOSED", "CLOSED", "OPEN"]
    assert probe(store) is None
    move_clock(database, 31)
    number = probe(store)
    assert number == 1
    assert probe(store) is None
    assert fail(store, probe=number).state is BreakerState.OPEN
    move_clock(database, 62)
    number = probe(store)
    seen = store(breakers.succeeded, NAME, requests=1, probe=number)
    assert seen.breaker.is_healthy
    output = facts(database)
    assert [subtype for subtype, _ in output] == [
        "breaker_opened",
        "breaker_half_opened",
        "breaker_opened",
        "breaker_half_opened",
        "breaker_closed",
    ]
    opened, closed = output[0][1], output[-1][1]
    assert (opened["before"], opened["after"], opened["failures"]) == ("CLOSED", "OPEN", 3)
    assert opened["error"] == "overloaded: busy"
    assert (closed["failures"], closed["opened_at"]) == (4, opened["opened_at"])


def test_pods_count_together_and_none_is_lost(pods: list[Session], database: str) -> None:
    subscribe(database)
    states = [breaker.state for breaker in at_once(pods, fail)]
    assert states.count(BreakerState.CLOSED) == 2
    subtypes = [subtype for subtype, _ in facts(database)]
    assert subtypes == ["breaker_opened", "breaker_escalated"]
    topics = [topic for topic, _, _ in announced(database)]
    assert topics == ["breaker.opened", "breaker.escalated"]
    (row,) = sql(database, "SELECT failures, version FROM cortex.breaker")
    assert row["failures"] == 5  # what came after the person was asked changed nothing
    assert row["version"] <= len(pods) + 5, "each may have tried to make it, five wrote"


def test_one_of_many_pods_gets_the_probe(
    pods: list[Session], store: Session, database: str
) -> None:
    open_it(store)
    move_clock(database, 21)
    taken = [number for number in at_once(pods, probe) if number is not None]
    assert taken == [1]
    move_clock(database, 21 + LEASE_S + 1)  # its pod was killed
    taken = [number for number in at_once(pods, probe) if number is not None]
    assert taken == [2]
    late = store(breakers.succeeded, NAME, requests=1, probe=1)
    assert late.breaker.state is BreakerState.HALF_OPEN


def test_probe_is_renewed_and_given_back(store: Session, database: str) -> None:
    open_it(store)
    move_clock(database, 21)
    number = probe(store)
    assert number is not None
    move_clock(database, 40)
    store(breakers.renew_probe, NAME, probe=number, lease_s=LEASE_S)
    move_clock(database, 60)
    assert probe(store) is None
    store(breakers.give_back, NAME, probe=number)
    assert probe(store) == number + 1
    assert [subtype for subtype, _ in facts(database)] == ["breaker_opened", "breaker_half_opened"]


def test_pods_read_only_unhealthy_breakers(store: Session, database: str) -> None:
    now, found = store(breakers.look, limit=100)
    assert found == []
    assert now.tzinfo is not None
    open_it(store, "llm:open")
    fail(store, "tool:counting")
    fail(store, "http:well")
    store(breakers.succeeded, "http:well", requests=1, probe=None)
    assert sorted(unhealthy(store)) == ["llm:open", "tool:counting"]
    assert len(store(breakers.look, limit=1)[1]) == 1


def test_person_opens_and_closes_a_breaker(store: Session, database: str) -> None:
    held = store(breakers.force_open, NAME, by="ana", reason="bills").breaker
    assert (held.state, held.open_until) == (BreakerState.OPEN, None)
    move_clock(database, 1e6)
    assert probe(store) is None
    assert fail(store, asked_s=5.0) == held
    store(breakers.force_open, NAME, by="li", reason="still")
    closed = store(breakers.close, NAME, by="ana", reason="paid").breaker
    assert closed.is_healthy
    store(breakers.close, NAME, by="ana", reason="again")
    output = facts(database)
    assert [(subtype, data["by"], data["reason"]) for subtype, data in output] == [
        ("breaker_forced_open", "ana", "bills"),
        ("breaker_forced_open", "li", "still"),
        ("breaker_forced_closed", "ana", "paid"),
        ("breaker_forced_closed", "ana", "again"),
    ]


def test_a_hold_with_an_end_lets_one_try_after_it(store: Session, database: str) -> None:
    held = store(breakers.force_open, NAME, by="ana", reason="deploy", for_s=60.0).breaker
    assert held.open_until is not None
    move_clock(database, 59)
    assert probe(store) is None
    assert fail(store, asked_s=500.0) == held
    move_clock(database, 61)
    number = probe(store)
    assert number is not None
    assert probe(store) is None
    assert store(breakers.succeeded, NAME, requests=1, probe=number).breaker.is_healthy
    assert [subtype for subtype, _ in facts(database)] == [
        *("breaker_forced_open", "breaker_half_opened", "breaker_closed")
    ]
    for wrong in (0.0, 31 * 86_400.0, float("nan")):
        with pytest.raises(UsageError, match="1 second to 30 days"):
            store(breakers.force_open, NAME, by="ana", reason="r", for_s=wrong)


def test_a_hold_may_be_made_another(store: Session, database: str) -> None:
    store(breakers.force_open, NAME, by="ana", reason="deploy", for_s=60.0)
    store(breakers.force_open, NAME, by="li", reason="for good")
    move_clock(database, 1e6)
    assert probe(store) is None
    store(breakers.force_open, NAME, by="ana", reason="short", for_s=1.0)
    move_clock(database, 1e6 + 2)
    assert probe(store) is not None


def test_closing_a_missing_breaker_lists_existing_ones(store: Session, database: str) -> None:
    with pytest.raises(NotFoundError, match="no circuit breaker 'llm:x'"):
        store(breakers.close, "llm:x", by="ana", reason="r")
    open_it(store)
    with pytest.raises(NotFoundError) as caught:
        store(breakers.close, "llm:x", by="ana", reason="r")
    assert caught.value.hint == "there are: llm:m"
    with pytest.raises(UsageError):
        store(breakers.force_open, "disk:x", by="ana", reason="r")
    assert [row.name for row in store(breakers.page)] == ["llm:m"]


def test_breakers_closed_for_long_are_forgotten(store: Session, database: str) -> None:
    fail(store, "http:counting")
    open_it(store, "llm:open")
    move_clock(database, 100)
    fail(store, "http:young")
    assert store(breakers.forget, idle_s=50.0, limit=10) == 1
    assert sorted(row.name for row in store(breakers.page)) == ["http:young", "llm:open"]
    assert [subtype for subtype, _ in facts(database, "llm:open")] == ["breaker_opened"]


def test_the_list_counts_the_jobs_that_wait(store: Session, database: str, submit: Any) -> None:
    open_it(store)
    fail(store, "tool:t")
    for _ in range(3):
        job_id = submit()
        sql(database, "DELETE FROM cortex_worker.task WHERE job_id = $1", job_id)
        sql(
            database,
            "WITH r AS (UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1) SELECT",
            job_id,
        )
        sql(
            database,
            "UPDATE cortex.job_record SET status = 'RETRY', worker_job_id = NULL, waiting_on = $2, "
            "next_retry_at = cortex.now() WHERE id = $1",
            job_id,
            NAME,
        )
    rows = store(breakers.page)
    assert [(row.name, row.state, row.waiting) for row in rows] == [
        (NAME, "OPEN", 3),
        ("tool:t", "CLOSED", 0),
    ]


def test_only_state_changes_notify_pods(store: Session, database: str) -> None:
    import asyncio  # noqa: PLC0415

    import asyncpg  # noqa: PLC0415

    async def heard() -> list[str]:
        connection = await asyncpg.connect(database)
        output: asyncio.Queue[str] = asyncio.Queue()
        await connection.add_listener("cortex_breaker", lambda *a: output.put_nowait(str(a[3])))
        for act in (fail, fail, fail):  # two are only counted
            await asyncio.to_thread(act, store)
        await asyncio.to_thread(store, breakers.close, NAME, by="ana", reason="r")
        found = [await asyncio.wait_for(output.get(), WITHIN_S) for _ in range(2)]
        await connection.execute("SELECT pg_notify('cortex_breaker', 'end')")
        found.append(await asyncio.wait_for(output.get(), WITHIN_S))
        await connection.close()
        return found

    assert run_asyncio(heard) == ["", "", "end"]


@pytest.mark.parametrize(
    "change, constraint",
    [
        ("state = 'AJAR'", "breaker_state_check"),
        ("state = 'OPEN', open_until = cortex.now()", "opened_at_only_in_an_outage"),
        ("open_until = cortex.now()", "open_until_unless_forced"),
        ("probe_by = cortex.uuid7(), probe_until = cortex.now()", "probe_only_in_half_open"),
        ("forced_by = 'ana'", "forced"),
        ("failures = -1", "breaker_failures_check"),
    ],
)
def test_a_breaker_that_contradicts_itself_is_refused(
    store: Session, database: str, change: str, constraint: str
) -> None:
    import asyncpg  # noqa: PLC0415

    fail(store)
    with pytest.raises(asyncpg.CheckViolationError, match=constraint):
        sql(as_runtime(database), f"UPDATE cortex.breaker SET {change}")  # noqa: S608
