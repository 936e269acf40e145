"""Clients wait for jobs: woken by the end, through outages and poolers, never for ever."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, assert_type
from uuid import UUID

import asyncpg
import pytest
import trio

from cortex import Client, Handle, JobCancelledError, JobFailedError, SyncClient, TimedOutError
from cortex.client import following, waiting
from cortex.domain.backoff import Backoff
from cortex.domain.errors import (
    ConflictError,
    CortexError,
    ForbiddenError,
    InvalidOutputError,
    NotFoundError,
    SchemaError,
    UnavailableError,
    UsageError,
)
from cortex.domain.job_feed import EventKind
from cortex.domain.token import Role, digest_of_token, token_text
from cortex.postgres.database import RUNTIME_ROLE, Profile
from cortex.postgres.migrate import migrate
from cortex.postgres.session import open_session
from cortex.store import approvals, clients, tokens
from tests.support.apps.client_app import Summary, digest, summarise
from tests.support.eventually import asyncio_turn, eventually
from tests.support.life import Life
from tests.support.logins import login_with, name_of
from tests.support.people import user
from tests.support.records.approvals import Askers
from tests.support.records.rows import new_id, submit
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres

NEVER = Backoff(base_s=1000.0, cap_s=1000.0)
WAITING = "SELECT job_id FROM cortex.waiting_client"
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE usename = $1"
END = """
    WITH task AS (DELETE FROM cortex_worker.task WHERE job_id = $1)
    UPDATE cortex.job_record SET status = 'CANCELLED', cancelled_by = 'ana', cancel_reason = 'why',
           worker_job_id = NULL WHERE id = $1
"""


def until_waits(dsn: str, *job_ids: UUID) -> None:
    wanted = set(job_ids)
    eventually(lambda: {row["job_id"] for row in sql(dsn, WAITING)} >= wanted, what="waits")


def completed(
    dsn: str,
    result: str = '{"a.txt": 3}',
    *,
    has_step: bool = False,
    job_type: str = "digest",
) -> None:
    """Run the next job as a pod would; from any thread."""
    with open_session(Profile(dsn=dsn)) as call:
        life = Life(call, dsn)
        pod = life.pod(f"pod-{new_id()}", job_type)
        claim = life.claim(pod, job_type)
        if has_step:
            life.step(pod, claim, 1, "fetch")
        life.finish(pod, claim, result=result)


def until_alone(database: str, web: str) -> None:
    login = name_of(web)
    eventually(lambda: sql(database, SESSIONS, login)[0][0] == 0, what="no session of the client")


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_the_end_of_a_job_wakes_its_waiter(
    web: str, life: Life, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LISTENING", NEVER)  # only the notification is left
    life.type()

    async def main() -> dict[str, int]:
        async with await Client.connect(web) as client:
            handle = await client.submit(digest, urls=[])
            ends = threading.Thread(target=end, args=[handle.id])
            ends.start()
            assert_type(handle, Handle[dict[str, int]])
            result = await handle.result(timeout=30)
            ends.join()
            return result

    def end(job_id: UUID) -> None:
        until_waits(life.dsn, job_id)
        completed(life.dsn)

    run: Callable[..., Any] = trio.run if library == "trio" else run_asyncio
    assert run(main) == {"a.txt": 3}


def test_an_end_that_was_not_notified_is_found_soon(
    web: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unheard(*_: object, **__: object) -> None: ...

    monkeypatch.setattr(clients, "wait", unheard)
    with SyncClient(web) as client:
        handle = client.submit(digest, urls=[])
        timer = threading.Timer(0.1, lambda: sql(database, END, handle.id))
        timer.start()
        with pytest.raises(JobCancelledError) as caught:
            handle.result(timeout=30)
        timer.join()
    assert (caught.value.by, caught.value.reason) == ("ana", "why")


def test_failures_name_the_job_and_the_way_out(web: str, life: Life) -> None:
    life.type()
    with SyncClient(web) as client:
        handle = client.submit(digest, urls=[])
        pod = life.pod()
        life.finish(pod, life.claim(pod), error="no such page")
        with pytest.raises(JobFailedError) as caught:
            handle.result(timeout=10)
        assert caught.value.message == f"job {handle.id} failed with job_failed: no such page"
        assert caught.value.job_id == handle.id
        for absent in (client.handle(new_id()), client.handle(submit(life.dsn, "digest"))):
            for read in (absent.result, lambda: list(absent.events(5))):  # noqa: B023
                with pytest.raises(NotFoundError, match=f"job {absent.id} does not exist") as no:
                    read()
                assert "retention deleted it" in str(no.value.hint)
        waits = client.submit(digest, urls=[])
        with pytest.raises(TimedOutError, match=f"job {waits.id} has not ended within 0 s"):
            waits.result(timeout=0)
        with pytest.raises(TimedOutError, match=f"job {waits.id} has not ended within"):
            list(waits.events(timeout=0.01))
        for wrong in (-1, float("nan"), float("inf"), "1"):
            with pytest.raises(UsageError, match="timeout"):
                waits.result(timeout=wrong)  # type: ignore[arg-type]


def test_a_retention_deleted_job_is_named(shared: SyncClient, database: str) -> None:
    handle = shared.submit(digest, urls=[])
    sql(database, "TRUNCATE cortex.job_record CASCADE")
    with pytest.raises(NotFoundError, match=str(handle.id)):
        handle.result(timeout=10)


def test_events_come_in_order_to_the_end(web: str, life: Life) -> None:
    life.type()

    async def main() -> list[Any]:
        async with await Client.connect(web) as client:
            handle = await client.submit(digest, urls=[])
            await asyncio.to_thread(completed, life.dsn, has_step=True)
            found = [event async for event in handle.events(timeout=30)]
            broken_off = handle.events()
            await anext(broken_off)
            late = handle.events(timeout=0)  # it is read once, whatever the timeout
            assert [await anext(late) for _ in found] == found
            waiting = (await client.submit(digest, urls=[])).events(timeout=0)
            await anext(waiting)
            with pytest.raises(TimedOutError, match="within 0 s"):
                await anext(waiting)
            return found

    found = run_asyncio(main)
    assert [each.kind for each in found] == [
        *[EventKind.MOVED] * 2,
        EventKind.STEP,
        EventKind.MOVED,
    ]
    assert found[2].data["key"] == "fetch"
    assert found[-1].is_ending


def test_a_thousand_waits_take_one_connection(web: str, database: str) -> None:
    async def main() -> None:
        async with await Client.connect(web, connections=1) as client:
            handles = await client.submit_many(digest, [{"urls": []}] * 1000)
            waits = [asyncio.ensure_future(each.result(60)) for each in handles]
            ids = [each.id for each in handles]
            await asyncio.to_thread(until_waits, database, *ids)
            assert sql(database, SESSIONS, name_of(web))[0][0] == 2
            for each in waits:
                each.cancel()
            await asyncio.wait(waits)

    run_asyncio(main)
    until_alone(database, web)


def test_cancelled_calls_leave_no_connection(web: str, database: str) -> None:
    async def in_asyncio() -> None:
        client = await Client.connect(web)
        handle = await client.submit(digest, urls=[])
        for _ in range(3):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await handle.result(60)
        await client.close()
        for patience_s in (0.0, 0.001, 0.01, 0.2):
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    async with await Client.connect(web) as client:
                        await client.handle(handle.id).result(60)

    async def in_trio() -> None:
        client = await Client.connect(web)
        handle = await client.submit(digest, urls=[])
        with trio.move_on_after(0.05) as scope:
            await handle.result(60)
        assert scope.cancelled_caught
        with trio.CancelScope() as never:
            never.cancel(reason="test")
            await client.submit(digest, urls=[])
        await client.close()
        with trio.move_on_after(0.2) as scope:
            async with await Client.connect(web) as client:
                await client.handle(handle.id).result(60)
        assert scope.cancelled_caught
        for patience_s in (0.0, 0.001, 0.01):
            with trio.move_on_after(patience_s):
                async with await Client.connect(web):
                    await trio.sleep_forever()

    run_asyncio(in_asyncio)
    trio.run(in_trio)
    until_alone(database, web)


def test_waits_survive_a_restart_of_the_database(private_postgres: PrivatePostgres) -> None:
    dsn = private_postgres.dsn
    run_asyncio(lambda: migrate(dsn))
    with SyncClient(dsn) as client:
        handle = client.submit("digest", urls=[])
        results: list[object] = []

        def wait() -> None:
            with suppress(JobCancelledError):
                results.append(handle.result(timeout=60))
            results.append("cancelled")

        waiter = threading.Thread(target=wait)
        events = threading.Thread(target=lambda: results.append(len(list(handle.events(60)))))
        waiter.start()
        events.start()
        until_waits(dsn, handle.id)
        private_postgres.kill()
        private_postgres.start()
        sql(dsn, END, handle.id)
        waiter.join(60)
        events.join(60)
        assert sorted(results, key=str) == [2, "cancelled"]
        assert client.submit("digest", urls=[]).id != handle.id
        private_postgres.stop_immediate()
        with pytest.raises(UnavailableError, match="could not be looked at"):
            handle.result(timeout=0.2)


def test_a_submitter_behind_a_pooler_submits_and_waits(
    web: str, database: str, server_home: Path
) -> None:
    with pgbouncer(database, server_home, user=name_of(web)) as pooler:
        with SyncClient(pooler.dsn) as client:
            handle = client.submit(digest, urls=[])
            theirs = client.handle(submit(database, "digest"))
            timer = threading.Timer(0.1, lambda: sql(database, END, handle.id))
            timer.start()
            with pytest.raises(JobCancelledError):
                handle.result(timeout=30)
            timer.join()
            assert [each.kind for each in handle.events(10)] == [EventKind.MOVED] * 2
            with pytest.raises(NotFoundError):
                theirs.result(timeout=10)
            with pytest.raises(ForbiddenError, match="but not cancel jobs"):
                handle.cancel("no need")
            assert (
                client.submit(digest, urls=[], key="k").id
                == client.submit(digest, urls=[], key="k").id
            )
    assert sql(database, WAITING) == []


def test_closing_a_client_ends_its_waits(web: str) -> None:
    async def main() -> None:
        client = await Client.connect(web)
        handle = await client.submit(digest, urls=[])
        waits = asyncio.ensure_future(handle.result(60))
        follows = asyncio.ensure_future(anext(handle.events(60)))
        await follows
        await asyncio_turn()
        await client.close()
        with pytest.raises(UnavailableError, match="closed"):
            await waits
        await client.close()  # again: nothing is left to close
        for late in (handle.result(1), client.submit(digest, urls=[])):
            with pytest.raises(UsageError, match="this client is closed"):
                await late

    run_asyncio(main)


def test_closing_a_client_cuts_the_calls_of_other_threads(web: str, database: str) -> None:
    client = SyncClient(web)
    client.submit(digest, urls=[])
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        async def main() -> None:
            connection = await asyncpg.connect(database)
            async with connection.transaction():
                await connection.execute("LOCK TABLE cortex.job_record IN EXCLUSIVE MODE")
                locked.set()
                await asyncio.to_thread(done.wait)
            await connection.close()

        run_asyncio(main)

    with ThreadPoolExecutor() as pool:
        holding = pool.submit(hold)
        locked.wait()
        submitting = pool.submit(client.submit, digest, urls=[])
        blocked = "SELECT FROM pg_locks WHERE NOT granted"
        eventually(lambda: sql(database, blocked), what="the submit waits")
        client.close()
        client.close()
        with pytest.raises(UnavailableError, match="closed during the call"):
            submitting.result()
        done.set()
        holding.result()
    until_alone(database, web)


def test_a_call_under_way_ends_although_its_client_was_closed(web: str, database: str) -> None:
    async def main() -> None:
        client = await Client.connect(web)
        submitting = asyncio.ensure_future(client.submit(digest, urls=[]))
        await asyncio_turn()
        await client.close()
        await submitting
        until_alone(database, web)

    run_asyncio(main)


def test_an_unfit_result_is_named_with_its_text(shared: SyncClient, life: Life) -> None:
    life.type()
    handle = shared.submit(digest, urls=[])
    completed(life.dsn, '["no", "mapping"]')
    assert shared.handle(handle.id).result(timeout=10) == ["no", "mapping"]
    with pytest.raises(InvalidOutputError, match=f"the result of job {handle.id}"):
        handle.result(timeout=10)
    summary = shared.submit(summarise, summary=Summary(3, "x"))
    completed(life.dsn, '{"words": 4, "title": "y"}', job_type="summarise")
    assert summary.result(timeout=10) == Summary(4, "y")


# --- Connecting.


def refusal(dsn: str) -> CortexError:
    with pytest.raises(CortexError) as caught:
        SyncClient(dsn).close()
    assert "\n" not in caught.value.message
    return caught.value


def test_connecting_names_what_is_wrong(database: str, empty_database: str) -> None:
    with login_with(database) as nobody:
        error = refusal(nobody)
        assert isinstance(error, ForbiddenError)
        assert f"login '{name_of(nobody)}' may not submit jobs in database" in error.message
        assert f"GRANT cortex_submitter TO {name_of(nobody)}" in str(error.hint)
    error = refusal(empty_database)
    assert isinstance(error, SchemaError)
    assert "has no cortex schema" in error.message
    assert isinstance(refusal("mysql://x"), UsageError)
    assert isinstance(refusal("postgresql://postgres@127.0.0.1:9/x"), UnavailableError)
    with pytest.raises(UsageError, match="connections 0 is not a number from 1 to 100"):
        SyncClient(database, connections=0)


@pytest.mark.parametrize(
    "change, message",
    [
        ("INSERT INTO cortex.migration VALUES (999, 'later', '')", "is at version 999"),
        ("DELETE FROM cortex.migration WHERE version > 20", "is at version 20, this code needs"),
    ],
)
def test_a_database_of_another_version_is_refused(
    web: str, database: str, change: str, message: str
) -> None:
    sql(database, change)
    error = refusal(web)
    assert isinstance(error, SchemaError)
    assert message in error.message


# --- What needs more rights.


def test_people_act_through_a_client_with_the_rights_of_pods(life: Life) -> None:
    life.type()
    with login_with(life.dsn, RUNTIME_ROLE) as admin, SyncClient(admin) as client:
        failed, waits = life.failed(), client.submit(digest, urls=[])
        listed = client.jobs.list(filter="status:failed")
        assert [each.id for each in listed] == [failed]
        assert len(client.jobs.list(limit=1, before=waits.id)) == 1
        (letter,) = client.dead.list()
        assert letter.job_id == failed
        (again,) = client.dead.retry(failed, reason="mended", by="ana")
        assert again.id != failed
        with pytest.raises(ConflictError):
            client.dead.retry(failed)
        assert waits.cancel("no need", by="ana").after == "CANCELLED"
        with pytest.raises(JobCancelledError, match="cancelled by ana: no need"):
            waits.result(timeout=10)
        with pytest.raises(UsageError, match="wat"):
            client.jobs.list(filter="wat:x")


def test_people_decide_approvals_through_a_client(life: Life) -> None:
    askers = Askers(life.call, life.dsn)
    ids = [askers.asked().id, askers.asked().id]
    with SyncClient(life.dsn) as client:
        first, second = client.approvals.list()
        assert {first.id, second.id} == set(ids)
        assert client.approvals.approve(first, by="ana").outcome == "approved"
        assert client.approvals.deny(second.id, by="bob", reason="no").outcome == "denied"
        with pytest.raises(ConflictError):
            client.approvals.approve(first, by="bob")
        assert client.approvals.list() == []


def test_an_application_decides_with_the_token_of_a_person(life: Life) -> None:
    request = Askers(life.call, life.dsn).asked()
    token = token_text(new_id().bytes + new_id().bytes)
    life.call(
        tokens.create,
        token_id=new_id(),
        name="ana",
        digest=digest_of_token(token) or b"",
        roles=[Role.APPROVER],
        expires_s=None,
        by=user("admin"),
    )
    with login_with(life.dsn, "cortex_runtime") as pods, SyncClient(pods) as client:
        with pytest.raises(ForbiddenError, match="may not act for a person"):
            client.approvals.approve(request.id)
        with pytest.raises(UsageError, match="this token is not valid"):
            client.approvals.approve(request.id, token=token_text(bytes(32)))
        client.approvals.approve(request.id, token=token, by="night shift")
    decided = life.call(approvals.show, request.id)
    assert decided.decided_by == "ana (night shift)"


def test_a_submitter_is_refused_with_the_grant_that_it_lacks(shared: SyncClient) -> None:
    handle = shared.submit(digest, urls=[])
    for act in (
        lambda: handle.cancel("why"),
        shared.jobs.list,
        shared.approvals.list,
        lambda: shared.approvals.approve("7f3a", by="ana"),
        shared.dead.list,
        lambda: shared.dead.retry(handle.id),
    ):
        with pytest.raises(ForbiddenError) as caught:
            act()
        assert "GRANT cortex_runtime TO login_" in str(caught.value.hint)


def test_limits_of_one_client_are_named(
    shared: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "WAITS_MAX", 0)
    monkeypatch.setattr(following, "FOLLOWERS_MAX", 0)
    handle = shared.submit(digest, urls=[])
    with pytest.raises(UnavailableError, match="0 waits for jobs already"):
        handle.result(1)
    with pytest.raises(UnavailableError, match="0 followers of jobs already"):
        next(handle.events(1))
