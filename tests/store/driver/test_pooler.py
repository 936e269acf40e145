"""Behind a pooler: known for certain, everything works, and nothing is left in a lent session."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from cortex.domain.drain import Liveness
from cortex.domain.errors import RejectedError, SchemaError, UnavailableError
from cortex.postgres import migrate
from cortex.postgres.database import (
    HOT_PATH_SETTINGS,
    SESSION_SETTINGS,
    Database,
    Profile,
    open_database,
)
from cortex.postgres.dedicated import Dedicated
from cortex.store import jobs, pods, why
from tests.support.eventually import WITHIN_S, eventually
from tests.support.records.factories import a_pod, a_submission
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.pgbouncer import PgBouncer, pgbouncer
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres

SENT = ",".join([*SESSION_SETTINGS, *HOT_PATH_SETTINGS, "role", "cortex.session"])
"""All that a pod sends at its start-up."""

ADVISORY_LOCKS = """
    SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
    WHERE locktype = 'advisory' AND d.datname = current_database()
"""


@pytest.fixture
def pooler(database: str, server_home: Path) -> Iterator[PgBouncer]:
    """Two sessions, shared by all clients."""
    with pgbouncer(database, server_home, sessions=2) as running:
        yield running


def on_database(profile: Profile, work: Callable[[Database], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        db = await open_database(profile, rng=seeded_random())
        try:
            return await work(db)
        finally:
            await db.close()

    return run_asyncio(main)


async def is_pooled(db: Database) -> bool | None:
    assert await db.fetch("pods.live_types") == []
    return db.profile.is_pooled


def in_the_sessions(dsn: str, query: str) -> list[str]:
    """Settings found in the pooler's two server sessions, read at the same time."""

    async def look(met: asyncio.Barrier) -> list[str]:
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
        try:
            async with connection.transaction():
                await asyncio.wait_for(met.wait(), WITHIN_S)
                return [str(row[0]) for row in await connection.fetch(query)]
        finally:
            await connection.close()

    async def main() -> list[str]:
        met = asyncio.Barrier(2)
        return [each for found in await asyncio.gather(look(met), look(met)) for each in found]

    return run_asyncio(main)


@pytest.mark.parametrize("hot_path", [False, True])
def test_postgres_itself_is_no_pooler(database: str, hot_path: bool) -> None:
    assert on_database(Profile(dsn=database, hot_path=hot_path), is_pooled) is False


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("ignored", ["", SENT], ids=["refuses settings", "drops settings"])
def test_pooler_is_detected_whatever_it_does_with_settings(
    database: str, server_home: Path, mode: str, ignored: str
) -> None:
    with pgbouncer(database, server_home, mode=mode, ignored=ignored) as pooler:
        assert on_database(Profile(dsn=pooler.dsn, hot_path=True), is_pooled) is True


def test_each_transaction_has_the_settings_of_a_session_and_leaves_none(
    database: str, pooler: PgBouncer
) -> None:
    profile = Profile(dsn=pooler.dsn, hot_path=True)
    local = [name for name in profile.settings if not name.startswith("tcp_")]

    async def shown(connection: Any) -> dict[str, str]:
        query = "SELECT name, current_setting(name) AS now FROM unnest($1::text[]) AS name"
        return {row["name"]: row["now"] for row in await connection.fetch(query, local)}

    async def work(db: Database) -> None:
        expected = {name: profile.settings[name] for name in local}
        assert await db.transact(shown) == expected
        (id_,) = [new_id()]
        await jobs.submit(db, [a_submission(id=id_)])
        assert (await jobs.show(db, id_)).type == "work"  # asyncpg looks types up for this

    on_database(profile, work)
    changed = "SELECT name || '=' || setting FROM pg_settings WHERE source = 'session'"
    brought = ("application_name", "TimeZone", "client_encoding", "DateStyle")
    left = [each for each in in_the_sessions(pooler.dsn, changed) if not each.startswith(brought)]
    assert left == []
    assert in_the_sessions(pooler.dsn, "SELECT current_user") == ["postgres"] * 2
    assert in_the_sessions(pooler.dsn, "SELECT name FROM pg_prepared_statements") == []
    assert not sql(database, ADVISORY_LOCKS)


def test_callers_behind_a_pooler_share_no_prepared_statements(pooler: PgBouncer) -> None:
    async def work(db: Database) -> None:
        async def call(n: int) -> None:
            for _ in range(5):
                await jobs.submit(db, [a_submission(id=new_id())])
                await pods.page(db, ended=n)
                await db.fetch("pods.live_types")

        await asyncio.gather(*(call(n) for n in range(12)))

    on_database(Profile(dsn=pooler.dsn, hot_path=True, connections_max=12), work)
    assert "prepared statement" not in pooler.log


def test_an_error_in_one_statement_of_a_transaction_harms_no_other(pooler: PgBouncer) -> None:
    async def work(db: Database) -> None:
        async def both(connection: Any) -> int:
            inside = db.bound(connection)
            with pytest.raises(RejectedError):
                await jobs.submit(inside, [a_submission(type="")])
            return len((await jobs.submit(inside, [a_submission(id=new_id())])).new)

        assert await db.transact(both) == 1

    on_database(Profile(dsn=pooler.dsn), work)


def test_held_lock_behind_a_pooler_lasts_until_the_end(database: str, pooler: PgBouncer) -> None:
    job_id = new_id()

    async def work(db: Database) -> None:
        (first,) = await db.hold("timeouts.lock_resume", job_id)
        assert first["is_held"]

        async def other(direct: Database) -> None:
            (second,) = await direct.hold("timeouts.lock_resume", job_id)
            assert not second["is_held"]

        await asyncio.to_thread(on_database, Profile(dsn=database), other)

    on_database(Profile(dsn=pooler.dsn), work)
    eventually(lambda: not sql(database, ADVISORY_LOCKS), what="the lock is free")


def test_dedicated_connection_behind_a_pooler_refuses_to_listen(
    pooler: PgBouncer,
) -> None:
    async def main() -> None:
        session = Dedicated(Profile(dsn=pooler.dsn, is_pooled=True), on_lost=lambda: None)
        await session.open()
        try:
            assert await session.fetch("pods.live_types") == []
            with pytest.raises(UnavailableError, match="no notifications"):
                await session.listen("cortex_task", lambda _: None)
            assert session.is_open
        finally:
            await session.close()

    run_asyncio(main)


def test_pooler_that_appears_later_is_reported(pooler: PgBouncer) -> None:
    with pytest.raises(UnavailableError, match="a pooler has come between"):
        run_asyncio(Profile(dsn=pooler.dsn, is_pooled=False).connect)


def test_migration_works_through_a_pooler(empty_database: str, server_home: Path) -> None:
    with pgbouncer(empty_database, server_home) as pooler:
        with pytest.raises(SchemaError):
            on_database(Profile(dsn=pooler.dsn), is_pooled)
        assert run_asyncio(lambda: migrate.migrate(pooler.dsn))
        run_asyncio(lambda: migrate.check(pooler.dsn))
        assert on_database(Profile(dsn=pooler.dsn), is_pooled) is True


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_server_restart_behind_a_pooler_is_an_outage(
    private_postgres: PrivatePostgres, server_home: Path, how: str
) -> None:
    async def call(db: Database) -> bool:
        try:
            await db.transact(lambda connection: connection.fetch("SELECT 1"))
        except UnavailableError:
            return False
        return True

    async def work(db: Database) -> None:
        assert await call(db)
        await asyncio.to_thread(getattr(private_postgres, how))
        assert not await call(db)
        await asyncio.to_thread(private_postgres.start)
        async with asyncio.timeout(WITHIN_S):
            while not await call(db):
                pass

    with pgbouncer(private_postgres.dsn, server_home) as pooler:
        on_database(Profile(dsn=pooler.dsn, role=None, bound_s=2.0), work)


def test_a_pod_that_can_hold_no_lock_is_not_dead_without_one(database: str) -> None:
    locked, silent = a_pod(), a_pod(liveness=Liveness.HEARTBEAT)

    async def work(db: Database) -> None:
        for pod in (locked, silent):
            await pods.register(db, pod)
        suspects = await pods.without_lock(db, caller=new_id(), settle_s=0)
        assert [suspect.id for suspect in suspects] == [locked.id]
        (job_id,) = (await jobs.submit(db, [a_submission(type=silent.job_types[0])])).new
        assert (await why.facts_of(db, job_id)).fleet.ready_count == 1

    on_database(Profile(dsn=database), work)
