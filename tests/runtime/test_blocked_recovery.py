"""Rows of lost jobs that another session locks: recovery does not wait, and reports them."""

import os
import signal
from collections.abc import MutableMapping
from typing import Any
from uuid import UUID

import orjson
import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.runtime.liveness.sweeper import ALARM_S, Sweeper
from cortex.runtime.metrics.metrics import Metrics
from cortex.store import pods, tasks
from tests.support.eventually import eventually, eventually_async
from tests.support.holder import holding_task
from tests.support.records.factories import JOB_TYPE, VITALS, Bench, a_pod
from tests.support.records.messages import announced, subscribe
from tests.support.records.rows import job_row, move_clock
from tests.support.servers.postgres import sql

Lines = list[MutableMapping[str, Any]]
ZOMBIE_S = 300.0
NO_BOUND = {"statement_timeout": "0", "transaction_timeout": "0"}


def a_sweeper(bench: Bench, metrics: Metrics | None = None) -> Sweeper:
    bench.self_fence._steady_since -= 1000
    return Sweeper(
        bench.port,
        pod_id=bench.pod.id,
        self_fence=bench.self_fence,
        zombie_s=ZOMBIE_S,
        sweep_s=0.0,
        batch_max=10,
        rng=bench.rng,
        metrics=metrics,
    )


async def two_silent_jobs(bench: Bench, dsn: str) -> tuple[UUID, UUID]:
    held, free = [claim.lease.job_id for claim in await bench.claimed(2)]
    move_clock(dsn, ZOMBIE_S + 5)
    return held, free


@pytest.mark.parametrize("table", ["cortex_worker.task", "cortex.job_record"])
async def test_sweep_skips_a_locked_job_and_logs_the_holder(
    bench: Bench, database: str, log_lines: Lines, table: str
) -> None:
    held, free = await two_silent_jobs(bench, database)
    metrics = Metrics()
    sweeper = a_sweeper(bench, metrics)
    with holding_task(database, held, table=table) as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        subscribe(database, "recovery.*")
        await sweeper.tick(TickBudget())
        assert job_row(database, held)["status"] == "RUNNING"
        assert job_row(database, free)["status"] == "RETRY"
        (line,) = [each for each in log_lines if "locked by another session" in each["event"]]
        assert (line["jobs"], line["job"], line["for_s"]) == (1, str(held), 0)
        assert line["holder"]["state"] == "idle in transaction"
        assert line["holder"]["application"] == "cortex"
        assert line["held_by"] == f"process {line['holder']['pid']}"
        assert sql(database, "SELECT FROM cortex.fact WHERE type = 'lifecycle'") == []
        sweeper._blocked_since -= ALARM_S
        for _ in range(2):
            await sweeper.tick(TickBudget())
        (fact,) = sql(database, "SELECT * FROM cortex.fact WHERE type = 'lifecycle'")
        assert (fact["subtype"], fact["source"]) == ("recovery_blocked", line["held_by"])
        ((topic, key, payload),) = announced(database)
        assert (topic, key, payload["count"]) == ("recovery.blocked", line["held_by"], 1)
        data = orjson.loads(fact["data"])
        assert (data["jobs"], data["count"]) == ([str(held)], 1)
        assert data["for_s"] >= ALARM_S
        assert data["holder"]["pid"] == line["holder"]["pid"]
    await eventually_async(lambda: not locks(database), what="its end frees the row")
    await sweeper.tick(TickBudget())
    assert job_row(database, held)["status"] == "RETRY"
    (blocked,) = [f for f in metrics.families() if f.name == "cortex_recovery_blocked"]
    assert [sample.value for sample in blocked.samples] == [3]


async def test_locked_job_of_a_dead_pod_is_reported_and_taken_later(
    bench: Bench, database: str, log_lines: Lines
) -> None:
    dead = a_pod()
    await bench.port(pods.register, dead)
    (job_id,) = await bench.submit()
    await bench.port(tasks.claim, pod_id=dead.id, types=[JOB_TYPE], limit=1)
    take = {"pod_id": dead.id, "deaths_max": 3, "limit": 10}
    with holding_task(database, job_id, table="cortex.job_record"):
        taken = await bench.port(tasks.take_over, **take)
        assert (taken.is_dead, taken.is_done, taken.count) == (True, False, 0)
        await a_sweeper(bench).tick(TickBudget())
        assert not any("locked by another session" in line["event"] for line in log_lines), (
            "not overdue yet"
        )
        found = await bench.port(tasks.blocked, silent_s=ZOMBIE_S, overdue_s=0.0)
        assert [(each.job_id, each.pod) for each in found] == [(job_id, dead.name)]
    await eventually_async(lambda: not locks(database), what="its end frees the row")
    assert await bench.port(tasks.blocked, silent_s=ZOMBIE_S, overdue_s=0.0) == []
    assert (await bench.port(tasks.take_over, **take)).is_done


async def test_locked_job_is_reported_while_the_pod_may_not_sweep(
    bench: Bench, database: str, log_lines: Lines
) -> None:
    """A pod that began a moment ago, or that has trouble of its own now and then."""
    held, free = await two_silent_jobs(bench, database)
    sweeper = a_sweeper(bench)
    bench.self_fence._steady_since = trio.current_time()
    with holding_task(database, held):
        await sweeper.tick(TickBudget())
    (line,) = [each for each in log_lines if "locked by another session" in each["event"]]
    assert (line["jobs"], line["job"]) == (1, str(held))
    assert job_row(database, free)["status"] == "RUNNING"


async def test_a_stopped_pod_loses_the_rows_that_it_holds(bench: Bench, database: str) -> None:
    """Postgres never notices that a client is stopped; its transactions end by their bounds."""
    held, _ = await two_silent_jobs(bench, database)
    sweeper = a_sweeper(bench)
    with holding_task(database, held, idle_in_transaction_session_timeout="500ms") as holder:
        os.kill(holder.pid, signal.SIGSTOP)
        eventually(lambda: not locks(database), what="its rows are free")
        assert holder.poll() is None
        await sweeper.tick(TickBudget())
    assert job_row(database, held)["status"] == "RETRY"


async def test_a_pod_killed_in_the_middle_of_a_statement_is_noticed(
    bench: Bench, database: str
) -> None:
    """Not at the end of its statement: each second the server checks for its client."""
    held, _ = await two_silent_jobs(bench, database)
    statement = "SELECT pg_sleep(3600)"
    with holding_task(database, held, then=statement, **NO_BOUND) as holder:
        eventually(lambda: runs(database, statement), what="its statement runs")
        holder.kill()
        eventually(lambda: not locks(database), what="its rows are free")
        await a_sweeper(bench).tick(TickBudget())
    assert job_row(database, held)["status"] == "RETRY"


async def test_heartbeats_do_not_wait_for_a_row_that_somebody_holds(
    bench: Bench, database: str
) -> None:
    """Else one transaction that is forgotten would make a whole pod look dead."""
    await bench.port(pods.register, bench.pod)
    held, free = [claim.lease for claim in await bench.claimed(2)]
    move_clock(database, 60)
    with holding_task(database, held.job_id):
        session = bench.port.dedicated(on_lost=lambda: None)
        await bench.port.cross(session.open)
        owned = await bench.port.cross(
            pods.beat, session, pod_id=bench.pod.id, leases=[held, free], vitals=VITALS
        )
        await bench.port.cross(session.close)
    assert owned == {held.job_id, free.job_id}
    ages = "SELECT id, cortex.now() - heartbeat_at < interval '30 s' AS is_new FROM cortex.job"
    assert {row["id"]: row["is_new"] for row in sql(database, ages)} == {
        held.job_id: False,
        free.job_id: True,
    }


def locks(dsn: str) -> bool:
    """Whether a session with a pod's settings has a transaction open that wrote or locked."""
    query = """
        SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND backend_xid IS NOT NULL
    """
    return bool(sql(dsn, query))


def runs(dsn: str, statement: str) -> bool:
    query = "SELECT FROM pg_stat_activity WHERE query = $1 AND state = 'active'"
    return bool(sql(dsn, query, statement))
