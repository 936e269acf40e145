"""The takeover: dead pods lose their jobs at once, living ones never."""

from collections.abc import MutableMapping
from typing import Any
from uuid import UUID

import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.postgres.dedicated import Dedicated
from cortex.runtime.liveness.takeover import CHECKS_APART_S, ENDED_EVERY, NEW_APART_S, TakeOver
from cortex.runtime.self_fence import SelfFence
from cortex.store import pods, tasks
from tests.support.eventually import eventually_async
from tests.support.records.factories import JOB_TYPE, Bench, a_pod
from tests.support.records.rows import assert_one_truth, attempts, job_row
from tests.support.servers.postgres import has_session_locks, sql

Lines = list[MutableMapping[str, Any]]
DEATHS_MAX = 3


def a_takeover(bench: Bench, *, settle_s: float = 0.0, peer_check_s: float = 60.0) -> TakeOver:
    return TakeOver(
        bench.port,
        pod_id=bench.pod.id,
        self_fence=bench.self_fence,
        peer_check_s=peer_check_s,
        settle_s=settle_s,
        deaths_max=DEATHS_MAX,
        rng=bench.rng,
    )


def look_again_later(takeover: TakeOver, *, by_s: float = CHECKS_APART_S) -> None:
    """Let so much time have passed since the last look as two looks must be apart."""
    for suspect in takeover._suspected_since:
        takeover._suspected_since[suspect] -= by_s


async def a_dead_pod(bench: Bench, *, job_count: int = 2) -> tuple[pods.Pod, list[UUID]]:
    """A pod whose lock no session holds, and the jobs that it left behind."""
    dead = a_pod()
    await bench.port(pods.register, dead)
    ids = await bench.submit(job_count)
    await bench.port(tasks.promote)
    await bench.port(tasks.claim, pod_id=dead.id, types=[JOB_TYPE], limit=job_count)
    return dead, ids


async def holding_lock(bench: Bench, pod: pods.Pod) -> Dedicated:
    session = bench.port.dedicated(on_lost=lambda: None)
    await bench.port.cross(session.open)
    assert (await bench.port.cross(pods.lock, session, pod.lock_key)).is_held
    await bench.port.cross(pods.register, session, pod)
    return session


def state_of(dsn: str, pod: pods.Pod) -> str:
    return str(sql(dsn, "SELECT state FROM cortex.pod WHERE id = $1", pod.id)[0]["state"])


async def test_takeover_needs_two_checks_some_time_apart(bench: Bench, database: str) -> None:
    dead, ids = await a_dead_pod(bench)
    takeover = a_takeover(bench)
    await takeover.tick(TickBudget())
    await takeover.tick(TickBudget())
    assert state_of(database, dead) == "READY"
    look_again_later(takeover)
    await takeover.tick(TickBudget())
    assert state_of(database, dead) == "DEAD"
    for job_id in ids:
        row = job_row(database, job_id)
        assert (row["status"], row["task_state"], row["attempts_spent"]) == ("RUNNING", "READY", 0)
        assert attempts(database, job_id) == [(1, "pod_died")]
    assert {c.lease.attempt for c in await bench.claim()} == {2}
    assert_one_truth(database)


async def test_running_takeover_waits_between_its_checks_and_acts(
    bench: Bench, database: str
) -> None:
    dead, _ = await a_dead_pod(bench)
    began_at = trio.current_time()
    await bench.start(a_takeover(bench, peer_check_s=0.05))
    await eventually_async(lambda: state_of(database, dead) == "DEAD", what="it is taken over")
    assert trio.current_time() - began_at >= CHECKS_APART_S


async def test_a_pod_that_holds_its_lock_keeps_its_jobs(bench: Bench, database: str) -> None:
    living, ids = await a_dead_pod(bench)
    session = await holding_lock(bench, living)
    takeover = a_takeover(bench)
    for _ in range(3):
        await takeover.tick(TickBudget())
        look_again_later(takeover)
    assert state_of(database, living) == "READY"
    assert job_row(database, ids[0])["task_state"] == "LOCKED"
    await bench.port.cross(session.close)


async def test_pod_that_regained_its_lock_is_suspected_anew(bench: Bench, database: str) -> None:
    shaky, _ = await a_dead_pod(bench)
    takeover = a_takeover(bench)
    await takeover.tick(TickBudget())
    look_again_later(takeover)
    session = await holding_lock(bench, shaky)
    await takeover.tick(TickBudget())
    await bench.port.cross(session.close)
    await eventually_async(lambda: not has_session_locks(database), what="the lock is free again")
    await takeover.tick(TickBudget())
    assert state_of(database, shaky) == "READY"


async def test_pod_that_beat_between_two_checks_is_suspected_anew(
    bench: Bench, database: str
) -> None:
    """It lost its connection before the second look as well: its lock was not seen held."""
    shaky, _ = await a_dead_pod(bench)
    takeover = a_takeover(bench)
    await takeover.tick(TickBudget())
    look_again_later(takeover)
    sql(database, "UPDATE cortex.pod SET heartbeat_at = cortex.now() WHERE id = $1", shaky.id)
    await takeover.tick(TickBudget())
    assert state_of(database, shaky) == "READY"
    look_again_later(takeover)
    await takeover.tick(TickBudget())
    assert state_of(database, shaky) == "DEAD"


async def test_lock_regained_before_the_takeover_keeps_the_jobs(
    bench: Bench, database: str
) -> None:
    """The third look is part of the statement that takes the jobs."""
    dead, ids = await a_dead_pod(bench)
    session = await holding_lock(bench, dead)
    taken = await bench.port(tasks.take_over, pod_id=dead.id, deaths_max=3, limit=10)
    assert (taken.is_dead, taken.freed_count) == (False, 0)
    assert job_row(database, ids[0])["task_state"] == "LOCKED"
    await bench.port.cross(session.close)


async def test_no_pod_is_taken_over_soon_after_the_servers_start(
    bench: Bench, database: str
) -> None:
    dead, _ = await a_dead_pod(bench)
    takeover = a_takeover(bench, settle_s=86_400.0)
    for _ in range(3):
        await takeover.tick(TickBudget())
        look_again_later(takeover)
    assert state_of(database, dead) == "READY"


@pytest.mark.parametrize("settled", [False, True])
async def test_pod_judges_others_only_while_its_own_link_is_healthy(
    bench: Bench, database: str, settled: bool
) -> None:
    dead, _ = await a_dead_pod(bench)
    bench.self_fence = SelfFence(fence_s=60.0, settle_s=0.0 if settled else 60.0)
    bench.self_fence.locked()
    bench.self_fence.beaten(trio.current_time())
    bench.self_fence._steady_since -= 60.0
    takeover = a_takeover(bench)
    await takeover.tick(TickBudget())
    assert [suspect.id for suspect in takeover._suspected_since] == [dead.id]
    look_again_later(takeover)
    bench.self_fence.lost()
    await takeover.tick(TickBudget())
    assert takeover._suspected_since == {}  # all suspicion starts over
    bench.self_fence.locked()
    bench.self_fence.beaten(trio.current_time())
    await takeover.tick(TickBudget())
    look_again_later(takeover)
    await takeover.tick(TickBudget())
    assert state_of(database, dead) == ("DEAD" if settled else "READY")


async def test_a_new_pod_takes_a_killed_fleet_over_before_it_has_settled(
    bench: Bench, database: str
) -> None:
    """It gives the others a second: after an outage of the network they may be late."""
    fleet = [(await a_dead_pod(bench))[0] for _ in range(2)]
    bench.self_fence = SelfFence(fence_s=600.0, settle_s=60.0)
    bench.self_fence.locked()
    bench.self_fence.beaten(trio.current_time())
    takeover = a_takeover(bench)
    await takeover.tick(TickBudget())
    look_again_later(takeover)
    await takeover.tick(TickBudget())
    assert [state_of(database, dead) for dead in fleet] == ["READY", "READY"]
    look_again_later(takeover, by_s=NEW_APART_S - CHECKS_APART_S)
    await takeover.tick(TickBudget())
    assert [state_of(database, dead) for dead in fleet] == ["DEAD", "DEAD"]


async def test_ended_pod_with_a_taskless_job_is_not_logged_again(
    bench: Bench, database: str, log_lines: Lines
) -> None:
    await a_dead_pod(bench, job_count=1)
    sql(database, "UPDATE cortex.pod SET state = 'DEAD'")
    sql(database, "DELETE FROM cortex_worker.task")
    takeover = a_takeover(bench)
    for _ in range(2 * ENDED_EVERY):
        await takeover.tick(TickBudget())
    assert [line["event"] for line in log_lines] == []


async def test_a_pod_behind_a_pooler_that_beats_again_keeps_its_jobs(
    bench: Bench, database: str
) -> None:
    """It was found among the ended ones a moment ago."""
    living, ids = await a_dead_pod(bench, job_count=1)
    take = {"pod_id": living.id, "deaths_max": 3, "limit": 10}
    sql(database, "UPDATE cortex.pod SET liveness = 'heartbeat'")
    assert not (await bench.port(tasks.take_over, **take)).is_dead
    assert job_row(database, ids[0])["task_state"] == "LOCKED"
    sql(database, "UPDATE cortex.pod SET state = 'DEAD'")
    assert (await bench.port(tasks.take_over, **take)).freed_count == 1


async def test_an_outage_ends_all_suspicion(bench: Bench, database: str) -> None:
    dead, _ = await a_dead_pod(bench)
    takeover = a_takeover(bench, peer_check_s=0.02)
    assert await takeover.has_unjudged()
    await takeover.tick(TickBudget())
    look_again_later(takeover)
    bench.port.refuse(pods.without_lock)
    began_at = trio.current_time()
    await bench.start(takeover)
    await eventually_async(lambda: state_of(database, dead) == "DEAD", what="it is taken over")
    assert trio.current_time() - began_at >= CHECKS_APART_S
    assert not await takeover.has_unjudged()


async def test_takeover_never_judges_its_own_pod(bench: Bench, database: str) -> None:
    await bench.port(pods.register, bench.pod)
    takeover = a_takeover(bench)
    for _ in range(3):
        await takeover.tick(TickBudget())
        look_again_later(takeover)
    assert state_of(database, bench.pod) == "READY"


async def test_many_jobs_are_taken_in_batches_until_none_is_left(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.liveness.takeover.BATCH_MAX", 4)
    dead, ids = await a_dead_pod(bench, job_count=10)
    takeover = a_takeover(bench)
    await takeover.tick(TickBudget())
    look_again_later(takeover)
    await takeover.tick(TickBudget())
    assert state_of(database, dead) == "DEAD"
    assert {job_row(database, job_id)["task_state"] for job_id in ids} == {"READY"}
