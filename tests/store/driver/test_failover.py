"""Several servers, one of which takes writes: it is found, at first and after a failover."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cortex.domain.errors import OutcomeUnknownError, UnavailableError
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.dedicated import Dedicated
from cortex.store import pods
from tests.support.eventually import eventually
from tests.support.records.factories import VITALS, a_pod
from tests.support.records.rows import seeded_random
from tests.support.servers.postgres import migrate, run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres
from tests.support.servers.standby import Standby, both, standby_of

BOUND_S = 4.0


@pytest.fixture
def standby(private_postgres: PrivatePostgres, run_dir: Path, bindir: Path) -> Iterator[Standby]:
    migrate(private_postgres.dsn)
    with standby_of(private_postgres, run_dir, bindir) as running:
        yield running


def on_database(dsn: str, work: Callable[[Database], Awaitable[Any]], **profile: Any) -> Any:
    async def main() -> Any:
        known = Profile(dsn=dsn, hot_path=True, bound_s=BOUND_S, **profile)
        db = await open_database(known, rng=seeded_random())
        try:
            return await work(db)
        finally:
            await db.close()

    return run_asyncio(main)


async def write(db: Database) -> None:
    await pods.register(db, a_pod())


async def is_refused(db: Database) -> None:
    with pytest.raises(UnavailableError) as caught:
        await write(db)
    assert type(caught.value) is not OutcomeUnknownError
    assert "does not take writes" in caught.value.message


def turn_read_only(server: PrivatePostgres) -> None:
    """Demote a server, as an orchestrator does with a lost primary."""
    sql(server.dsn, "ALTER SYSTEM SET default_transaction_read_only = on")
    sql(server.dsn, "SELECT pg_reload_conf()")
    # A new session has it as soon as all others have been notified, and not before.
    eventually(
        lambda: sql(server.dsn, "SHOW default_transaction_read_only")[0][0] == "on",
        what="the server takes no writes",
    )


def test_primary_is_found_before_and_after_a_failover(
    private_postgres: PrivatePostgres, standby: Standby
) -> None:
    dsn = both(standby, private_postgres)

    async def work(db: Database) -> None:
        await asyncio.gather(*(write(db) for _ in range(4)))
        session = Dedicated(db.profile, on_lost=lambda: None)
        await session.open()
        try:
            await work_with(db, session)
        finally:
            await session.close()

    async def work_with(db: Database, session: Dedicated) -> None:
        await asyncio.to_thread(standby.promote)
        await asyncio.to_thread(turn_read_only, private_postgres)
        await is_refused(db)
        for _ in range(8):  # none of the other connections was kept
            await write(db)
        with pytest.raises(UnavailableError, match="does not take writes"):
            await pods.beat(session, pod_id=a_pod().id, leases=[], vitals=VITALS)
        assert not session.is_open
        await session.open()
        await pods.beat(session, pod_id=a_pod().id, leases=[], vitals=VITALS)

    async def read(db: Database) -> None:
        assert await pods.page(db) == []
        await is_refused(db)
        await is_refused(db)
        assert await pods.page(db) == []

    on_database(standby.dsn, read)  # a single server is taken as it is: to look is better than not
    with pytest.raises(UnavailableError, match=r"no server at .* takes writes"):
        on_database(both(standby, standby), write)
    on_database(dsn, work)
    private_postgres.stop()
    on_database(dsn, write)
    assert len(sql(standby.dsn, "TABLE cortex.pod")) == 4 + 8 + 1
