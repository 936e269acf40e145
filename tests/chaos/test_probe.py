"""The probe's samples of a real server, also across the server's death."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from chaos.history import Event, History
from chaos.probe import Probe
from tests.support.eventually import eventually_asyncio
from tests.support.servers.postgres import migrate, run_asyncio
from tests.support.servers.private_postgres import PrivatePostgres

SEEN_WITHIN_S = 20.0
POD = {"application_name": "cortex"}


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with closing(History(tmp_path / "history.jsonl")) as written:
        yield written


def test_probe_shows_waiting_and_blocking_sessions(database: str, history: History) -> None:
    async def look() -> dict[str, Any]:
        holder, waiter = [await asyncpg.connect(database, server_settings=POD) for _ in range(2)]
        await holder.execute("BEGIN; LOCK TABLE cortex.job_record IN EXCLUSIVE MODE")
        the_same = "BEGIN; LOCK TABLE cortex.job_record IN EXCLUSIVE MODE; ROLLBACK"
        waiting = asyncio.create_task(waiter.execute(the_same))
        probe = Probe(lambda: database, history=history)
        async with asyncio.timeout(SEEN_WITHIN_S):
            while not (history.events and len(history.events[-1].value["slow"]) == 2):
                await probe.sample()
        await holder.close()
        await waiting
        await waiter.close()
        await probe.close()
        return history.events[-1].value

    seen = run_asyncio(look)
    assert {slow["what"] for slow in seen["slow"]} == {"idle in transaction", "waits for a lock"}
    assert all(slow["for_s"] > 0.5 for slow in seen["slow"])
    assert "LOCK TABLE cortex.job_record" in seen["slow"][0]["query"]
    assert (seen["sessions"], seen["idle_in_transaction"]) == (2, 1)
    assert (seen["ready"], seen["locked"], seen["slots"], seen["silent"]) == (0, 0, 0, [])


def test_probe_samples_until_cancelled(database: str, history: History) -> None:
    async def look() -> None:
        running = asyncio.create_task(Probe(lambda: database, history=history, period_s=0.01).run())
        await eventually_asyncio(lambda: len(history.events) >= 3, what="three looks")
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    run_asyncio(look)
    assert all(event.value["up"] for event in history.events)


def test_probe_counts_silent_and_ready_jobs(database: str, history: History) -> None:
    async def look() -> Event:
        connection = await asyncpg.connect(database)
        for _ in range(3):
            await connection.execute("SELECT cortex.submit_job('digest')")
        await connection.execute("""
            UPDATE cortex_worker.task SET state = 'LOCKED', locked_by = cortex.uuid7(),
                locked_at = now(), heartbeat_at = now() - interval '7 seconds'
            WHERE job_id = (SELECT id FROM cortex.job ORDER BY id LIMIT 1)
        """)
        await connection.close()
        probe = Probe(lambda: database, history=history)
        await probe.sample()
        await probe.close()
        return history.events[-1]

    seen = run_asyncio(look).value
    assert seen["ready"] == 2
    assert [round(silent["for_s"]) for silent in seen["silent"]] == [7]


def test_probe_survives_a_server_outage(
    private_postgres: PrivatePostgres, history: History
) -> None:
    migrate(private_postgres.dsn)

    async def look() -> list[bool]:
        probe = Probe(lambda: private_postgres.dsn, history=history)
        await probe.sample()
        await asyncio.to_thread(private_postgres.kill)
        await probe.sample()
        await probe.sample()
        await asyncio.to_thread(private_postgres.start)
        await probe.sample()
        await probe.close()
        return [event.value["up"] for event in history.events]

    assert run_asyncio(look) == [True, False, False, True]
    assert all("\n" not in e.value["why"] for e in history.events if not e.value["up"])
