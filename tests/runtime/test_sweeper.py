"""The sweeper: silent pods lose their jobs after the threshold, and never because of an outage."""

import re
from uuid import UUID

import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.domain.backoff import Backoff
from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import UnavailableError
from cortex.domain.job import (
    Finish,
    JobStatus,
    Lease,
    NumberedStep,
    StepDone,
    StepKind,
    Suspend,
)
from cortex.domain.policy import JobPolicy, RuntimeConfig
from cortex.domain.prices import LIST_PRICES
from cortex.durable.tally import Tally
from cortex.runtime.liveness.sweeper import CALM_S, Sweeper
from cortex.store import configs, jobs, pods, retries, steps, tasks
from tests.support.eventually import eventually_async
from tests.support.holder import holding
from tests.support.records.factories import JOB_TYPE, Bench
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    history,
    hold_turns,
    job_row,
    move_clock,
    new_id,
)
from tests.support.servers.postgres import sql

ZOMBIE_S = 300.0
SWEEP_S = 60.0
BATCH_MAX = 20


def a_sweeper(bench: Bench, *, zombie_s: float = ZOMBIE_S, sweep_s: float = SWEEP_S) -> Sweeper:
    """A pod that has been healthy for longer than any threshold, however long its server serves."""
    bench.self_fence._steady_since -= zombie_s + 1000
    return Sweeper(
        bench.port,
        pod_id=bench.pod.id,
        self_fence=bench.self_fence,
        zombie_s=zombie_s,
        sweep_s=sweep_s,
        batch_max=BATCH_MAX,
        rng=bench.rng,
    )


def statuses(dsn: str) -> dict[str, int]:
    rows = sql(dsn, "SELECT status::text, count(*) AS n FROM cortex.job GROUP BY status")
    return {row["status"]: row["n"] for row in rows}


async def test_a_job_is_tried_again_when_its_pod_was_silent_beyond_the_threshold(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed(queue_name="q", job_key="k")
    job_id = claim.lease.job_id
    sweeper = a_sweeper(bench)
    for seconds in (ZOMBIE_S - SWEEP_S, ZOMBIE_S + 5):
        assert job_row(database, job_id)["status"] == "RUNNING"
        move_clock(database, seconds)
        await sweeper.tick(TickBudget())
    row = job_row(database, job_id)
    assert (row["status"], row["retry_count"], row["task_state"]) == ("RETRY", 1, None)
    assert (row["pod_id"], row["heartbeat_at"]) == (None, None)
    assert 0 <= (row["next_retry_at"] - row["now"]).total_seconds() + 1 <= 2, "1 s at first"
    assert attempts(database, job_id) == [(1, "lease_expired")]
    assert history(database, job_id)[-1][:2] == ("RUNNING", "RETRY")
    (fact,) = sql(database, "SELECT * FROM cortex.fact")
    assert (fact["type"], fact["subtype"], fact["attempt"]) == ("error", "lease_expired", 1)
    assert_one_truth(database)
    move_clock(database, ZOMBIE_S + 10)
    assert (await bench.port(retries.due)).count == 1
    assert (job_row(database, job_id)["job_key"], job_row(database, job_id)["queue_name"]) == (
        "k",
        "q",
    )
    (again,) = await bench.claim()
    assert (again.lease.attempt, again.attempts_spent) == (2, 1)
    assert_one_truth(database)


@pytest.mark.parametrize("overridden", [False, True], ids=["by its type", "by its agent"])
async def test_swept_job_pauses_by_its_own_policy_with_jitter(
    bench: Bench, database: str, overridden: bool
) -> None:
    policy = JobPolicy(backoff=Backoff(base_s=1000.0, cap_s=3000.0, multiplier=2.0))
    config = RuntimeConfig(policies={JOB_TYPE: policy}, prices=LIST_PRICES)
    config_id = await bench.port(configs.ensure, config.to_json())
    agent = "patient" if overridden else None
    if overridden:
        sql(
            database,
            """
            WITH a AS (INSERT INTO cortex.agent (id, name, version) VALUES ($1, 'patient', 1))
            INSERT INTO cortex.agent_version (agent_id, version, spec, digest, applied_by)
            VALUES ($1, 1, '{"limits": {"backoff": {"base_seconds": 50000, "cap_seconds": 50000,
                    "multiplier": null}}}', sha256('x'), 'ana')
            """,
            new_id(),
        )
    ids = await bench.submit(BATCH_MAX, agent=agent)
    claim = {"pod_id": bench.pod.id, "types": [JOB_TYPE], "limit": BATCH_MAX}
    await bench.port(tasks.claim, **claim, config_id=config_id)
    sql(database, "UPDATE cortex.job_record SET retry_count = 2 WHERE id = $1", ids[0])
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    rows = [job_row(database, job_id) for job_id in ids]
    pauses_s = [(row["next_retry_at"] - row["now"]).total_seconds() for row in rows]
    highest_s = 50_000 if overridden else 1000
    assert all(-1 <= pause_s <= highest_s for pause_s in pauses_s[1:])
    assert max(pauses_s[1:]) > highest_s * 0.6
    assert min(pauses_s[1:]) < highest_s * 0.4
    assert pauses_s[0] <= (50_000 if overridden else 3000)


async def test_job_without_retries_fails_with_its_last_heartbeat(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed(max_retries=0)
    beat_at = job_row(database, claim.lease.job_id)["heartbeat_at"]
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    row = job_row(database, claim.lease.job_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "lease_expired")
    message = re.search(r"last heartbeat (\S+)$", row["error_message"])
    assert message is not None
    assert message[1] == beat_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    (letter,) = sql(database, "SELECT error_code, state FROM cortex.dead_letter")
    assert tuple(letter) == ("lease_expired", "OPEN")
    assert_one_truth(database)


async def test_sweep_cancels_a_job_with_a_cancel_request(bench: Bench, database: str) -> None:
    (claim,) = await bench.claimed(max_retries=0)
    await bench.port(jobs.cancel, claim.lease.job_id, by="ana", reason="enough")
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    assert history(database, claim.lease.job_id)[-1][:2] == ("RUNNING", "CANCELLED")
    assert job_row(database, claim.lease.job_id)["cancelled_by"] == "ana"
    assert_one_truth(database)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE cortex_worker.task SET heartbeat_at = NULL",
        "DELETE FROM cortex_worker.task",
    ],
    ids=["no heartbeat", "no task"],
)
async def test_damaged_job_without_an_owner_is_retried(
    bench: Bench, database: str, damage: str
) -> None:
    (claim,) = await bench.claimed()
    sql(database, damage)
    sweeper = a_sweeper(bench)
    for seconds in (ZOMBIE_S - SWEEP_S, ZOMBIE_S + 5):
        assert job_row(database, claim.lease.job_id)["status"] != "RETRY"
        move_clock(database, seconds)
        await sweeper.tick(TickBudget())
    assert job_row(database, claim.lease.job_id)["status"] == "RETRY"
    assert_one_truth(database)


@pytest.mark.parametrize("before", ["RETRY", "WAITING_FOR_APPROVAL"])
async def test_resumed_job_without_a_task_is_retried(
    bench: Bench, database: str, before: str
) -> None:
    """Its record still shows what it waited for, and without a task nothing else takes it."""
    (first,) = await bench.claimed()
    job_id = first.lease.job_id
    wait_s, what = (0.0, None) if before == "RETRY" else (None, "person:key")
    wait = Suspend(lease=first.lease, delay_s=wait_s, waiting_on=what, is_counted=False)
    await bench.port(tasks.suspend, pod_id=bench.pod.id, operations=[wait])
    await bench.port(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)
    await bench.claim()
    sql(database, "DELETE FROM cortex_worker.task")
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    row = job_row(database, job_id)
    assert (row["status"], row["attempt"]) == ("RETRY", 2)
    assert history(database, job_id)[-2:] == [(before, "RUNNING", 2), ("RUNNING", "RETRY", 2)]
    assert_one_truth(database)


@pytest.mark.parametrize("before", ["PENDING", "RETRY", "WAITING_FOR_APPROVAL"])
async def test_a_job_that_loses_its_task_before_a_claim_gets_another_one(
    bench: Bench, database: str, before: str
) -> None:
    """No pod has run it meanwhile: that is neither an attempt nor a retry."""
    (job_id,) = await bench.submit()
    if before != "PENDING":
        (first,) = await bench.claim()
        wait_s, what = (0.0, None) if before == "RETRY" else (None, "person:key")
        wait = Suspend(lease=first.lease, delay_s=wait_s, waiting_on=what, is_counted=False)
        await bench.port(tasks.suspend, pod_id=bench.pod.id, operations=[wait])
        await bench.port(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)
    path = history(database, job_id)
    retry_count = job_row(database, job_id)["retry_count"]
    sql(database, "DELETE FROM cortex_worker.task")
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    assert history(database, job_id) == path
    assert job_row(database, job_id)["retry_count"] == retry_count
    (again,) = await bench.claim()
    assert again.lease.job_id == job_id
    assert history(database, job_id) == [*path, (before, "RUNNING", again.lease.attempt)]
    assert_one_truth(database)


async def test_a_job_that_gets_another_task_runs_no_sooner_than_it_was_submitted_for(
    bench: Bench, database: str
) -> None:
    (job_id,) = await bench.submit(delay_s=ZOMBIE_S + 1000)
    sql(database, "DELETE FROM cortex_worker.task")
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    row = job_row(database, job_id)
    assert (row["task_state"], row["task_run_at"]) == ("LATER", row["run_at"])
    move_clock(database, ZOMBIE_S + 1005)
    await bench.port(tasks.promote)
    (claim,) = await bench.claim()
    assert claim.lease.job_id == job_id


async def test_job_without_a_task_continues_after_its_last_step(
    bench: Bench, database: str
) -> None:
    """The task had the head of the job: without one, its steps would not be read."""
    (claim,) = await bench.claimed()
    for seq in (1, 2):
        done = StepDone(
            lease=claim.lease,
            kind=StepKind.STEP,
            key=f"step {seq}",
            digest=b"digest",
            duration_s=0.1,
            output="null",
            ended_at=0.0,
            tally=Tally(()),
        )
        step = NumberedStep(done, seq, None)
        assert await bench.port(steps.commit, pod_id=bench.pod.id, operations=[step])
    head = job_row(database, claim.lease.job_id)["checkpoint"]
    sql(database, "DELETE FROM cortex_worker.task")
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    assert job_row(database, claim.lease.job_id)["checkpoint"] == head
    move_clock(database, ZOMBIE_S + 10)
    await bench.port(retries.due)
    (again,) = await bench.claim()
    assert again.has_steps


async def test_an_outage_does_not_become_a_stampede(bench: Bench, database: str) -> None:
    """A period sweeps a bounded number, the oldest first, however many pods sweep."""
    await bench.claimed(BATCH_MAX + 5)
    oldest = sql(database, "SELECT id FROM cortex.job ORDER BY random() LIMIT 5")
    ids = [row["id"] for row in oldest]
    query = (
        "UPDATE cortex_worker.task SET heartbeat_at = heartbeat_at - interval '60 s' "
        "WHERE job_id = ANY ($1)"
    )
    sql(database, query, ids)
    move_clock(database, ZOMBIE_S + 5)
    for sweeper in (a_sweeper(bench), a_sweeper(bench)):
        await sweeper.tick(TickBudget())
        assert statuses(database) == {"RETRY": BATCH_MAX, "RUNNING": 5}
    assert {job_row(database, job_id)["status"] for job_id in ids} == {"RETRY"}
    move_clock(database, ZOMBIE_S + 5 + SWEEP_S)
    await a_sweeper(bench).tick(TickBudget())
    assert statuses(database) == {"RETRY": BATCH_MAX + 5}


@pytest.mark.parametrize("doubt", ["lost", "fenced", "missed", "new"])
async def test_pod_waits_one_threshold_after_a_possible_outage(
    bench: Bench, database: str, doubt: str
) -> None:
    """The others could not write their heartbeats either, and may come back after it."""
    await bench.claimed()
    sweeper, self_fence = a_sweeper(bench), bench.self_fence
    move_clock(database, ZOMBIE_S + 5)
    if doubt == "lost":
        self_fence.lost()
        self_fence.locked()
    elif doubt == "fenced":
        self_fence._beat_sent_at -= 61
    elif doubt == "missed":
        self_fence.missed()
    else:
        self_fence._steady_since = trio.current_time()
    await sweeper.tick(TickBudget())
    self_fence.beaten(trio.current_time())
    await sweeper.tick(TickBudget())
    assert statuses(database) == {"RUNNING": 1}
    self_fence._steady_since -= ZOMBIE_S
    await sweeper.tick(TickBudget())
    assert statuses(database) == {"RETRY": 1}


async def test_a_young_pod_ends_overdue_jobs_once_the_database_was_calm(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed(timeout_s=60)
    sweeper, self_fence = a_sweeper(bench), bench.self_fence
    move_clock(database, 200)
    sql(database, "UPDATE cortex_worker.task SET heartbeat_at = cortex.now()")
    for age_s, status in ((0.0, "RUNNING"), (CALM_S - 1, "RUNNING"), (CALM_S, "FAILED")):
        self_fence._steady_since = trio.current_time() - age_s
        result = await sweeper.tick(TickBudget())
        assert statuses(database) == {status: 1}, age_s
        assert result.next_s == (SWEEP_S if status == "FAILED" else CALM_S)
    assert job_row(database, claim.lease.job_id)["error_code"] == "job_timed_out"
    assert_one_truth(database)


async def test_after_an_outage_no_job_is_ended_before_its_pod_could_report(
    bench: Bench, database: str
) -> None:
    await bench.claimed(timeout_s=60)
    bench.port.refuse(tasks.sweep)
    sweeper = a_sweeper(bench)
    move_clock(database, 200)
    sql(database, "UPDATE cortex_worker.task SET heartbeat_at = cortex.now()")
    with pytest.raises(UnavailableError):
        await sweeper.tick(TickBudget())
    await sweeper.tick(TickBudget())
    assert statuses(database) == {"RUNNING": 1}
    sweeper._troubled_at -= CALM_S
    await sweeper.tick(TickBudget())
    assert statuses(database) == {"FAILED": 1}


async def test_sweep_waits_until_the_server_has_served_one_threshold(
    bench: Bench, database: str
) -> None:
    await bench.claimed()
    sql(database, "UPDATE cortex_worker.task SET heartbeat_at = heartbeat_at - interval '1 day'")
    served = "SELECT extract(epoch FROM clock_timestamp() - cortex.serving_since())::float8 AS s"
    (row,) = sql(database, served)
    sweeper = a_sweeper(bench, zombie_s=row["s"] + 500)
    await sweeper.tick(TickBudget())
    assert statuses(database) == {"RUNNING": 1}
    move_clock(database, 520)
    await sweeper.tick(TickBudget())
    assert statuses(database) == {"RETRY": 1}


async def test_sweeper_rests_one_threshold_after_an_outage(bench: Bench, database: str) -> None:
    await bench.claimed()
    move_clock(database, 1000)
    quiet_s = 0.5
    bench.port.refuse(tasks.sweep)
    sweeper = a_sweeper(bench, zombie_s=quiet_s, sweep_s=0.02)
    await bench.start(sweeper)
    await eventually_async(lambda: bench.port.faults_left == 0, what="it met the outage")
    met_at = trio.current_time()
    await sweeper.tick(TickBudget())
    assert statuses(database) == {"RUNNING": 1}
    await eventually_async(lambda: statuses(database) == {"RETRY": 1}, what="it sweeps again")
    assert trio.current_time() - met_at >= quiet_s - 0.1


async def test_sweep_that_met_a_lock_repeats_at_once(bench: Bench, database: str) -> None:
    """The server is healthy: no heartbeat was late because of it."""
    await bench.claimed()
    move_clock(database, ZOMBIE_S + 5)
    bench.port.refuse(tasks.sweep, is_locked=True)
    await bench.start(a_sweeper(bench, sweep_s=0.02))
    await eventually_async(lambda: statuses(database) == {"RETRY": 1}, what="it sweeps again")


async def test_in_a_period_only_one_pod_sweeps(bench: Bench, database: str) -> None:
    await bench.claimed(2 * BATCH_MAX)
    for seconds in (ZOMBIE_S + 5, ZOMBIE_S + 5 + 0.8 * SWEEP_S):
        move_clock(database, seconds)
        await a_sweeper(bench).tick(TickBudget())
        assert statuses(database) == {"RETRY": BATCH_MAX, "RUNNING": BATCH_MAX}
    move_clock(database, ZOMBIE_S + 5 + SWEEP_S)
    await a_sweeper(bench).tick(TickBudget())
    assert statuses(database) == {"RETRY": 2 * BATCH_MAX}


async def test_a_silent_pod_without_jobs_is_retired(bench: Bench, database: str) -> None:
    await bench.port(pods.register, bench.pod)
    move_clock(database, 2 * ZOMBIE_S - 5)
    await a_sweeper(bench).tick(TickBudget())
    assert sql(database, "SELECT state FROM cortex.pod")[0]["state"] == "READY"
    move_clock(database, 2 * ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    assert sql(database, "SELECT state FROM cortex.pod")[0]["state"] == "DEAD"


async def test_a_swept_job_refuses_its_old_owner_and_takes_a_new_one(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed()
    move_clock(database, ZOMBIE_S + 5)
    await a_sweeper(bench).tick(TickBudget())
    move_clock(database, ZOMBIE_S + 10)
    await bench.port(retries.due)
    heir = new_id()
    (again,) = await bench.port(tasks.claim, pod_id=heir, types=[JOB_TYPE], limit=5)
    assert again.lease.job_id == claim.lease.job_id
    assert again.lease.attempt == claim.lease.attempt + 1


@pytest.mark.parametrize("missed", [1, 2])
async def test_a_heartbeat_that_is_missed_now_and_then_makes_no_zombie(
    bench: Bench, database: str, missed: int
) -> None:
    await bench.claimed()
    sweeper = a_sweeper(bench)
    for number in range(1, 13):
        move_clock(database, number * 30.0 * (missed + 1))
        await sweeper.tick(TickBudget())
        sql(database, "UPDATE cortex_worker.task SET heartbeat_at = cortex.now()")
    assert statuses(database) == {"RUNNING": 1}


# --- time-outs that their own pods do not enforce


async def beating(bench: Bench, database: str, seconds: float, *, began_s: float = 0.0) -> UUID:
    """A job of 10 s that runs for so long on a pod that lives."""
    (claim,) = await bench.claimed(timeout_s=10)
    move_clock(database, seconds)
    sql(
        database,
        "WITH t AS (UPDATE cortex_worker.task SET heartbeat_at = cortex.now() WHERE job_id = $1) "
        "UPDATE cortex.job_record SET waited_s = $2 WHERE id = $1",
        claim.lease.job_id,
        began_s,
    )
    return claim.lease.job_id


async def test_a_job_that_runs_on_after_its_time_out_is_ended_although_its_pod_lives(
    bench: Bench, database: str
) -> None:
    await bench.start_committing()
    late = await beating(bench, database, 75)
    await a_sweeper(bench).tick(TickBudget())
    row = job_row(database, late)
    assert (row["status"], row["error_code"], row["task_state"]) == (
        "FAILED",
        "job_timed_out",
        None,
    )
    assert row["error_message"] == "Job timed out after 10 seconds"
    (receipt,) = sql(database, "SELECT * FROM cortex.timeout_event WHERE job_id = $1", late)
    assert (receipt["scope"], receipt["final_action"]) == ("job", "failed")
    assert 74 < receipt["elapsed_s"] < 80
    with pytest.raises(LeaseLost):
        await bench.committer.record(
            Finish(lease=Lease(late, row["attempt"]), status=JobStatus.COMPLETED, result="1")
        )
    assert_one_truth(database)


async def test_overdue_time_without_a_pod_does_not_count(bench: Bench, database: str) -> None:
    job_id = await beating(bench, database, 75, began_s=30.0)
    await a_sweeper(bench).tick(TickBudget())
    assert job_row(database, job_id)["status"] == "RUNNING"


async def test_overdue_job_is_not_ended_within_its_minute(bench: Bench, database: str) -> None:
    job_id = await beating(bench, database, 60)
    await a_sweeper(bench).tick(TickBudget())
    assert job_row(database, job_id)["status"] == "RUNNING"


async def test_time_since_the_last_heartbeat_does_not_count(bench: Bench, database: str) -> None:
    (claim,) = await bench.claimed(timeout_s=10)
    move_clock(database, ZOMBIE_S - 60)
    await a_sweeper(bench).tick(TickBudget())
    assert job_row(database, claim.lease.job_id)["status"] == "RUNNING", "its pod may be dead"


async def test_job_left_for_the_next_sweep_is_not_timed_out(bench: Bench, database: str) -> None:
    await bench.claimed(BATCH_MAX + 1, timeout_s=10)
    move_clock(database, ZOMBIE_S + 60)
    await a_sweeper(bench).tick(TickBudget())
    assert statuses(database) == {"RETRY": BATCH_MAX, "RUNNING": 1}


async def test_clock_set_back_does_not_extend_a_timeout(bench: Bench, database: str) -> None:
    late = await beating(bench, database, 75)
    sql(
        database,
        """INSERT INTO cortex.job_step (
               job_id, seq, attempt, kind, key, digest, started_at, finished_at, output)
           SELECT $1, 1, 1, 'step', 'a', 'digest', at, at, '1'
           FROM (SELECT cortex.now() + interval '1 day' AS at) tomorrow""",
        late,
    )
    await a_sweeper(bench).tick(TickBudget())
    assert job_row(database, late)["status"] == "FAILED"
    (receipt,) = sql(database, "SELECT * FROM cortex.timeout_event WHERE job_id = $1", late)
    assert receipt["step_elapsed_s"] == 0


async def test_sweep_is_skipped_while_another_process_sweeps(bench: Bench, database: str) -> None:
    (claim,) = await bench.claimed()
    move_clock(database, ZOMBIE_S + 5)
    with holding(database, hold_turns("sweep_zombies"), idle_in_transaction_session_timeout="0"):
        result = await a_sweeper(bench).tick(TickBudget())
    assert (result.items, result.is_skipped, result.next_s) == (0, True, SWEEP_S)
    assert job_row(database, claim.lease.job_id)["status"] == "RUNNING"


async def test_sweep_without_a_pod_needs_one_threshold_of_regular_ticks(
    bench: Bench, database: str
) -> None:
    """A process that ticks and ends cannot know for how long others could send heartbeats."""
    (claim,) = await bench.claimed()
    sweeper = Sweeper(
        bench.port,
        pod_id=None,
        self_fence=None,
        zombie_s=ZOMBIE_S,
        sweep_s=SWEEP_S,
        batch_max=BATCH_MAX,
        rng=bench.rng,
    )
    after_gap_s = 10 * ZOMBIE_S
    looks = [0.0, after_gap_s, after_gap_s + ZOMBIE_S / 2, after_gap_s + ZOMBIE_S - 5]
    for seconds in looks:
        move_clock(database, seconds)
        assert (await sweeper.tick(TickBudget())).items == 0
    move_clock(database, after_gap_s + ZOMBIE_S + 5)
    assert (await sweeper.tick(TickBudget())).items == 1
    assert job_row(database, claim.lease.job_id)["status"] == "RETRY"
