"""However long the history, the pulse reads its end; of letters, people see the newest of them."""

import asyncpg
import pytest

from cortex.store import pulse
from tests.sql.test_plans import explain
from tests.support.servers.postgres import run_asyncio, sql

FILL = """
    SET session_replication_role = replica;
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, at, metadata)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'PENDING', 'RUNNING', 1,
           now() - (20000 - n) * interval '10 milliseconds', '{}'
    FROM generate_series(1, 20000) n;
    INSERT INTO cortex.job_record (id, type, status, attempt, started_at, finished_at, payload)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'work', 'COMPLETED', 1, now(), now(), '{}'
    FROM generate_series(18001, 20000) n;
    INSERT INTO cortex.fact (at, type, subtype, source, amount, currency, data)
    SELECT now() - n * interval '1 second', CASE n % 2 WHEN 0 THEN 'cost' ELSE 'error' END, 'x',
           'llm:gpt', 0.01, 'USD', '{}'
    FROM generate_series(1, 4000) n;
    INSERT INTO cortex.dead_letter (
        job_id, lineage_id, fingerprint, type, tenant, created_at, state, resolved_at, resolved_by)
    SELECT lpad(to_hex(20001 - n), 32, '0')::uuid, gen_random_uuid(), 'x' || n % 7, 'work',
           'default', now() - n * interval '1 second',
           CASE n % 4 WHEN 0 THEN 'DISCARDED' WHEN 2 THEN 'ARCHIVED' ELSE 'OPEN' END,
           CASE WHEN n % 4 = 0 THEN now() END, CASE WHEN n % 4 = 0 THEN 'ana' END
    FROM generate_series(1, 4000) n;
"""
BLOCKS, WAITS, CALLS = 64, 5, 500
LETTERS, ERRORS = 700, 50
SHOWN = 20
ROWS_A_BLOCK_MAX = 130
"""8,192 bytes, and a row of history takes 70 at least."""


@pytest.mark.timeout(300)
def test_pulse_reads_only_the_end_of_the_history(database: str) -> None:
    async def fill() -> None:
        connection = await asyncpg.connect(database)
        await connection.execute(FILL)
        await connection.close()

    run_asyncio(fill)
    sql(database, "VACUUM cortex.dead_letter")
    recent = (pulse.BUCKET_S, pulse.BUCKETS, BLOCKS, WAITS, pulse.COST_S, CALLS)
    most = {
        "pulse.recent": {
            "job_history": BLOCKS * ROWS_A_BLOCK_MAX,
            "job_record": pulse.BUCKETS * WAITS,
            "fact": CALLS,
        },
        "pulse.errors": {"fact": CALLS, "dead_letter": CALLS},
        "pulse.attention": {"dead_letter": SHOWN, "job_record": SHOWN},
        "dead_letters.newest_of": {"dead_letter": LETTERS + ERRORS, "job_record": ERRORS},
        "dead_letters.groups": {"dead_letter": LETTERS + ERRORS, "job_record": ERRORS},
        "dead_letters.page": {"dead_letter": LETTERS + 1, "job_record": LETTERS},
        # An error and a probe for each of the seven fingerprints, and letters for their tenants.
        "dead_letters.known": {"dead_letter": LETTERS + 2 * 7},
    }
    arguments: dict[str, tuple[object, ...]] = {
        "pulse.recent": recent,
        "pulse.errors": (20_000.0, CALLS),
        "pulse.attention": (SHOWN,),
        "dead_letters.newest_of": ("x1", LETTERS, ERRORS, None),
        "dead_letters.groups": (*[None] * 16, False, ERRORS, LETTERS, None),
        "dead_letters.page": (*[None] * 16, False, None, LETTERS, None),
        "dead_letters.known": (1000, LETTERS),
    }
    for statistics in ("none yet", "fresh"):
        for name, given in arguments.items():
            looks = explain(database, name, given)
            for table, rows in most[name].items():
                found = [each for each in looks if each.table == table]
                assert not [each for each in found if each.node == "Seq Scan"], (statistics, name)
                seen = sum(each.rows for each in found)
                assert 0 < seen <= rows + 10, (statistics, name, table, looks)
        sql(database, "ANALYZE")
