"""Migrations: applied once whoever comes together, and refused when they do not fit."""

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.errors import (
    CortexError,
    ForbiddenError,
    NotFoundError,
    SchemaError,
    UnavailableError,
)
from cortex.postgres.database import Profile
from cortex.postgres.migrate import Migration, check, migrate, migrations
from cortex.postgres.queries import sql as query
from cortex.postgres.session import open_session
from cortex.store import dead_letters
from cortex.store.dead_letters import Resubmission
from tests.support.letters import letter
from tests.support.postgres import run_asyncio, sql
from tests.support.private_postgres import PrivatePostgres
from tests.support.rows import new_id

PROCESSES = 10
PROGRAM = """
import asyncio, sys
from cortex.postgres.migrate import migrate
print(len(asyncio.run(migrate(sys.argv[1]))))
"""


def applied(dsn: str) -> list[tuple[int, str]]:
    rows = sql(dsn, "SELECT version, name FROM cortex.migration ORDER BY version")
    return [(row["version"], row["name"]) for row in rows]


def refusal(call: Coroutine[Any, Any, object]) -> CortexError:
    with pytest.raises(CortexError) as caught:
        run_asyncio(lambda: call)
    return caught.value


def extra(text: str, *, version: int | None = None) -> list[Migration]:
    """The known migrations and one more."""
    known = migrations()
    return [*known, Migration(version=version or len(known) + 1, name="extra", text=text)]


def test_ten_processes_at_once_apply_each_migration_once(empty_database: str) -> None:
    command = [sys.executable, "-c", PROGRAM, empty_database]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    ended = [process.communicate(timeout=50) for process in started]
    assert [process.returncode for process in started] == [0] * PROCESSES, ended
    counts = sorted(int(out) for out, _ in ended)
    assert counts == [0] * (PROCESSES - 1) + [len(migrations())]
    assert [version for version, _ in applied(empty_database)] == [
        migration.version for migration in migrations()
    ]


def test_databases_of_one_new_server_can_be_migrated_at_once(
    private_postgres: PrivatePostgres,
) -> None:
    """The role belongs to the whole server: all of them want to make it."""
    names = [f"db{number}" for number in range(6)]
    for name in names:
        sql(private_postgres.dsn, f"CREATE DATABASE {name}")
    addresses = [private_postgres.dsn.replace("/cortex?", f"/{name}?") for name in names]

    async def all_at_once() -> list[Any]:
        return await asyncio.gather(*map(migrate, addresses), return_exceptions=True)

    outcomes = run_asyncio(all_at_once)
    assert [outcome for outcome in outcomes if isinstance(outcome, BaseException)] == []
    for address in addresses:
        run_asyncio(partial(check, address))


def test_again_is_nothing_to_do(database: str) -> None:
    assert run_asyncio(lambda: migrate(database)) == []
    run_asyncio(lambda: check(database))


def test_with_nothing_to_do_nobody_is_waited_for(database: str) -> None:
    """Another pod was stopped in the midst of its migration: that must not keep pods from work."""

    async def beside_another() -> list[Migration]:
        other = await Profile(dsn=database, role=None).connect()
        try:
            async with other.transaction():
                await other.execute(query("migrations.lock"))
                return await asyncio.wait_for(migrate(database), 30)
        finally:
            other.terminate()

    assert run_asyncio(beside_another) == []


def test_a_new_migration_is_applied_to_a_database_with_rows(database: str) -> None:
    sql(database, "SELECT cortex.submit_job('work')")
    wanted = extra("CREATE TABLE cortex.extra (n int)")
    (added,) = run_asyncio(lambda: migrate(database, known=wanted))
    assert added == wanted[-1]
    assert applied(database)[-1] == (wanted[-1].version, "extra")
    assert run_asyncio(lambda: migrate(database, known=wanted)) == []


def test_a_migration_that_fails_leaves_nothing_behind(database: str) -> None:
    before = applied(database)
    wanted = extra("CREATE TABLE cortex.extra (n int); SELECT 1 / 0")
    error = refusal(migrate(database, known=wanted))
    assert "division by zero" in error.message
    assert applied(database) == before
    assert sql(database, "SELECT to_regclass('cortex.extra') AS found")[0]["found"] is None


def test_an_edited_migration_is_refused_by_name(database: str) -> None:
    first, *rest = migrations()
    edited = [attrs.evolve(first, text=first.text + "\n-- harmless"), *rest]
    error = refusal(migrate(database, known=edited))
    assert type(error) is SchemaError
    assert f"({first.name})" in error.message


def test_a_newer_schema_is_refused_before_anything_is_changed(database: str) -> None:
    wanted = extra("CREATE TABLE cortex.extra (n int)")
    run_asyncio(lambda: migrate(database, known=wanted))
    for call in (migrate(database), check(database)):
        error = refusal(call)
        assert type(error) is SchemaError
        assert f"at version {wanted[-1].version}" in error.message
        assert error.hint is not None
        assert "upgrade Cortex" in error.hint


def test_a_schema_that_is_behind_is_told_both_versions(database: str) -> None:
    sql(database, "ALTER TABLE cortex.migration DISABLE TRIGGER USER")
    sql(database, "DELETE FROM cortex.migration WHERE version = $1", len(migrations()))
    error = refusal(check(database))
    assert type(error) is SchemaError
    assert (
        f"at version {len(migrations()) - 1}, this code needs {len(migrations())}" in error.message
    )


def test_an_empty_database_has_no_schema_to_check(empty_database: str) -> None:
    error = refusal(check(empty_database))
    assert type(error) is SchemaError
    assert error.hint is not None
    assert "cortex migrate" in error.hint


def test_a_role_that_may_not_create_is_told_so(empty_database: str) -> None:
    role = "may_nothing"
    sql(empty_database, f"DROP ROLE IF EXISTS {role}")
    sql(empty_database, f"CREATE ROLE {role} LOGIN")
    error = refusal(migrate(empty_database.replace("postgres@", f"{role}:hunter2@")))
    assert type(error) is ForbiddenError
    assert "hunter2" not in f"{error!r}"


def test_an_owner_who_is_no_superuser_can_migrate_and_run_a_pod(
    private_postgres: PrivatePostgres,
) -> None:
    sql(private_postgres.dsn, "CREATE ROLE owner LOGIN CREATEROLE")
    sql(private_postgres.dsn, "ALTER DATABASE cortex OWNER TO owner")
    dsn = private_postgres.dsn.replace("postgres@", "owner@")
    run_asyncio(lambda: migrate(dsn))

    async def connect() -> str:
        connection = await Profile(dsn=dsn).connect()
        try:
            return str(await connection.fetchval("SELECT current_user"))
        finally:
            await connection.close()

    assert run_asyncio(connect) == "cortex_runtime"


def test_waiting_for_another_migration_is_longer_than_a_statement_may_take(database: str) -> None:
    """Ordinary sessions give up on a lock after two seconds."""
    wanted = extra(
        "CREATE TABLE cortex.extra AS SELECT current_setting('lock_timeout') AS lock_timeout, "
        "current_setting('statement_timeout') AS statement_timeout"
    )
    run_asyncio(lambda: migrate(database, known=wanted))
    (row,) = sql(database, "SELECT * FROM cortex.extra")
    assert tuple(row) == ("110s", "110s")


def test_an_unreachable_server_is_an_outage() -> None:
    error = refusal(migrate("postgresql://u:hunter2@127.0.0.1:1/d"))
    assert type(error) is UnavailableError
    assert "hunter2" not in f"{error!r}"


@pytest.mark.parametrize(
    "names", [["0002_b.sql"], ["0001_a.sql", "0003_c.sql"], ["0001_a.sql", "2_b.sql"], ["a.sql"]]
)
def test_files_that_are_out_of_order_are_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1")
    with pytest.raises(SchemaError, match="out of order"):
        migrations(tmp_path)


def test_our_files_are_numbered_without_gaps() -> None:
    known = migrations()
    assert [migration.version for migration in known] == list(range(1, len(known) + 1))
    assert all(len(migration.digest) == 32 for migration in known)


# --- what was there before

LETTERS_SINCE = 7
"""The migration since when a failed job leaves a dead letter."""
FAILED_BEFORE = """
    DO $$ BEGIN
        SET LOCAL session_replication_role = replica;  -- no triggers: their work is not under test
        INSERT INTO cortex.job (id, type, status, payload, created_at, finished_at, error_message)
        SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'FAILED', '{}',
               now() - n * interval '1 second', now(), 'it broke' FROM generate_series(1, 10100) n;
    END $$
"""


def test_of_what_failed_before_there_were_letters_the_newest_get_some(empty_database: str) -> None:
    before = [known for known in migrations() if known.version < LETTERS_SINCE]
    run_asyncio(lambda: migrate(empty_database, known=before))
    sql(empty_database, FAILED_BEFORE)
    run_asyncio(lambda: migrate(empty_database))
    (row,) = sql(empty_database, "SELECT count(*) AS letter_count FROM cortex.dead_letter")
    assert row["letter_count"] == 10_000
    newest, oldest = UUID(int=1), UUID(int=10_100)
    assert letter(empty_database, newest)["state"] == "OPEN"
    with open_session(Profile(dsn=empty_database)) as store:
        wanted = [Resubmission(job_id=oldest, new_id=new_id())]
        (refused,) = store(dead_letters.resubmit, wanted, by="ana", reason="mended")
    assert isinstance(refused.error, NotFoundError)
    assert "it got no dead letter" in refused.error.message
