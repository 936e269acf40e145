"""Tests get databases that others have used: as good as new, or not at all."""

from collections.abc import Iterator

import pytest

from tests.support.records.rows import move_clock, submit
from tests.support.servers.postgres import SharedPostgres, sql

TABLES = """
    SELECT oid::regclass::text AS name FROM pg_class
    WHERE relkind = 'r' AND relnamespace::regnamespace::text ^@ 'cortex'
"""
SEQUENCES = "SELECT sequencename::text AS name, last_value FROM pg_sequences ORDER BY 1"
DEFINED = "SELECT pg_get_functiondef('cortex.now'::regproc) AS text"
CHANGES = [
    "ALTER TABLE cortex.job_record ALTER payload SET STATISTICS 7",
    "CREATE TABLE public.mine (id int)",
    "DROP INDEX cortex.effect_tool",
    "GRANT SELECT ON cortex.pod TO public",
    "REVOKE EXECUTE ON FUNCTION cortex.now FROM public",
    "ALTER TABLE cortex.pod DISABLE TRIGGER USER",
    "ANALYZE cortex.job_type",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET jit = on', current_database()); END $$",
]


@pytest.fixture
def lent(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A database as the fixture `database` gets it, to be given back by the test."""
    dsn = shared_postgres.lend()
    yield dsn
    shared_postgres.drop(dsn)


@pytest.fixture
def unused(shared_postgres: SharedPostgres) -> Iterator[str]:
    """A fresh database."""
    dsn = shared_postgres.create_migrated()
    yield dsn
    shared_postgres.drop(dsn)


def content(dsn: str) -> dict[str, object]:
    """All rows of all tables, and the sequences."""
    rows: dict[str, object] = {"sequences": sql(dsn, SEQUENCES)}
    for table in sql(dsn, TABLES):
        name = table["name"]
        rows[name] = sql(dsn, f"SELECT t::text AS row FROM {name} t ORDER BY 1")  # noqa: S608
    return rows


def test_restored_database_has_the_rows_and_sequences_of_a_new_one(
    shared_postgres: SharedPostgres, lent: str, unused: str
) -> None:
    submit(lent, "work")
    sql(lent, "UPDATE cortex.schedule SET problem = 'changed'")
    sql(lent, "SELECT nextval('cortex.breaker_version')")
    assert content(lent) != content(unused)
    assert shared_postgres.restore(lent)
    assert content(lent) == content(unused)


def test_restored_database_has_the_clock_of_a_new_one(
    shared_postgres: SharedPostgres, lent: str, unused: str
) -> None:
    for _ in range(2):
        move_clock(lent, 60.0)
        assert sql(lent, DEFINED) != sql(unused, DEFINED)
        assert shared_postgres.restore(lent)
        assert sql(lent, DEFINED) == sql(unused, DEFINED)


@pytest.mark.parametrize("change", CHANGES)
def test_database_with_other_changes_is_not_reused(
    shared_postgres: SharedPostgres, lent: str, change: str
) -> None:
    sql(lent, change)
    assert not shared_postgres.restore(lent)
