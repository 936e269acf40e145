"""However many letters are settled, those that wait for a decision are found among themselves."""

from collections.abc import Callable

import pytest

from cortex.domain.dead_letter import UNRESOLVED
from tests.sql.test_plans import explain
from tests.support.servers.postgres import sql

WAITING = 300
SETTLED = 20_000
FILL = f"""
    SET session_replication_role = replica;
    ALTER TABLE cortex.dead_letter SET (autovacuum_enabled = false);
    INSERT INTO cortex.dead_letter (job_id, lineage_id, fingerprint, type, tenant, created_at,
                                    state, resolved_at, resolved_by)
    SELECT lpad(to_hex(n), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, 'error' || n % 10,
           'work', 'default', now() - n * interval '1 second',
           CASE WHEN n > {SETTLED} THEN 'OPEN' ELSE 'DISCARDED' END,
           CASE WHEN n <= {SETTLED} THEN now() END, CASE WHEN n <= {SETTLED} THEN 'ana' END
    FROM generate_series(1, {SETTLED + WAITING}) n;
    INSERT INTO cortex.job_record (id, type, status, attempt, started_at, finished_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'COMPLETED', 1, now(), now(), '{{}}'
    FROM generate_series({SETTLED + 1}, {SETTLED + WAITING}) n;
"""  # noqa: S608
NONE = [None] * 15
OF_ERROR = [f"{state}|error7%" for state in UNRESOLVED]
LOOKED, LIMIT = 1000, 1000
STATEMENTS: dict[str, tuple[object, ...]] = {
    "dead_letters.groups": (None, *NONE, True, LIMIT, LOOKED, None),
    "dead_letters.page": (None, *NONE, True, None, LIMIT, None),
    "dead_letters.newest_of": ("error7", LOOKED, LIMIT, None),
    "dead_letters.choose": (OF_ERROR, *NONE, LIMIT, None, None),
}


@pytest.fixture
def settled(filled: Callable[..., str]) -> str:
    """20,000 letters that are done with, newer than 300 that wait, in the same errors."""
    return filled(FILL)


def most_looked_at(dsn: str, name: str) -> int:
    """The most letters that one look took, those that it left out included."""
    looks = explain(dsn, name, STATEMENTS[name])
    return max(each.rows for each in looks if each.table == "dead_letter")


def test_settled_letters_are_never_read(settled: str) -> None:
    for statistics in ("none yet", "fresh"):
        for name in STATEMENTS:
            assert 0 < most_looked_at(settled, name) <= WAITING, (name, statistics)
        sql(settled, "ANALYZE")


def test_a_scan_would_be_found(settled: str) -> None:
    """The guard sees what it is there for: without the index of those that wait all are read."""
    sql(settled, "DROP INDEX cortex.dead_letter_unresolved")
    assert most_looked_at(settled, "dead_letters.choose") > SETTLED
