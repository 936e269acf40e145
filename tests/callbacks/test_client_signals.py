"""Signals from clients, and in the caller's own transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
import trio

from cortex import Client, SyncClient
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    InvalidValueError,
    KeyReusedError,
    NotFoundError,
    UsageError,
)
from cortex.postgres.database import SUBMITTER_ROLE
from cortex.store import jobs
from tests.callbacks.conftest import CallbackStage
from tests.support.logins import login_with
from tests.support.records.rows import new_id
from tests.support.servers.postgres import run_asyncio, sql

STRANGE = "'; DROP TABLE x; -- %s %(a)s :name $1 {0} \\ \" ä \U0001f600"


@pytest.fixture(scope="module")
def client(shared_database: str) -> Iterator[SyncClient]:
    with SyncClient(shared_database) as opened:
        yield opened


def sent_to(stage: CallbackStage, job_id: UUID) -> list[tuple[str, Any]]:
    return [(each.name, each.payload) for each in stage.received(job_id)]


@pytest.mark.parametrize("run", [run_asyncio, trio.run])
def test_a_handle_and_a_client_send_signals(stage: CallbackStage, run: Any) -> None:
    claim = stage.stage.running()
    job_id, key = claim.lease.job_id, f"order-{new_id()}"

    async def send() -> tuple[UUID, UUID]:
        async with await Client.connect(stage.server.dsn) as client:
            first = await client.handle(job_id).signal("paid", {"euros": 48})
            return first, await client.signal("paid", [STRANGE], key=key)

    first, second = run(send)
    taken = stage.stage.take(claim, step="a", name="paid")
    by_key = stage.stage.take(claim, step="b", name="paid", key=key)
    assert taken is not None
    assert by_key is not None
    assert (taken.id, by_key.id) == (first, second)
    assert sent_to(stage, job_id) == [("paid", {"euros": 48}), ("paid", [STRANGE])]


def test_an_idempotency_key_sends_one_signal(stage: CallbackStage, client: SyncClient) -> None:
    handle = client.handle(stage.stage.submit())
    first = handle.signal("paid", 1, idempotency_key="k")
    assert handle.signal("paid", 1, idempotency_key="k") == first
    assert handle.signal("paid", 1) != first, "without a key each call is a signal"
    with pytest.raises(KeyReusedError, match='key "k" was used for another signal'):
        handle.signal("paid", 2, idempotency_key="k")
    assert len(stage.received(handle.id)) == 2


REFUSED: list[tuple[type[CortexError], dict[str, Any], str]] = [
    (UsageError, {"name": ""}, "signal name '' is not text of 1 to 100 printable"),
    (UsageError, {"name": 7}, "signal name 7 is not text"),
    (UsageError, {"name": "x" * 101}, "is not text of 1 to 100 printable"),
    (InvalidValueError, {"payload": object()}, "signal 'paid'"),
    (InvalidValueError, {"payload": "x" * 1_000_000}, "signal 'paid' is 1,000,002 bytes of JSON"),
    (UsageError, {"idempotency_key": ""}, "idempotency_key '' is not text"),
    (InvalidValueError, {"idempotency_key": "a b"}, 'key "a b" is not 1 to 200 visible'),
]


@pytest.mark.parametrize("kind, given, message", REFUSED)
def test_an_unfit_signal_is_refused_in_one_line(
    stage: CallbackStage,
    client: SyncClient,
    kind: type[CortexError],
    given: dict[str, Any],
    message: str,
) -> None:
    handle = client.handle(stage.stage.submit())
    with pytest.raises(kind) as caught:
        handle.signal(**{"name": "paid", **given})
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert stage.received(handle.id) == []


def test_a_signal_to_no_job_or_an_ended_one_is_refused(
    stage: CallbackStage, client: SyncClient
) -> None:
    unknown = new_id()
    with pytest.raises(NotFoundError, match=f"job {unknown} does not exist"):
        client.handle(unknown).signal("paid")
    job_id = stage.stage.submit()
    stage.stage.store(jobs.cancel, job_id, by="ana", reason="x")
    with pytest.raises(ConflictError, match=f"job {job_id} is CANCELLED: it has ended"):
        client.handle(job_id).signal("paid")


def test_a_client_of_one_tenant_signals_its_own_jobs_only(stage: CallbackStage) -> None:
    claim, foreign = stage.stage.running(tenant="acme"), stage.stage.submit()
    with SyncClient(stage.server.dsn, tenant="acme") as client:
        client.handle(claim.lease.job_id).signal("paid")
        with pytest.raises(NotFoundError, match=f"job {foreign} does not exist"):
            client.handle(foreign).signal("paid")
        with pytest.raises(CortexError, match='a signal for tenant "bolt" may not be sent'):
            client.signal("paid", key="order-3", tenant="bolt")
        client.signal("paid", key="order-3")
    assert stage.received(foreign) == []
    assert stage.stage.take(claim, name="paid", key="order-3") is not None


def test_a_login_that_may_only_submit_signals_its_own_jobs(stage: CallbackStage) -> None:
    foreign = stage.stage.submit()
    with login_with(stage.server.dsn, SUBMITTER_ROLE) as dsn, SyncClient(dsn) as client:
        handle = client.submit("work", payload={})
        handle.signal("paid", 1)
        with pytest.raises(NotFoundError, match=f"job {foreign} does not exist"):
            client.handle(foreign).signal("paid")
        assert sent_to(stage, handle.id) == [("paid", 1)]
    assert stage.received(foreign) == []


@contextmanager
def transaction(dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn.partition("&sslmode")[0]) as connection:
        yield connection


def test_a_statement_sends_in_the_callers_transaction(
    stage: CallbackStage, client: SyncClient
) -> None:
    claim = stage.stage.running()
    job_id, key = claim.lease.job_id, f"order-{new_id()} {STRANGE}"
    with transaction(stage.server.dsn) as connection:
        connection.execute(*client.sql.signal("lost", 1, job=job_id))
        connection.rollback()
        row = connection.execute(*client.sql.signal(STRANGE, {"a": STRANGE}, job=job_id)).fetchone()
        connection.execute(*client.sql.signal("paid", key=key, idempotency_key="k"))
        again = connection.execute(*client.sql.signal("paid", key=key, idempotency_key="k"))
        assert again.fetchone() is not None
        assert row is not None
    assert [(each.id, each.name, each.payload) for each in stage.received(job_id)] == [
        (row[0], STRANGE, {"a": STRANGE})
    ]
    (waiting,) = sql(
        stage.server.dsn, "SELECT count(*) AS n FROM cortex.signal WHERE key = $1", key
    )
    assert waiting["n"] == 1


@pytest.mark.parametrize(
    "target", [{}, {"job": "7e57c0de-0000-4000-8000-000000000000", "key": "k"}]
)
def test_a_statement_needs_one_target(client: SyncClient, target: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="signal 'paid' needs a job or a key, one of the two"):
        client.sql.signal("paid", **target)
