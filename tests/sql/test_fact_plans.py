"""However many facts there are, a page of them is found by index."""

from collections.abc import Callable
from uuid import UUID

import pytest

from tests.sql.test_plans import explain
from tests.support.servers.postgres import sql

FILL = """
    INSERT INTO cortex.fact (at, type, subtype, source, job_id, data)
    SELECT now() - (n % 5000) * interval '1 second',
           (ARRAY['error', 'cost', 'lifecycle'])[1 + n % 3], 'x',
           'llm:m' || n % 500, lpad(to_hex(n % 1000), 32, '0')::uuid, '{}'
    FROM generate_series(1, 20000) n;
"""
JOB = UUID(int=7)
TYPES = ["error", "cost", "lifecycle"]
DAY_S = 86_400.0
LOOKED_AT_MAX = 300


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("facts.page", (TYPES, DAY_S, None, 20, None, None, None)),
        ("facts.page", (TYPES, DAY_S, 9000, 20, None, None, None)),
        ("facts.page", (TYPES, DAY_S, None, 20, None, None, "acme")),
        ("facts.page", (TYPES, DAY_S, 9000, 20, "llm:m7", None, "nobody")),
        ("facts.page", (TYPES, DAY_S, 9000, 20, "llm:m7", None, None)),
        ("facts.page", (TYPES, DAY_S, 9000, 20, None, JOB, None)),
        ("facts.changes_of_job", (JOB, 20)),
    ],
)
def test_fact_pages_read_few_rows(
    filled: Callable[..., str], name: str, arguments: tuple[object, ...]
) -> None:
    looks = [look for look in explain(filled(FILL), name, arguments) if look.table == "fact"]
    assert looks
    assert not [look for look in looks if look.node == "Seq Scan"]
    assert sum(look.rows for look in looks) <= LOOKED_AT_MAX


CHANGES, ERRORS = 5, 3
NAMES = [f"llm:m{n}" for n in range(10)]


def test_breaker_history_reads_only_the_rows_it_returns(
    filled: Callable[..., str],
) -> None:
    """However much was recorded in the hour, also of each."""
    database = filled(FILL)
    noted = """INSERT INTO cortex.fact (at, type, subtype, source, data)
        SELECT now() - m * interval '1 second', type, subtype, 'llm:m' || n, data::jsonb
        FROM generate_series(0, 9) n, generate_series(1, 20) m, (VALUES
            ('lifecycle', 'breaker_opened', '{"before": "CLOSED", "after": "OPEN"}'),
            ('error', 'overloaded', '{"class": "TRANSIENT_APP"}'),
            ('error', 'invalid', '{"class": "PERMANENT"}')) AS k(type, subtype, data)"""
    sql(database, noted)
    for statistics in ("none yet", "fresh"):
        arguments = (NAMES, 3600.0, CHANGES, ERRORS)
        looks = [
            each for each in explain(database, "breakers.past", arguments) if each.table == "fact"
        ]
        seen = sum(look.rows for look in looks)
        assert seen == len(NAMES) * (CHANGES + ERRORS), (statistics, looks)
        sql(database, "ANALYZE cortex.fact")


def test_the_figures_of_agents_read_only_their_latest_calls(filled: Callable[..., str]) -> None:
    """However many calls an agent has had, and whoever had most of them."""
    database = filled(FILL)
    sql(
        database,
        """INSERT INTO cortex.agent (id, name, version)
           SELECT lpad(to_hex(n), 32, '0')::uuid, 'a' || n, 1 FROM generate_series(1, 3) n""",
    )
    sql(
        database,
        """INSERT INTO cortex.fact (at, type, subtype, agent_id, tenant, data)
           SELECT now(), 'cost', 'model_call', lpad(to_hex(1 + n % 3), 32, '0')::uuid,
                  CASE WHEN n <= 6 THEN 'acme' ELSE 'default' END,
                  '{"usage": {"cache_read_tokens": 9, "input_tokens": 1}, "saved_usd": "0.5"}'
           FROM generate_series(1, 6000) n""",
    )
    for statistics in ("none yet", "fresh"):
        for tenant, each in ((None, 20), ("default", 20), ("acme", 2)):
            arguments = (["a1", "a2"], 20, tenant)
            found = explain(database, "specs.cache_uses", arguments)
            seen = sum(look.rows for look in found if look.table == "fact")
            assert seen == 2 * each, (statistics, tenant, found)
        sql(database, "ANALYZE cortex.fact")
