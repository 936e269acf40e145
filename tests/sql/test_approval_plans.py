"""6,000 jobs that wait for people cost nothing: no statement looks at more than it needs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from attrs import frozen

from cortex.postgres.database import Profile
from cortex.postgres.queries import sql as query_text
from cortex.postgres.session import Session, open_session
from cortex.store import approvals, tasks
from tests.sql.test_plans import explain
from tests.support.people import user
from tests.support.servers.postgres import run_asyncio, sql

WAITING = 6_000
DUE = 2_000
BATCH = 100
FEW = 60
TABLES = {"job_record", "task", "approval", "approval_vote", "effect"}
POD = UUID(int=7)

FILL = """
    SET session_replication_role = replica;  -- no triggers: their work is not under test
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    ALTER TABLE cortex.approval SET (autovacuum_enabled = false);
    INSERT INTO cortex.job_record (id, type, status, attempt, waiting_on, has_open,
                            suspended_at, started_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'WAITING_FOR_APPROVAL', 1,
           'approval:' || lpad(to_hex(n), 32, '0')::uuid, true, now(), now(), '{}'
    FROM generate_series(1, 6000) n;
    INSERT INTO cortex.approval (id, job_id, lineage_id, attempt, key, tool, tenant, asked,
        asked_digest, arguments, digest, risk, people, on_deny, on_expiry, created_at, expires_at)
    SELECT lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid,
           lpad(to_hex(n), 32, '0')::uuid, 1, 'k', 't', 'default', '{}', sha256('{}'), '{}',
           sha256('{}'), (ARRAY['LOW', 'MED', 'HIGH'])[1 + n % 3], 1, 'tell', 'tell',
           now() - n * interval '1 millisecond',
           now() + CASE WHEN n <= 2000 THEN interval '-1 second' ELSE interval '1 hour' END
    FROM generate_series(1, 6000) n;
    INSERT INTO cortex.job_record (id, type, worker_job_id, payload)
    SELECT lpad(to_hex(200000 + n), 32, '0')::uuid, 'work', 200000 + n, '{}'
    FROM generate_series(1, 100) n;
    INSERT INTO cortex_worker.task (id, task, job_id, state, max_attempts, attempt, attempts_spent,
                                    locked_by, locked_at, heartbeat_at)
    SELECT 200000 + n, 'work', lpad(to_hex(200000 + n), 32, '0')::uuid, 'LOCKED', 3, 1, 1,
           '00000000-0000-0000-0000-000000000007', now(), now()
    FROM generate_series(1, 100) n;
"""
SOME = UUID(int=5_000)
RUNNING = [UUID(int=200_000 + n) for n in range(1, BATCH + 1)]
NOTHING: list[object] = [None] * BATCH
ASKED = (
    '{"requests": [{"id": "%s", "key": "k", "arguments": "{}", "digest": "%s", "risk": "LOW", '
    '"people": 1, "on_deny": "tell", "on_expiry": "tell", "expires_s": 60}], "awaited": ["%s"], '
    '"unknown": []}'
)
DIGEST = "\\\\x44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
BY = user("ana").document()
ALL = ["PENDING", "APPROVED", "DENIED", "EXPIRED", "CANCELLED"]

STATEMENTS: dict[str, tuple[Sequence[object], int]] = {
    "approvals.of_line": ((SOME, "k"), FEW),
    "approvals.show": (([SOME],), FEW),
    "approvals.of_job": ((SOME, BATCH), FEW),
    "approvals.pending": ((None, BATCH, None), 6 * BATCH),
    "approvals.pending of a later page": ((SOME, BATCH, None), 6 * BATCH),
    "approvals.list": ((ALL, None, BATCH, None), 6 * BATCH),
    "approvals.list of a tenant": ((ALL, None, BATCH, "nobody"), FEW),
    "approvals.list of a later page": ((ALL, SOME, BATCH, None), 6 * BATCH),
    "approvals.changes": ((None, BATCH, None), 6 * BATCH),
    "approvals.inbox": ((BATCH,), 6 * BATCH),
    "approvals.hold": (([SOME, UUID(int=5_200)],), FEW),
    "tasks.suspend": (
        (
            *(POD, RUNNING, [1] * BATCH, NOTHING, [False] * BATCH),
            [f"approval:{UUID(int=300_000 + n)}" for n in range(BATCH)],
            *([False] * BATCH, *[NOTHING] * 5, [False] * BATCH),
            [ASKED % (UUID(int=300_000 + n), DIGEST, SOME) for n in range(BATCH)],
            [False] * BATCH,
        ),
        6 * BATCH,
    ),
}


@pytest.fixture
def big(filled: Callable[..., str]) -> str:
    """A database with 6,000 jobs that wait for people, 2,000 of them in vain, and no ANALYZE."""
    return filled(FILL)


def test_approval_statements_read_only_the_rows_they_need(big: str) -> None:
    offences: list[str] = []
    for statistics in ("none yet", "fresh"):
        for name, (arguments, most) in STATEMENTS.items():
            found = [
                look for look in explain(big, name.split(" ")[0], arguments) if look.table in TABLES
            ]
            assert found, name
            offences += [
                f"{name} (statistics: {statistics}): {look}"
                for look in found
                if look.node == "Seq Scan" or look.rows > most
            ]
        sql(big, "ANALYZE")
    assert not offences, "\n".join(["", *offences])


@frozen
class Touched:
    """Rows of the large tables that one statement read, functions and triggers included."""

    scans: int
    rows: int


def touched(dsn: str, statement: str, *arguments: Any) -> Touched:
    """Run a statement as a pod does, and count by the server's own figures."""
    counts = """
        SELECT sum(seq_scan)::int AS scans, sum(seq_tup_read + idx_tup_fetch)::int AS rows
        FROM pg_stat_xact_all_tables
        -- A few rows at most, and no index to read them by.
        WHERE schemaname LIKE 'cortex%' AND relname <> 'limited_type'
    """

    async def run() -> Touched:
        settings = Profile(dsn=dsn, hot_path=True).settings
        connection = await asyncpg.connect(dsn, server_settings=settings)
        try:
            async with connection.transaction():
                before = await connection.fetchrow(counts)
                await connection.fetch(statement, *arguments)
                after = await connection.fetchrow(counts)
        finally:
            connection.terminate()
        assert before is not None
        assert after is not None
        return Touched(
            scans=after["scans"] - (before["scans"] or 0),
            rows=after["rows"] - (before["rows"] or 0),
        )

    return run_asyncio(run)


@pytest.mark.parametrize("statistics", ["none yet", "fresh"])
def test_deciding_and_expiring_find_their_rows_by_index(big: str, statistics: str) -> None:
    """Their work is done in functions, into which no plan looks."""
    if statistics == "fresh":
        sql(big, "ANALYZE")
    digest = sql(big, "SELECT digest FROM cortex.approval LIMIT 1")[0]["digest"]
    ways = ((SOME, True, None), (UUID(int=5_001), False, None), (UUID(int=5_002), True, "{}"))
    for approval_id, is_approved, edited in ways:
        given = (approval_id, is_approved, BY, digest, "why", "cli", None, None, edited)
        found = touched(big, query_text("approvals.decide"), *given)
        assert found.scans == 0
        assert found.rows <= FEW
    for query, more in (("approvals.link", (BY, "lost")), ("approvals.is_link", ())):
        found = touched(big, query_text(query), SOME, bytes(32), *more)
        assert found.scans == 0
        assert found.rows <= FEW
    found = touched(big, query_text("approvals.expire"), BATCH)
    assert found.scans == 0
    assert found.rows <= 20 * BATCH


def test_a_scan_would_be_found(big: str) -> None:
    """The guards see what they are there for."""
    sql(big, "DROP INDEX cortex.approval_pending")
    assert touched(big, query_text("approvals.expire"), BATCH).rows > WAITING / 2
    sql(big, "DROP INDEX cortex.approval_line")
    arguments, _ = STATEMENTS["approvals.of_line"]
    assert max(look.rows for look in explain(big, "approvals.of_line", arguments)) > WAITING / 2


@pytest.fixture
def crowd(big: str) -> Iterator[Session]:
    """Store methods as a pod calls them, on the large database."""
    sql(big, "ANALYZE")
    with open_session(Profile(dsn=big, hot_path=True)) as call:
        yield call


def test_waiting_jobs_do_not_slow_down_claims(big: str, crowd: Session) -> None:
    """A claim looks at no job that waits, and none of those has anything that a pod could hold."""
    holding = """
        SELECT count(*) AS n FROM cortex.job j LEFT JOIN cortex_worker.task t ON t.job_id = j.id
        WHERE j.status = 'WAITING_FOR_APPROVAL' AND (t.id IS NOT NULL OR j.pod_id IS NOT NULL)
    """
    assert sql(big, holding)[0]["n"] == 0
    submitted = "SELECT cortex.submit_job('work', '{}'::jsonb) FROM generate_series(1, 100)"
    sql(big, submitted)
    arguments = (POD, ["work"], BATCH, 1, 1, ["look_up"], ["alone"])
    looks = [look for look in explain(big, "tasks.claim", arguments) if look.table in TABLES]
    assert max(look.rows for look in looks) <= 8 * BATCH
    assert len(crowd(tasks.claim, pod_id=POD, types=["work"], limit=BATCH)) == BATCH


def test_thousands_expire_in_bounded_batches(big: str, crowd: Session) -> None:
    """Each statement stays within what a session allows it: a longer one would be cancelled."""
    done = 0
    while batch := crowd(approvals.expire).count:
        assert batch <= approvals.EXPIRE_BATCH
        done += batch
    assert done == DUE
    states = "SELECT count(*) AS n FROM cortex_worker.task WHERE state = 'READY'"
    assert sql(big, states)[0]["n"] == DUE
