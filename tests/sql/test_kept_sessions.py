"""Sessions of the store that tests keep: each test gets one that is as good as new."""

from collections.abc import Iterator

import pytest

from cortex.postgres.database import Database, Profile
from tests.support.records.rows import submit
from tests.support.servers.kept_sessions import kept_session
from tests.support.servers.postgres import SharedPostgres, sql

END = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
def lent(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A database as the fixture `database` gets it."""
    dsn = shared_postgres.lend()
    yield dsn
    shared_postgres.drop(dsn)


def run(dsn: str, query: str) -> int:
    """Run a statement in a session of the store; return the session's process."""

    async def work(db: Database) -> int:
        async def once(connection: object) -> int:
            await connection.execute(query)  # type: ignore[attr-defined]
            pid: int = connection.get_server_pid()  # type: ignore[attr-defined]
            return pid

        return await db._bounded(once)

    with kept_session(Profile(dsn=dsn)) as call:
        return call(work)


def test_session_is_kept_for_the_next_test(shared_postgres: SharedPostgres, lent: str) -> None:
    before = run(lent, "SELECT 1")
    submit(lent, "work")
    assert shared_postgres.restore(lent)
    assert run(lent, "SELECT 1") == before


def test_session_in_use_is_not_lent_again(lent: str) -> None:
    with kept_session(Profile(dsn=lent)) as one, kept_session(Profile(dsn=lent)) as other:
        assert one is not other


def test_ended_session_is_replaced(lent: str) -> None:
    before = run(lent, "SELECT 1")
    sql(lent, END)
    assert run(lent, "SELECT 1") != before


@pytest.mark.parametrize("left", ["BEGIN", "SELECT pg_advisory_lock(7)"])
def test_session_that_keeps_something_is_not_kept(
    shared_postgres: SharedPostgres, lent: str, left: str
) -> None:
    before = run(lent, left)
    assert shared_postgres.restore(lent)
    assert run(lent, "SELECT 1") != before
