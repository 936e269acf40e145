"""The sweeper: silent pods lose their jobs after the threshold, and never because of an outage."""

import re

import pytest
import trio

from cortex.services.sweeper import BATCH_MAX, Sweeper
from cortex.store import pods, tasks
from tests.support.eventually import eventually_async
from tests.support.factories import JOB_TYPE, Bench
from tests.support.postgres import sql
from tests.support.rows import assert_one_truth, attempts, job_row, move_clock, new_id

ZOMBIE_S = 300.0


def a_sweeper(bench: Bench, *, zombie_s: float = ZOMBIE_S, sweep_s: float = 60.0) -> Sweeper:
    return Sweeper(
        bench.port, standing=bench.standing, zombie_s=zombie_s, sweep_s=sweep_s, rng=bench.rng
    )


def states(dsn: str) -> dict[str, int]:
    rows = sql(dsn, "SELECT state::text, count(*) AS n FROM cortex_worker.task GROUP BY state")
    return {row["state"]: row["n"] for row in rows}


async def test_a_job_is_freed_when_its_pod_was_silent_beyond_the_threshold(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed()
    sweeper = a_sweeper(bench)
    for seconds, state in ((0, "LOCKED"), (ZOMBIE_S - 5, "LOCKED"), (ZOMBIE_S + 5, "READY")):
        move_clock(database, seconds)
        await sweeper.tick()
        row = job_row(database, claim.lease.job_id)
        assert (row["status"], row["task_state"], row["attempts_spent"]) == ("RUNNING", state, 1)
    assert attempts(database, claim.lease.job_id) == [(1, "lease_expired")]
    assert_one_truth(database)


async def test_the_last_attempt_fails_with_the_time_of_the_last_heartbeat(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed(worker_attempts=1)
    beat_at = job_row(database, claim.lease.job_id)["heartbeat_at"]
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick()
    row = job_row(database, claim.lease.job_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "lease_expired")
    told = re.search(r"last heartbeat (\S+)$", row["error_message"])
    assert told is not None
    assert told[1] == beat_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert_one_truth(database)


async def test_an_outage_does_not_become_a_stampede(bench: Bench, database: str) -> None:
    await bench.claimed(BATCH_MAX + 20)
    oldest = sql(database, "SELECT id FROM cortex.job ORDER BY random() LIMIT 20")
    ids = [row["id"] for row in oldest]
    query = (
        "UPDATE cortex.job SET heartbeat_at = heartbeat_at - interval '60 s' WHERE id = ANY ($1)"
    )
    sql(database, query, ids)
    move_clock(database, ZOMBIE_S + 5)
    sweeper = a_sweeper(bench)
    await sweeper.tick()
    assert states(database) == {"READY": BATCH_MAX, "LOCKED": 20}
    assert {job_row(database, job_id)["task_state"] for job_id in ids} == {"READY"}
    await sweeper.tick()
    assert states(database) == {"READY": BATCH_MAX + 20}


@pytest.mark.parametrize("doubt", ["lost", "fenced"])
async def test_a_pod_that_is_not_sure_of_itself_sweeps_nobody(
    bench: Bench, database: str, doubt: str
) -> None:
    await bench.claimed()
    move_clock(database, ZOMBIE_S + 5)
    if doubt == "lost":
        bench.standing.lost()
    else:
        bench.standing.beaten(trio.current_time() - 61)
    await a_sweeper(bench).tick()
    assert states(database) == {"LOCKED": 1}


async def test_after_an_outage_it_is_quiet_for_one_threshold(bench: Bench, database: str) -> None:
    """The others could not write their heartbeats either."""
    await bench.claimed()
    move_clock(database, 1000)
    quiet_s = 0.5
    bench.port.refuse(tasks.sweep)
    sweeper = a_sweeper(bench, zombie_s=quiet_s, sweep_s=0.02)
    await bench.start(sweeper)
    await eventually_async(lambda: bench.port.faults_left == 0, what="it met the outage")
    met_at = trio.current_time()
    await sweeper.tick()
    assert states(database) == {"LOCKED": 1}
    await eventually_async(lambda: states(database) == {"READY": 1}, what="it sweeps again")
    assert trio.current_time() - met_at >= quiet_s - 0.1


async def test_it_is_quiet_after_an_outage_that_only_the_heartbeat_met(
    bench: Bench, database: str
) -> None:
    """An unsure pod asks the database nothing; back again, it must not sweep all the others."""
    await bench.claimed()
    move_clock(database, 1000)
    sweeper = a_sweeper(bench)
    bench.standing.lost()
    await sweeper.tick()
    bench.standing.locked()
    await sweeper.tick()
    assert states(database) == {"LOCKED": 1}


async def test_a_silent_pod_without_jobs_is_retired(bench: Bench, database: str) -> None:
    await bench.port(pods.register, bench.pod)
    move_clock(database, 2 * ZOMBIE_S - 5)
    await a_sweeper(bench).tick()
    assert sql(database, "SELECT state FROM cortex.pod")[0]["state"] == "READY"
    move_clock(database, 2 * ZOMBIE_S + 5)
    await a_sweeper(bench).tick()
    assert sql(database, "SELECT state FROM cortex.pod")[0]["state"] == "DEAD"


async def test_a_swept_job_refuses_its_old_owner_and_takes_a_new_one(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed()
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick()
    heir = new_id()
    (again,) = await bench.port(tasks.claim, pod_id=heir, types=[JOB_TYPE], limit=5)
    assert again.lease.job_id == claim.lease.job_id
    assert again.lease.attempt == claim.lease.attempt + 1
