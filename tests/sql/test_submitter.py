"""The role cortex_submitter: submits, reads what its login submitted, and nothing else."""

import json
from collections.abc import Iterator
from uuid import UUID

import asyncpg
import pytest

from cortex.postgres.database import SUBMITTER_ROLE
from tests.support.life import Life
from tests.support.logins import login_with, name_of
from tests.support.records.rows import job_row, new_id, submit
from tests.support.servers.postgres import run_asyncio, sql

RELATIONS = """
    SELECT oid::regclass::text AS name FROM pg_class
    WHERE relkind IN ('r', 'p', 'v', 'm') AND oid <> 'cortex.migration'::regclass
      AND relnamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
"""
RIGHTS = """
    SELECT r.name FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS r(name)
    WHERE has_table_privilege($1, $2, r.name)
       OR r.name IN ('SELECT', 'INSERT', 'UPDATE') AND has_any_column_privilege($1, $2, r.name)
"""
DEFINERS = """
    SELECT p.proname::text AS name FROM pg_proc p
    WHERE p.prosecdef AND has_function_privilege($1, p.oid, 'EXECUTE')
      AND p.pronamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
"""
RESULTS = "SELECT * FROM cortex.job_results($1::uuid[], 1000000)"
EVENTS = "SELECT * FROM cortex.job_events($1::uuid[], '{0}', '{0}', '{0}', '{0}', 100)"


@pytest.fixture
def web(database: str) -> Iterator[str]:
    with login_with(database, SUBMITTER_ROLE) as dsn:
        yield dsn


@pytest.fixture
def other(database: str) -> Iterator[str]:
    with login_with(database, SUBMITTER_ROLE) as dsn:
        yield dsn


def test_a_submitter_reads_its_own_jobs_only(web: str, other: str, life: Life) -> None:
    life.type("digest")
    mine, theirs = submit(web, "digest", {"n": 1}), submit(other, "digest", {"secret": "x"})
    assert job_row(life.dsn, mine)["submitted_with"] == f"db:{name_of(web)}"
    pod = life.pod()
    for _ in range(2):
        life.finish(pod, life.claim(pod), result='{"secret": "y"}')
    found = {row["id"]: row["result"] for row in sql(web, RESULTS, [mine, theirs])}
    assert found == {mine: '{"secret": "y"}', theirs: None}
    (unknown,) = [row for row in sql(web, RESULTS, [mine, theirs]) if row["id"] == theirs]
    (absent,) = sql(web, RESULTS, [new_id()])
    assert [*unknown.values()][1:] == [*absent.values()][1:], "as if it did not exist"
    (event,) = sql(web, EVENTS, [theirs])
    assert [*event.values()] == [1, None, False, None, None, None, None, False]
    (event,) = sql(web, EVENTS, [mine])
    assert [each["new"] for each in json.loads(event["history"])][-1] == "COMPLETED"


def test_a_submitter_has_no_right_but_its_functions(database: str, web: str) -> None:
    for row in sql(database, RELATIONS):
        assert not sql(database, RIGHTS, name_of(web), row["name"]), row["name"]
    found = {row["name"] for row in sql(database, DEFINERS, name_of(web))}
    assert found == {
        "caller_tenant",
        "first_submit",
        "job_events",
        "job_results",
        "send_signal",
        "job_shows",
        "served_type",
        "submit_jobs",
        "submitted_as",
        "wait_for_jobs",
    }


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT payload FROM cortex.job",
        "SELECT FROM cortex.waiting_client",
        "SELECT FROM cortex.said",
        "SELECT FROM cortex.idempotency_key",
        "SELECT FROM cortex_worker.task",
        "UPDATE cortex.job_record SET priority = -1",
        "SET ROLE cortex_runtime",
        "SELECT cortex_worker.insert_jobs(NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL)",
        "SELECT cortex_worker.add_job('digest')",
        "SELECT cortex.notify_clients(ARRAY[cortex.uuid7()])",
        "CREATE TABLE cortex.mine ()",
    ],
)
def test_a_submitter_is_refused_by_the_database(web: str, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        sql(web, statement)


def test_a_submitter_cannot_submit_as_another(web: str, life: Life) -> None:
    async def forge() -> UUID:
        connection = await asyncpg.connect(web)
        try:
            await connection.execute("SET cortex.credential = 'os:0@prod'")
            await connection.execute("SET cortex.actor = 'ana'")
            found: UUID = await connection.fetchval("SELECT cortex.submit_job('digest')")
            return found
        finally:
            await connection.close()  # noqa: ASYNC102 -- it ends with the test

    job_id = run_asyncio(forge)
    row = job_row(life.dsn, job_id)
    assert row["submitted_with"] == f"db:{name_of(web)}"
    assert row["submitted_by"] == f"{name_of(web)} (ana)"


@pytest.mark.parametrize(
    "job_type, payload",
    [
        ("bulk", {"verb": "cancel"}),
        ("execute_tool", {"tool": "pay"}),
        ("approval_notify", {}),
        ("expire_approvals", {}),
        ("sweep_zombies", {}),
        ("run_agent", {"folder": "/etc"}),
    ],
)
def test_a_submitter_cannot_act_on_others_by_job_type(
    web: str, job_type: str, payload: dict[str, str]
) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="may not be"):
        submit(web, job_type, payload)


def test_a_submitter_cannot_replace_the_job_of_another_by_key(
    web: str, other: str, database: str
) -> None:
    theirs = submit(other, "digest", job_key="today")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match='key "today" belongs to a job'):
        submit(web, "digest", job_key="today")
    assert job_row(database, theirs)["status"] == "PENDING"
    newer = submit(other, "digest", job_key="today")
    assert job_row(database, theirs)["status"] == "CANCELLED"
    assert job_row(database, newer)["status"] == "PENDING"


def test_submitting_under_the_id_of_another_hides_its_payload(web: str, other: str) -> None:
    theirs = submit(other, "digest", {"guess": "right"})
    for guess in ("right", "wrong"):
        with pytest.raises(asyncpg.UniqueViolationError, match="was submitted by another login"):
            submit(web, "digest", {"guess": guess}, id=theirs)
    mine = submit(web, "digest", {"n": 1})
    assert submit(web, "digest", {"n": 1}, id=mine) == mine


def test_idempotency_keys_belong_to_a_login(web: str, other: str, database: str) -> None:
    first = submit(web, "digest", {"n": 1}, idempotency_key="import-1")
    assert submit(web, "digest", {"n": 1}, idempotency_key="import-1") == first
    assert submit(other, "digest", {"n": 2}, idempotency_key="import-1") != first
    with pytest.raises(asyncpg.UniqueViolationError, match="used for another submit"):
        submit(web, "digest", {"n": 2}, idempotency_key="import-1")
    assert len(sql(database, "SELECT FROM cortex.job")) == 2
    sql(database, "UPDATE cortex.idempotency_key SET expires_at = cortex.now()")
    assert submit(web, "digest", {"n": 3}, idempotency_key="import-1") != first


def test_waits_notify_of_own_jobs_only(web: str, other: str, database: str) -> None:
    mine, theirs = submit(web, "digest"), submit(other, "digest")
    client = new_id()
    wait = "SELECT cortex.wait_for_jobs($1, $2, $3)"
    sql(web, wait, client, [mine, theirs, new_id()], 1e9)
    query = (
        "SELECT job_id, until < cortex.now() + interval '61 s' AS ends FROM cortex.waiting_client"
    )
    rows = sql(database, query)
    assert [tuple(row) for row in rows] == [(mine, True)]


def test_shadowed_names_do_not_mislead_the_functions(web: str, other: str, database: str) -> None:
    theirs = submit(other, "digest")

    async def shadow() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(web)
        try:
            await connection.execute("CREATE TEMP TABLE job (id uuid)")
            await connection.execute("CREATE TYPE pg_temp.uuid AS (a int)")
            await connection.execute("SET search_path = pg_temp, public")
            return list(
                await connection.fetch(RESULTS.replace("uuid", "pg_catalog.uuid"), [theirs])
            )
        finally:
            await connection.close()  # noqa: ASYNC102 -- it ends with the test

    (row,) = run_asyncio(shadow)
    assert row["status"] is None
    assert sql(database, "SELECT count(*) FROM cortex.job")[0][0] == 1


EVIL = """
    CREATE FUNCTION pg_temp.evil(value pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'runs as %', current_user;
    END $$;
    CREATE DOMAIN pg_temp.{name} AS pg_catalog.{name} CHECK (pg_temp.evil(VALUE::pg_catalog.text));
"""
SUBMIT_ALL = """
    SELECT cortex.submit_jobs(
        array_agg(cortex.uuid7()), array_agg('run_agent'::pg_catalog.text),
        NULL, NULL, NULL, array_agg('mail'::pg_catalog.text), NULL, array_agg(now()), NULL, NULL,
        NULL, array_agg('key' || n), array_agg('["a"]'::pg_catalog.jsonb), NULL)
    FROM generate_series(1, {count}) n
"""


@pytest.mark.parametrize("name", ["text", "uuid", "jsonb", "bool", "timestamptz"])
def test_types_of_a_submitter_never_run_with_the_rights_of_the_owner(web: str, name: str) -> None:
    async def submit_all() -> None:
        connection = await asyncpg.connect(web)
        try:
            await connection.execute(EVIL.format(name=name))
            await connection.execute(SUBMIT_ALL.format(count=1))
            await connection.execute(SUBMIT_ALL.format(count=20))
            await connection.execute("SELECT cortex.submit_job('a', idempotency_key => 'k')")
        finally:
            await connection.close()  # noqa: ASYNC102 -- it ends with the test

    run_asyncio(submit_all)


def test_each_function_with_a_search_path_looks_for_temporary_names_last(database: str) -> None:
    query = """
        SELECT p.oid::regprocedure::text AS name FROM pg_proc p, unnest(p.proconfig) AS c(setting)
        WHERE p.pronamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
          AND c.setting LIKE 'search_path=%' AND c.setting NOT LIKE '%, pg_temp'
    """
    assert [row["name"] for row in sql(database, query)] == []
