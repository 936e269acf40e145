"""Migrations: applied once however many processes start, and refused when they do not fit."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from cortex.domain.errors import (
    CortexError,
    ForbiddenError,
    SchemaError,
    UnavailableError,
)
from cortex.postgres.database import Profile
from cortex.postgres.migrate import Migration, check, migrate, migrations
from cortex.postgres.queries import sql as query
from tests.support.eventually import WITHIN_S
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres

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
    ended = [process.communicate(timeout=WITHIN_S) for process in started]
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


def test_second_migration_applies_nothing(database: str) -> None:
    assert run_asyncio(lambda: migrate(database)) == []
    run_asyncio(lambda: check(database))


def test_up_to_date_migration_does_not_wait_for_the_lock(database: str) -> None:
    """Another pod was stopped in the midst of its migration: that must not keep pods from work."""

    async def beside_another() -> list[Migration]:
        other = await Profile(dsn=database, role=None).connect()
        try:
            async with other.transaction():
                await other.execute(query("migrations.lock"))
                return await asyncio.wait_for(migrate(database), WITHIN_S)
        finally:
            other.terminate()

    assert run_asyncio(beside_another) == []


def test_a_new_migration_is_applied_to_a_database_with_rows(database: str) -> None:
    sql(database, "SELECT cortex.submit_job('work')")
    wanted = extra("CREATE TABLE cortex.extra (n int)")
    (added,) = run_asyncio(lambda: migrate(database, files=wanted))
    assert added == wanted[-1]
    assert applied(database)[-1] == (wanted[-1].version, "extra")
    assert run_asyncio(lambda: migrate(database, files=wanted)) == []


def test_failed_migration_leaves_no_changes(database: str) -> None:
    before = applied(database)
    wanted = extra("CREATE TABLE cortex.extra (n int); SELECT 1 / 0")
    error = refusal(migrate(database, files=wanted))
    assert "division by zero" in error.message
    assert applied(database) == before
    assert sql(database, "SELECT to_regclass('cortex.extra') AS found")[0]["found"] is None


def test_an_edited_migration_is_refused_by_name(database: str) -> None:
    first, *rest = migrations()
    edited = [attrs.evolve(first, text=first.text + "\n-- harmless"), *rest]
    error = refusal(migrate(database, files=edited))
    assert type(error) is SchemaError
    assert f"({first.name})" in error.message


def test_a_newer_schema_is_refused_before_anything_is_changed(database: str) -> None:
    wanted = extra("CREATE TABLE cortex.extra (n int)")
    run_asyncio(lambda: migrate(database, files=wanted))
    for call in (migrate(database), check(database)):
        error = refusal(call)
        assert type(error) is SchemaError
        assert f"at version {wanted[-1].version}" in error.message
        assert error.hint is not None
        assert "upgrade Cortex" in error.hint


def test_outdated_schema_error_names_both_versions(database: str) -> None:
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


def test_role_without_create_privilege_is_refused(empty_database: str) -> None:
    role = "may_nothing"
    sql(empty_database, f"DROP ROLE IF EXISTS {role}")
    sql(empty_database, f"CREATE ROLE {role} LOGIN")
    error = refusal(migrate(empty_database.replace("postgres@", f"{role}:hunter2@")))
    assert type(error) is ForbiddenError
    assert "hunter2" not in f"{error!r}"


def test_owner_without_superuser_migrates_and_runs_a_pod(
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
    run_asyncio(lambda: migrate(database, files=wanted))
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


# --- databases of other files

BASELINE_LAST = "readonly"
OLD = "INSERT INTO cortex.migration (version, name, digest) VALUES ($1, $2, sha256('x'))"


@pytest.mark.parametrize("applied_count", [1, 43])
def test_a_database_of_the_old_numbering_is_refused_and_left_alone(
    empty_database: str, applied_count: int
) -> None:
    """Also one with fewer migrations than there are now, which must not get the rest of them."""
    for statement in query("migrations.ensure_table").split(";\n"):
        sql(empty_database, statement)
    for version in range(1, applied_count + 1):
        sql(empty_database, OLD, version, "spine" if version == 1 else f"old_{version}")
    before = applied(empty_database)
    for call in (migrate(empty_database), check(empty_database)):
        error = refusal(call)
        assert type(error) is SchemaError
        assert "from before the first release" in error.message
        assert "'spine', not 'base'" in error.message
        assert error.hint is not None
        assert "--dsn" in error.hint
        assert "--data" in error.hint
    assert applied(empty_database) == before
    (row,) = sql(empty_database, "SELECT to_regclass('cortex.job') AS made")
    assert row["made"] is None


def test_the_baseline_makes_each_object_once() -> None:
    known = migrations()
    count = 1 + [each.name for each in known].index(BASELINE_LAST)
    text = "\n".join(each.text for each in known[:count])
    assert "OR REPLACE" not in text
    # Postgres 15 takes no storage in CREATE TABLE.
    assert re.findall(r"^(?:ALTER(?!.* SET STORAGE )|DROP) .*", text, re.MULTILINE) == []
    made = re.findall(
        r"^CREATE (?:UNLOGGED |UNIQUE )?(?:TABLE|FUNCTION|INDEX|TRIGGER|VIEW) (\S+?)[(\s]",
        text,
        re.MULTILINE,
    )
    assert len(made) > 100
    assert [name for name in made if made.count(name) > 1] == []
