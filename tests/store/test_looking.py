"""Read-only clients: the database refuses their writes, by role or by session setting."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cortex.domain.errors import CortexError
from cortex.postgres.database import (
    READER_ROLE,
    Connection,
    Database,
    Profile,
    open_database,
)
from cortex.postgres.session import read_only_profile
from cortex.store import jobs, screen_head
from tests.support.records.factories import a_submission
from tests.support.records.rows import new_id, seeded_random
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.postgres import migrate, run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres

BY_ROLE = "permission denied"
BY_SETTING = "read-only transaction"


@pytest.fixture
def plain(database: str) -> Iterator[str]:
    """The address of a login with the rights of pods that cannot change its role."""
    yield from _plain(database)


def _plain(dsn: str) -> Iterator[str]:
    name = f"plain_{new_id().hex[:12]}"
    sql(dsn, f"CREATE ROLE {name} LOGIN")
    sql(dsn, f"GRANT cortex_runtime TO {name}")
    yield dsn.replace("//postgres@", f"//{name}@")
    sql(dsn, f"DROP ROLE {name}")


def looking(dsn: str, work: Callable[[Database], Awaitable[Any]]) -> Profile:
    """Run work as a read-only client; return its profile."""

    async def main() -> Profile:
        profile = await read_only_profile(Profile(dsn=dsn))
        db = await open_database(profile, rng=seeded_random())
        try:
            await work(db)
        finally:
            await db.close()  # noqa: ASYNC102 -- bounded
        return profile

    return run_asyncio(main)


async def look_and_try(db: Database, refused: str) -> None:
    """Read the screens' data, and fail to change any."""
    assert (await screen_head.head(db)).pods_living == 0
    assert not db.profile.may_write
    with pytest.raises(CortexError, match=refused):
        await jobs.submit(db, [a_submission()])
    assert (await screen_head.head(db)).jobs_about == 0


def test_a_login_that_may_become_the_reader_does(database: str) -> None:
    profile = looking(database, lambda db: look_and_try(db, BY_ROLE))
    assert (profile.role, profile.is_read_only) == (READER_ROLE, False)


def test_login_without_the_role_gets_read_only_sessions(plain: str) -> None:
    profile = looking(plain, lambda db: look_and_try(db, BY_SETTING))
    assert profile.role != READER_ROLE
    assert profile.is_read_only


def test_a_grant_to_become_the_reader_is_enough(plain: str, database: str) -> None:
    name = plain.partition("//")[2].partition("@")[0]
    sql(database, f"REVOKE cortex_runtime FROM {name}")
    sql(database, f"GRANT {READER_ROLE} TO {name}")

    async def look_and_go_back(db: Database) -> None:
        await look_and_try(db, BY_ROLE)
        with pytest.raises(CortexError, match=BY_ROLE):
            await db.transact(go_back)

    async def go_back(connection: Connection) -> None:
        await connection.execute("SET LOCAL ROLE NONE")
        await connection.execute("DELETE FROM cortex.job_record")

    profile = looking(plain, look_and_go_back)
    assert profile.role == READER_ROLE, "and for good: this login may do nothing else"


@pytest.mark.usefixtures("database")
def test_a_reader_of_another_database_is_none_here(empty_database: str) -> None:
    """Roles belong to the server: here it was granted nothing."""

    async def nothing(_: Database) -> None:
        return

    sql(empty_database, "CREATE SCHEMA cortex")
    assert looking(empty_database, nothing).is_read_only


def test_reader_is_refused_behind_a_pooler_too(database: str, server_home: Path) -> None:
    with pgbouncer(database, server_home) as pooler:
        looking(pooler.dsn, lambda db: look_and_try(db, BY_ROLE))


def test_behind_a_pooler_a_setting_holds_in_each_transaction(
    database: str, server_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pooler has one login for all: here there is an unknown reader's role."""
    monkeypatch.setattr("cortex.postgres.session.READER_ROLE", "nobody_at_all")
    with pgbouncer(database, server_home) as pooler:
        profile = looking(pooler.dsn, lambda db: look_and_try(db, BY_SETTING))
    assert profile.is_read_only


def test_primary_among_several_hosts_stays_read_only(plain: str) -> None:
    address, _, options = plain.partition("?")
    host = dict(each.split("=") for each in options.split("&"))["host"]
    port = dict(each.split("=") for each in options.split("&"))["port"]
    several = f"{address}?host={host},{host}&port={port},{port}"
    profile = looking(several, lambda db: look_and_try(db, BY_SETTING))
    assert profile.is_read_only


@pytest.mark.postgres_versions
def test_reader_is_refused_on_each_server_version(private_postgres: PrivatePostgres) -> None:
    """Before 16 a member may become what it is a member of; since then that is granted apart."""
    migrate(private_postgres.dsn)
    looking(private_postgres.dsn, lambda db: look_and_try(db, BY_ROLE))
    for plain in _plain(private_postgres.dsn):
        looking(plain, lambda db: look_and_try(db, BY_SETTING))
