"""However many jobs there are, a page of them is read by index and for a bounded amount of work."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import UPKEEP, JobStatus
from cortex.store.job_pages import LOOKED_MAX
from tests.sql.test_plans import POD, Look, explain
from tests.support.servers.postgres import sql

JOBS = 20_000
SAME_INSTANT = 6_000
LIMIT = 51
ALL = [status.value for status in JobStatus]
AGENT = POD
FILL = f"""
    SET session_replication_role = replica;
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    INSERT INTO cortex.agent (id, name, version)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'a' || n, 1 FROM generate_series(1, 100) n;
    INSERT INTO cortex.job_record (id, type, status, agent_id, agent_version, created_at,
                                   finished_at, next_retry_at, payload, tenant)
    SELECT lpad(to_hex(n), 32, '0')::uuid, CASE WHEN n = 1 THEN 'rare' ELSE 'work' END,
           CASE WHEN n % 1000 = 0 THEN 'RETRY' ELSE 'COMPLETED' END::cortex.job_status,
           lpad(to_hex(1 + n % 100), 32, '0')::uuid, 1,
           now() - greatest(n, {SAME_INSTANT}) * interval '1 second',
           CASE WHEN n % 1000 > 0 THEN now() END, CASE WHEN n % 1000 = 0 THEN now() END, '{{}}',
           CASE WHEN n % 50 = 0 THEN 'acme' ELSE 'default' END
    FROM generate_series(1, {JOBS}) n;
"""  # noqa: S608
FILL_WAITING = f"""
    SET session_replication_role = replica;
    ALTER TABLE cortex.job_record SET (autovacuum_enabled = false);
    INSERT INTO cortex.job_record (id, type, status, attempt, next_retry_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'RETRY', 1,
           now() + greatest(n, {SAME_INSTANT}) * interval '1 second', '{{}}'
    FROM generate_series(1, {JOBS}) n;
"""  # noqa: S608
NONE = [None] * 5
TIMES = [None] * 4

CASES = {
    "all": ((ALL, None, None, None, *NONE, *TIMES, None, None, LIMIT, LIMIT), LIMIT),
    "one state": ((["RETRY"], None, None, None, *NONE, *TIMES, None, None, LIMIT, LIMIT), LIMIT),
    "an agent": ((None, [AGENT], None, None, *NONE, *TIMES, None, None, LIMIT, LIMIT), LIMIT),
    "times": (
        (ALL, None, None, None, *NONE, 10_000.0, 13_600.0, None, None, None, None, LIMIT, LIMIT),
        LIMIT,
    ),
    "goes on": (
        (ALL, None, None, None, *NONE, *TIMES, AGENT, None, LIMIT, LIMIT),
        LIMIT,
    ),
    "nothing fits": (
        (ALL, None, None, None, ["none"], *NONE[1:], *TIMES, None, None, LOOKED_MAX, LIMIT),
        LOOKED_MAX,
    ),
    "an agent's in a state": (
        (None, [AGENT], None, ["FAILED"], *NONE, *TIMES, None, None, LOOKED_MAX, LIMIT),
        LOOKED_MAX,
    ),
    "ids": ((None, None, [AGENT], None, *NONE, *TIMES, None, None, LIMIT, LIMIT), 1),
}
REST = (None, None, list(UPKEEP), None, None, None, None, None, None, None)
OF_LETTERS = (None, None, None, None, ["OPEN|%", "ESCALATED|%"], ["PERMANENT"], None, 3600.0)
CASES["letters"] = (
    (["COMPLETED"], None, None, None, *NONE, *TIMES, None, None, LOOKED_MAX, LIMIT, *OF_LETTERS),
    LOOKED_MAX,
)
OF_ACME: list[Any] = [*[None] * 8, "acme", "acme"]
CASES["a tenant"] = (
    (None, None, None, None, *NONE, *TIMES, None, None, LIMIT, LIMIT, *OF_ACME),
    LIMIT,
)
MOST = len(CASES["a tenant"][0])
LOOKS_A_ROW = 5
"""Index entries, the row that they lead to, and what is shown of those that fit."""


@pytest.fixture
def many(filled: Callable[..., str]) -> str:
    """A database with 20,000 jobs, 6,000 of which were submitted at one instant."""
    return filled(FILL)


def looked_at(looks: list[Look]) -> int:
    """How many rows of jobs, or entries of their indexes."""
    return sum(each.rows for each in looks if each.table == "job_record")


def test_job_page_reads_few_jobs_of_any_number(many: str) -> None:
    offences: list[str] = []
    both_ways = [
        (query, case) for query in ("job_pages.page", "job_pages.page_up") for case in CASES
    ]
    for statistics in ("none yet", "fresh"):
        for query, name in both_ways:
            arguments, wanted = CASES[name]
            looks = explain(many, query, (*arguments, *REST)[:MOST])
            if not 0 < looked_at(looks) <= LOOKS_A_ROW * wanted:
                offences.append(f"{query} {name} (statistics: {statistics}): {looks}")
            offences += [f"{name}: {each}" for each in looks if each.node == "Seq Scan"]
        sql(many, "ANALYZE")
    assert not offences, "\n".join(["", *offences])


@pytest.fixture
def many_waiting(filled: Callable[..., str]) -> str:
    """A database with 20,000 jobs in RETRY, 6,000 of which are due at one instant."""
    return filled(FILL_WAITING)


DUE_CASES = {
    "all": ((*NONE, None, None, *TIMES, None, None), LIMIT, LIMIT),
    "goes on": ((*NONE, None, None, *TIMES, UUID(int=500), "2030-01-01"), LIMIT, LIMIT),
    "nothing fits": ((["none"], *NONE[1:], None, None, *TIMES, None, None), LOOKED_MAX, LIMIT),
    "ids": ((*NONE, None, [UUID(int=JOBS)], *TIMES, None, None), LOOKED_MAX, LIMIT),
    "times": (
        (*NONE, None, None, 10_000.0, 13_600.0, None, None, None, None),
        LOOKED_MAX,
        LIMIT,
    ),
}


def test_due_page_reads_few_jobs(many_waiting: str) -> None:
    offences: list[str] = []
    for statistics in ("none yet", "fresh"):
        for is_up in (False, True):
            for name, (arguments, wanted, limit) in DUE_CASES.items():
                looks = explain(
                    many_waiting,
                    "job_pages.page_due",
                    (*arguments, is_up, wanted, limit, None, None, None),
                )
                if looked_at(looks) > LOOKS_A_ROW * wanted:
                    offences.append(f"{name}, up: {is_up} (statistics: {statistics}): {looks}")
                offences += [f"{name}: {each}" for each in looks if each.node == "Seq Scan"]
        sql(many_waiting, "ANALYZE")
    assert not offences, "\n".join(["", *offences])


def test_an_index_without_the_id_would_be_found(many_waiting: str) -> None:
    sql(many_waiting, "DROP INDEX cortex.job_retry_due")
    sql(
        many_waiting,
        "CREATE INDEX job_retry_due ON cortex.job_record (next_retry_at) WHERE status = 'RETRY'",
    )
    arguments, wanted, limit = DUE_CASES["all"]
    looks = explain(
        many_waiting, "job_pages.page_due", (*arguments, False, wanted, limit, None, None, None)
    )
    assert looked_at(looks) >= SAME_INSTANT


def test_list_refresh_reads_visible_jobs_and_counts_to_its_cap(many: str) -> None:
    """Whatever is newer, and however many ended."""
    ids = [UUID(int=n) for n in range(1, LIMIT)]
    (oldest,) = sql(many, "SELECT id, created_at FROM cortex.job ORDER BY created_at, id LIMIT 1")
    for statistics in ("none yet", "fresh"):
        for place in ((oldest["created_at"], oldest["id"]), (None, None)):
            looks = explain(many, "job_pages.refresh", (ids, *place, LIMIT, LIMIT, list(UPKEEP)))
            assert looked_at(looks) <= LOOKS_A_ROW * LIMIT, (statistics, looks)
            scans = [
                each for each in looks if each.node == "Seq Scan" and each.table == "job_record"
            ]
            assert not scans, statistics
        sql(many, "ANALYZE")


def test_a_scan_would_be_found(many: str) -> None:
    """The guard sees what it is there for: an index that does not order those of one instant."""
    sql(many, "DROP INDEX cortex.job_status")
    sql(many, "CREATE INDEX job_status ON cortex.job_record (status, created_at DESC)")
    assert (
        looked_at(explain(many, "job_pages.page", (*CASES["all"][0], *REST)))
        >= SAME_INSTANT - JOBS // 1000
    )
