"""The invariants that the schema holds by itself, and the words that explain it."""

import asyncpg
import pytest

from tests.support.records.rows import submit
from tests.support.servers.postgres import sql


@pytest.mark.parametrize(
    "change, constraint",
    [
        ("retry_count = 4, max_retries = 3", "retry_count_within_limit"),
        ("retry_count = -1", "retry_count_within_limit"),
        ("max_retries = 101", "job_record_max_retries_check"),
        ("worker_attempts = 0", "job_record_worker_attempts_check"),
        ("timeout_s = 0", "job_record_timeout_s_check"),
        ("attempt = -1", "job_record_attempt_check"),
        ("next_retry_at = cortex.now()", "next_retry_at_only_in_retry"),
        ("finished_at = cortex.now()", "finished_at_only_when_terminal"),
        ("error_message = 'broken'", "error_message_only_in_failed"),
        ("result = '1'", "result_only_in_completed"),
        ("agent_version = 1", "agent_and_version_together"),
        ("type = 'two words'", "the type and the payload"),
        ("tenant = ''", "job_record_tenant_check"),
        ("queue_name = ''", "job_record_queue_name_check"),
        ("checkpoint = to_jsonb(repeat('x', 10) || random_text)", "checkpoint_is_small"),
    ],
)
def test_a_job_that_contradicts_itself_is_refused(
    database: str, change: str, constraint: str
) -> None:
    submit(database, "work")
    # Not repeat(): that compresses to nothing.
    source = "SELECT string_agg(md5(n::text), '') AS random_text FROM generate_series(1, 2000) n"
    with pytest.raises(asyncpg.CheckViolationError, match=constraint):
        sql(database, f"UPDATE cortex.job_record SET {change} FROM ({source}) r")  # noqa: S608


@pytest.mark.parametrize(
    "way, missing, constraint",
    [
        ("RETRY", "", "next_retry_at_only_in_retry"),
        ("FAILED", "", "error_message_only_in_failed"),
    ],
)
def test_retry_and_failed_states_require_their_fields(
    database: str, way: str, missing: str, constraint: str
) -> None:
    submit(database, "work")
    sql(database, "UPDATE cortex.job_record SET status = 'RUNNING'")
    with pytest.raises(asyncpg.CheckViolationError, match=constraint):
        sql(database, "UPDATE cortex.job_record SET status = $1", way)


@pytest.mark.parametrize(
    "change, error",
    [
        ("locked_by = cortex.uuid7()", "locked_by_only_when_locked"),
        ("state = 'LOCKED'", "locked_by_only_when_locked"),
        ("state = 'QUEUED'", "queued_only_in_a_queue"),
        ("attempts_spent = -1", "task_attempts_spent_check"),
        ("max_attempts = 0", "task_max_attempts_check"),
    ],
)
def test_a_task_that_contradicts_itself_is_refused(database: str, change: str, error: str) -> None:
    submit(database, "work")
    with pytest.raises(asyncpg.CheckViolationError, match=error):
        sql(database, f"UPDATE cortex_worker.task SET {change}")  # noqa: S608


def test_a_queue_has_one_head_a_job_one_task_and_a_key_one_holder(database: str) -> None:
    submit(database, "work", queue_name="q")
    submit(database, "work", queue_name="q")
    for change, index in (
        ("state = 'READY'", "task_queue_head"),
        ("job_key = 'same'", "task_job_key"),
        ("job_id = (SELECT id FROM cortex.job LIMIT 1)", "task_pkey"),
    ):
        with pytest.raises(asyncpg.UniqueViolationError, match=index):
            sql(database, f"UPDATE cortex_worker.task SET {change}")  # noqa: S608


def test_a_step_is_there_once_by_number_and_by_key(database: str) -> None:
    job_id = submit(database, "work")
    insert = (
        "INSERT INTO cortex.job_step (job_id, seq, attempt, kind, key, digest, started_at, "
        "finished_at) VALUES ($1, $2, 1, $3, $4, '', cortex.now(), cortex.now())"
    )
    sql(database, insert, job_id, 1, "step", "a")
    for seq, key in ((1, "b"), (2, "a")):
        with pytest.raises(asyncpg.UniqueViolationError):
            sql(database, insert, job_id, seq, "step", key)
    for seq, kind, key in ((0, "step", "b"), (2, "dance", "b"), (2, "step", "")):
        with pytest.raises(asyncpg.CheckViolationError):
            sql(database, insert, job_id, seq, kind, key)


def test_every_table_column_type_and_function_is_explained(database: str) -> None:
    without = sql(
        database,
        """
        SELECT format('%s.%s', c.oid::regclass, a.attname) AS name
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum >= 0
        WHERE c.relnamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
          AND c.relkind IN ('r', 'p', 'v') AND NOT a.attisdropped
          AND col_description(c.oid, a.attnum) IS NULL
        UNION ALL
        SELECT c.oid::regclass::text FROM pg_class c
        WHERE c.relnamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
          AND c.relkind IN ('r', 'p', 'v') AND obj_description(c.oid, 'pg_class') IS NULL
        UNION ALL
        SELECT n.nspname FROM pg_namespace n
        WHERE n.nspname LIKE 'cortex%' AND obj_description(n.oid, 'pg_namespace') IS NULL
        UNION ALL
        SELECT t.oid::regtype::text FROM pg_type t
        WHERE t.typnamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
          AND t.typtype = 'e' AND obj_description(t.oid, 'pg_type') IS NULL
        UNION ALL
        SELECT p.oid::regprocedure::text FROM pg_proc p
        WHERE p.pronamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
          AND p.prorettype <> 'trigger'::regtype AND obj_description(p.oid, 'pg_proc') IS NULL
        """,
    )
    assert [row["name"] for row in without] == []


def test_the_functions_that_define_rights_are_safe_from_the_search_path(database: str) -> None:
    """A function that runs with its owner's rights must not find a caller's objects first."""
    unsafe = sql(
        database,
        """
        SELECT p.oid::regprocedure::text AS name FROM pg_proc p
        WHERE p.pronamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
          AND p.prosecdef
          AND NOT coalesce(p.proconfig::text LIKE '%search_path=pg_catalog, pg_temp%', false)
        """,
    )
    assert [row["name"] for row in unsafe] == []


def test_privileged_functions_are_not_executable_by_everyone(database: str) -> None:
    """Nor make a trigger of it: that asks for the same right."""
    lent = sql(
        database,
        """
        SELECT p.oid::regprocedure::text AS name,
               EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                       WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE') AS is_everybodys
        FROM pg_proc p
        WHERE p.pronamespace IN ('cortex'::regnamespace, 'cortex_worker'::regnamespace)
          AND p.prosecdef
        """,
    )
    assert lent
    assert [row["name"] for row in lent if row["is_everybodys"]] == []
