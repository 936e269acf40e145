"""Immutable data: history, steps, versions, payloads; and what the runtime may not do."""

import asyncpg
import pytest

from tests.support.records.rows import as_runtime, history, job_row, submit
from tests.support.servers.postgres import sql

UPDATE = "UPDATE cortex.{table} SET {column} = {column}"
DELETE = "DELETE FROM cortex.{table}"
TRUNCATE = "TRUNCATE cortex.{table}"
COLUMNS = {
    "job_history": "attempt",
    "job_step": "output",
    "job_file": "content",
    "job_attempt": "error",
    "agent_version": "spec",
    "flow_version": "spec",
    "migration": "digest",
    "config": "spec",
    "fact": "data",
    "timeout_event": "nth",
}
HISTORY_ROW = (
    "INSERT INTO cortex.job_history (job_id, new, attempt, at, metadata) "
    "VALUES (cortex.uuid7(), 'COMPLETED', 1, cortex.now(), '{}')"
)


@pytest.mark.parametrize("statement", [UPDATE, DELETE, TRUNCATE])
@pytest.mark.parametrize("table", COLUMNS)
def test_the_runtime_cannot_change_the_record(database: str, table: str, statement: str) -> None:
    query = statement.format(table=table, column=COLUMNS[table])
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=table):
        sql(as_runtime(database), query)


def test_the_runtime_cannot_write_history_itself(database: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="job_history"):
        sql(as_runtime(database), HISTORY_ROW)


@pytest.mark.parametrize("statement", [DELETE, TRUNCATE])
@pytest.mark.parametrize("table", ["job_record", "pod", "agent", "flow", "job_type"])
def test_the_runtime_cannot_remove_records(database: str, table: str, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match=table):
        sql(as_runtime(database), statement.format(table=table, column=""))


@pytest.mark.parametrize("statement", [UPDATE, DELETE, TRUNCATE])
@pytest.mark.parametrize("table", ["job_history", "job_step", "job_file"])
def test_even_the_owner_only_appends(database: str, table: str, statement: str) -> None:
    submit(database, "work")
    with pytest.raises(asyncpg.CheckViolationError, match=f"cortex.{table} is append-only"):
        sql(database, statement.format(table=table, column=COLUMNS[table]))


@pytest.mark.parametrize("statement", [UPDATE, DELETE])
@pytest.mark.parametrize("table", ["agent_version", "flow_version"])
def test_versions_stay_as_they_were_applied(database: str, table: str, statement: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=f"{table} is append-only"):
        sql(database, statement.format(table=table, column="spec"))


@pytest.mark.parametrize("role", ["cortex_runtime", "postgres"])
def test_a_payload_never_changes(database: str, role: str) -> None:
    dsn = f"{database}&role={role}"
    job_id = submit(dsn, "work", {"x": 1})
    with pytest.raises(asyncpg.CheckViolationError, match=f"payload of job {job_id} are immutable"):
        sql(dsn, """UPDATE cortex.job_record SET payload = '{"x": 2}' WHERE id = $1""", job_id)
    sql(dsn, """UPDATE cortex.job_record SET payload = '{"x": 1}' WHERE id = $1""", job_id)
    assert job_row(dsn, job_id)["payload"] == '{"x": 1}'


def test_the_runtime_cannot_change_the_schema_or_read_files(database: str) -> None:
    for query in (
        "DROP TABLE cortex.job_record",
        "ALTER TABLE cortex.job_history DISABLE TRIGGER ALL",
        "CREATE OR REPLACE FUNCTION cortex.now() RETURNS timestamptz LANGUAGE sql RETURN now()",
        "CREATE TABLE cortex.mine ()",
        "COPY cortex.job TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            sql(as_runtime(database), query)


def test_refused_changes_leave_no_trace(database: str) -> None:
    job_id = submit(database, "work")
    for query in (DELETE, TRUNCATE):
        with pytest.raises(asyncpg.CheckViolationError):
            sql(database, query.format(table="job_history"))
    assert history(database, job_id) == [(None, "PENDING", 0)]
