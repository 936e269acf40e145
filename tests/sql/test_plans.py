"""The runtime's statements find their rows by index, however large the tables are."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from attrs import frozen

from cortex.postgres.database import Profile
from cortex.postgres.queries import sql as query_text
from tests.support.servers.postgres import run_asyncio, sql

POD = UUID(int=7)
LOCK_KEY = 77
BATCH = 100
ROWS_PER_WANTED = 8
"""Rows that a statement may look at for each that it works on: a scan would look at 20,000."""
RUNNING = 4_000 // ROWS_PER_WANTED

FILL = """
    SET session_replication_role = replica;  -- no triggers: their work is not under test
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    ALTER TABLE cortex.job_step SET (autovacuum_enabled = false);
    ALTER TABLE cortex_worker.task SET (autovacuum_enabled = false);
    INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots)
    VALUES ('00000000-0000-0000-0000-000000000007', 77, 'test', '0', '{work}', 1000);
    INSERT INTO cortex_worker.task (id, task, job_id, state, max_attempts, attempt, attempts_spent,
                                    locked_by, run_at, queue_name, locked_at, heartbeat_at)
    SELECT n, 'work', lpad(to_hex(n), 32, '0')::uuid,
           (ARRAY['LOCKED', 'QUEUED', 'LATER', 'READY', 'READY'])[1 + n % 5]
               ::cortex_worker.task_state,
           3, CASE WHEN n % 5 = 0 THEN 1 ELSE 0 END, CASE WHEN n % 5 = 0 THEN 1 ELSE 0 END,
           CASE WHEN n % 5 = 0 THEN lpad(to_hex(n / 5 % 20), 32, '0')::uuid END,
           now() + CASE WHEN n % 5 = 2 AND n % 1000 > 2 THEN 1 ELSE -1 END * interval '1 hour',
           CASE WHEN n % 5 = 1 THEN 'q' || n % 200 END,
           CASE WHEN n % 5 = 0 THEN now() END,
           CASE WHEN n % 5 = 0 THEN now() + CASE WHEN n % 1000 = 0 THEN -1 ELSE 1 END
               * interval '1 hour' END
    FROM generate_series(1, 20000) n;
    INSERT INTO cortex_worker.queue_due (queue, due_at)
    SELECT DISTINCT queue_name, timestamptz '-infinity' FROM cortex_worker.task
    WHERE queue_name IS NOT NULL;
    INSERT INTO cortex.job_record (id, type, status, attempt, worker_job_id, started_at,
                                   finished_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work',
           CASE WHEN n > 20000 THEN 'COMPLETED' ELSE 'PENDING' END::cortex.job_status,
           CASE WHEN n > 20000 THEN 1 ELSE 0 END, CASE WHEN n <= 20000 THEN n END,
           CASE WHEN n > 20000 THEN now() END, CASE WHEN n > 20000 THEN now() END, '{}'
    FROM generate_series(1, 26000) n;
    INSERT INTO cortex.job_step (job_id, seq, attempt, kind, key, digest, started_at, finished_at)
    SELECT lpad(to_hex(5 * n), 32, '0')::uuid, s, 1, 'step', s::text, '', now(), now()
    FROM generate_series(1, 4000) n, generate_series(1, 3) s;
"""

# Those of the pod 7: every 20th of the 4,000 that run.
MINE = [n for n in range(5, 20_001, 5) if n // 5 % 20 == POD.int][:BATCH]
IDS = [UUID(int=n) for n in MINE]
ONES = [1] * BATCH
NOTHING = [None] * BATCH
YES, NO = [True] * BATCH, [False] * BATCH

STATEMENTS: dict[str, tuple[Sequence[object], int]] = {
    "tasks.claim": ((POD, ["other", "work"], BATCH, 1, 1, ["look_up"], ["alone"]), BATCH),
    "tasks.claim_one": ((POD, UUID(int=4), ["work"], 1, ["look_up"]), 1),
    "tasks.promote": ((BATCH,), 2 * BATCH),
    # These look at every running job, but not at the others: after a lost reply, or a death.
    "pods.ended_owners": ((POD,), RUNNING),
    "tasks.orphans": ((POD, IDS), RUNNING),
    "tasks.locked": ((IDS,), BATCH),
    "tasks.take_over": ((POD, 3, BATCH, None), RUNNING),
    "tasks.release": (
        (POD, IDS, ONES, ONES, [0.0] * BATCH, ["handed_back"] * BATCH, *[NOTHING] * 5),
        BATCH,
    ),
    "tasks.suspend": (
        (
            POD,
            IDS,
            ONES,
            [1.0] * BATCH,
            [True] * BATCH,
            NOTHING,
            [False] * BATCH,
            *[NOTHING] * 5,
            [False] * BATCH,
            NOTHING,
            [False] * BATCH,
        ),
        BATCH,
    ),
    "tasks.sweep": ((0.0, 0.0, [0.5] * BATCH), RUNNING),
    "tasks.expire": ((60.0, 0.0, BATCH), RUNNING),
    "tasks.blocked": ((300.0, 15.0, BATCH), RUNNING),
    "steps.commit": (
        (
            *(POD, IDS, ONES, [4] * BATCH, ["step"] * BATCH, ["4"] * BATCH, [b"x"] * BATCH),
            *([0.1] * BATCH, NOTHING, NOTHING, ["1"] * BATCH, ['{"seq": 4}'] * BATCH),
            *(["[]"] * BATCH, NOTHING, NOTHING),
        ),
        BATCH,
    ),
    "steps.commit_effects": (
        (
            *(POD, IDS, ONES, [4] * BATCH, ["tool"] * BATCH, ["4"] * BATCH, [b"x"] * BATCH),
            *([0.1] * BATCH, NOTHING, NOTHING, ["1"] * BATCH, ['{"seq": 4}'] * BATCH),
            *(["[]"] * BATCH, NOTHING, NOTHING, IDS, [True] * BATCH, NOTHING),
        ),
        BATCH,
    ),
    "steps.recorded": ((IDS, ONES, ONES, ["1"] * BATCH, [b""] * BATCH), BATCH),
    "steps.of_job": ((IDS[0], 0, 100, False), 3),
    "jobs.complete": ((POD, IDS, ONES, ["1"] * BATCH), BATCH),
    "jobs.finish": (
        (POD, IDS, ONES, ["COMPLETED"] * BATCH, ["1"] * BATCH, *[NOTHING] * 5),
        BATCH,
    ),
    "jobs.settled": ((IDS, ONES, ["COMPLETED"] * BATCH), BATCH),
    "jobs.cancel_requests": ((POD, IDS), BATCH),
    "jobs.cancel": ((IDS, "ana", "why"), BATCH),
    "jobs.show": ((IDS[0],), 4),
    "jobs.follow": ((IDS[0], 0, 0, 0, 100), 10),
    "pods.beat": ((POD, IDS, ONES, "READY", 1.0, 1, None, *[None] * 5, True, 0), BATCH),
}


@pytest.fixture
def big(filled: Callable[..., str]) -> str:
    """A database with 26,000 jobs and 20,000 tasks that no ANALYZE has seen."""
    return filled(FILL)


@frozen
class Look:
    """How one node of a plan looked at one table."""

    node: str
    table: str
    rows: int


def looks(plan: dict[str, Any]) -> Iterator[Look]:
    """Each scan of a plan, with all rows that it looked at, found or not."""
    if "Relation Name" in plan and "Scan" in plan["Node Type"]:
        left_out = plan.get("Rows Removed by Filter", 0) + plan.get(
            "Rows Removed by Index Recheck", 0
        )
        rows = (plan["Actual Rows"] + left_out) * plan["Actual Loops"]
        yield Look(plan["Node Type"], plan["Relation Name"], round(rows))
    for inner in plan.get("Plans", ()):
        yield from looks(inner)


def explain(
    dsn: str, name: str, arguments: Sequence[object], *, text: str | None = None
) -> list[Look]:
    """Run a named statement as a pod does, undo it, and return how it scanned the tables.

    `text`: another one, as `PREPARE` takes it after the name.
    """
    prepared = f" AS {query_text(name)}" if text is None else text
    settings = Profile(dsn=dsn, hot_path=True).settings

    async def run() -> Any:
        connection = await asyncpg.connect(dsn, server_settings=settings)
        try:
            # EXPLAIN of the driver's own statement would plan for these very arguments.
            await connection.execute(f"PREPARE tried{prepared}")
            transaction = connection.transaction()
            await transaction.start()
            given = ", ".join(map(literal, arguments))
            found = await connection.fetchval(
                f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE tried({given})"
            )
            await transaction.rollback()
            return json.loads(found)
        finally:
            connection.terminate()

    return list(looks(run_asyncio(run)[0]["Plan"]))


def rows_read(dsn: str, name: str, *arguments: object) -> dict[str, int]:
    """Rows that a statement reads of each table, inside its functions too; undone after."""
    settings = Profile(dsn=dsn, hot_path=True).settings
    seen = """
        SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) AS rows
        FROM pg_stat_xact_user_tables WHERE relname IN ('effect', 'job_record', 'quota_use', 'task')
    """

    async def run() -> dict[str, int]:
        connection = await asyncpg.connect(dsn, server_settings=settings)
        try:
            transaction = connection.transaction()
            await transaction.start()
            found = await connection.fetch(query_text(name), *arguments)
            assert found, name
            rows = {row["relname"]: row["rows"] for row in await connection.fetch(seen)}
            await transaction.rollback()
            return rows
        finally:
            connection.terminate()

    return run_asyncio(run)


def literal(value: object) -> str:
    """An SQL literal: strings and arrays are of unknown type, so the statement decides."""
    match value:
        case None:
            return "NULL"
        case bool() | int() | float():
            return str(value)
        case list():
            return literal(f"{{{','.join(map(element, value))}}}")
        case _:
            escaped = str(value).replace("'", "''")
            return f"'{escaped}'"


def element(value: object) -> str:
    """One element of an array literal."""
    text = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "NULL" if value is None else f'"{escaped}"'


def test_runtime_statements_read_only_the_rows_they_need(big: str) -> None:
    offences: list[str] = []
    for statistics in ("none yet", "fresh"):
        for name, (arguments, wanted) in STATEMENTS.items():
            found = explain(big, name, arguments)
            assert found, name
            offences += [
                f"{name} (statistics: {statistics}): {look}"
                for look in found
                if look.table in {"job_record", "task", "job_step"}
                and (look.node == "Seq Scan" or look.rows > ROWS_PER_WANTED * wanted)
            ]
        sql(big, "ANALYZE")
    assert not offences, "\n".join(["", *offences])


def test_a_scan_would_be_found(big: str) -> None:
    """The guard sees what it is there for: without the index of ready tasks all are looked at."""
    sql(big, "DROP INDEX cortex_worker.task_ready")
    arguments, wanted = STATEMENTS["tasks.claim"]
    worst = max(explain(big, "tasks.claim", arguments), key=lambda look: look.rows)
    assert worst.table == "task"
    assert worst.rows > 10 * ROWS_PER_WANTED * wanted
