"""However many jobs there are, those with waiting clients are found by index."""

import asyncpg

from cortex.store.feed import RESULT_BYTES_MAX
from tests.sql.test_plans import BATCH, IDS, POD, ROWS_PER_WANTED, big, explain
from tests.support.servers.postgres import run_asyncio, sql

__all__ = ["big"]

FILL = """
    SET session_replication_role = replica;
    INSERT INTO cortex.watch (job_id, watcher, pod_id, until)
    SELECT j.id, lpad(to_hex(n), 32, '0')::uuid, j.pod_id,
           now() + CASE WHEN n = 1 THEN 1 ELSE -1 END * interval '1 minute'
    FROM cortex.job j, generate_series(1, 3) n WHERE j.status = 'RUNNING';
    INSERT INTO cortex.said (at, payload)
    SELECT now() - n * interval '1 second', 'x' FROM generate_series(1, 4000) n;
    INSERT INTO cortex.job_history (job_id, new, attempt, at, metadata)
    SELECT id, 'RUNNING', 1, now(), '{}' FROM cortex.job, generate_series(1, 2);
    INSERT INTO cortex.job_attempt (job_id, attempt, outcome, due_at)
    SELECT id, 1, 'failed', now() FROM cortex.job;
"""
ZEROS = [0] * BATCH
FUNCTIONS = {
    "cortex.job_results(uuid[], bigint)": ((IDS, RESULT_BYTES_MAX), BATCH),
    "cortex.job_events(uuid[], bigint[], int[], int[], int[], int)": (
        (IDS, ZEROS, ZEROS, ZEROS, ZEROS, 10),
        BATCH,
    ),
}
"""The statements inside of `feed.results` and `feed.since`."""
STATEMENTS = {
    "watches.of_pod": ((POD,), 3 * BATCH),
    "watches.watch": ((POD, IDS, 30.0, IDS), 4 * BATCH),
    "watches.unwatch": ((POD, IDS), BATCH),
    "watches.said": ((5.0, [1, 2], BATCH), BATCH),
    "watches.forget": ((10.0, BATCH), BATCH),
}


def test_feed_statements_read_only_the_wanted_jobs(big: str) -> None:
    async def fill() -> None:
        connection = await asyncpg.connect(big)
        await connection.execute(FILL)
        await connection.close()

    run_asyncio(fill)
    offences: list[str] = []
    for statistics in ("none yet", "fresh"):
        for name, (arguments, wanted) in (STATEMENTS | FUNCTIONS).items():
            text = body_of(big, name) if name in FUNCTIONS else None
            found = explain(big, name, arguments, text=text)
            assert found, name
            offences += [
                f"{name} (statistics: {statistics}): {look}"
                for look in found
                if look.table != "pod"
                and (look.node == "Seq Scan" or look.rows > ROWS_PER_WANTED * wanted)
            ]
        sql(big, "ANALYZE")
    assert not offences, "\n".join(["", *offences])


def body_of(dsn: str, function: str) -> str:
    """The one statement of a function, its parameters as $1, $2 …, with their types."""
    query = """
        SELECT prosrc, oidvectortypes(proargtypes) AS types FROM pg_proc
        WHERE oid = $1::text::regprocedure
    """
    (found,) = sql(dsn, query, function)
    _, _, rest = found["prosrc"].partition("RETURN QUERY")
    statement, _, _ = rest.rpartition(";\nEND")
    assert statement.strip()
    return f"({found['types']}) AS {statement}"
