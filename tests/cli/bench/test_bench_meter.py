"""The cost that measurements print: CPU of the pod, of the whole server, and written log."""

import os
import time

import asyncpg

from cortex.bench.meter import Cost, _scheduled_s, _Server, metered
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Profile
from tests.support.records.rows import seeded_random
from tests.support.servers.postgres import run_asyncio

TICK_S = 0.02  # the CPU of ended processes is counted in hundredths, twice
BURN_S = 0.1
LOG_BYTES = 300_000


async def _work_in_an_own_session(dsn: str) -> float:
    """Burn CPU and write log on the server in a session that ends; return the CPU that it took."""
    connection = await asyncpg.connect(dsn)
    try:
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        spent_s = 0.0
        while spent_s < BURN_S:
            await connection.execute("SELECT count(*) FROM generate_series(1, 100000) AS n")
            spent_s = _scheduled_s(pid)
        emit = "SELECT pg_logical_emit_message(false, 'bench', repeat('x', $1))"
        await connection.fetchval(emit, LOG_BYTES)
        return spent_s
    finally:
        connection.terminate()


async def test_a_cost_includes_sessions_that_end_meanwhile(database: str) -> None:
    async def work(_: Port) -> float:
        until = time.process_time() + BURN_S
        while time.process_time() < until:
            pass
        return run_asyncio(lambda: _work_in_an_own_session(database))

    async with open_port(Profile(dsn=database), rng=seeded_random()) as port:
        spent_s, cost = await metered(work, port)
    assert cost.pod_s >= BURN_S
    assert cost.postgres_s is not None
    assert cost.postgres_s >= spent_s - TICK_S
    assert cost.wal_bytes >= LOG_BYTES


def test_a_server_on_another_machine_is_not_confused_with_a_process_of_this_one() -> None:
    assert _Server.of(backend=os.getpid(), database="no_such_database") is None


def test_a_cost_is_divided_by_its_units() -> None:
    cost = Cost(pod_s=0.5, postgres_s=None, wal_bytes=30_000)
    assert cost.per("job", 10) == {
        "pod_us_per_job": 50_000.0,
        "postgres_us_per_job": None,
        "wal_bytes_per_job": 3_000,
    }
