"""Names are for people: pods of one name, at once or one after the other, are no less two pods."""

from uuid import UUID

from cortex.actors.runner import TickBudget
from cortex.store import pods, tasks
from tests.runtime.test_takeover import a_takeover, holding_lock, look_again_later, state_of
from tests.support.records.factories import JOB_TYPE, Bench, a_pod
from tests.support.records.rows import assert_one_truth, attempts, job_row

NAME = "host:1"
"""Every first process in a container with a given host name."""


async def a_pod_with_a_job(bench: Bench) -> tuple[pods.Pod, UUID]:
    pod = a_pod(name=NAME)
    await bench.port(pods.register, pod)
    (job_id,) = await bench.submit(1)
    await bench.port(tasks.promote)
    await bench.port(tasks.claim, pod_id=pod.id, types=[JOB_TYPE], limit=1)
    return pod, job_id


async def test_death_of_a_pod_leaves_its_namesake_alive(bench: Bench, database: str) -> None:
    dead, left_behind = await a_pod_with_a_job(bench)
    living, kept = await a_pod_with_a_job(bench)
    session = await holding_lock(bench, living)
    takeover = a_takeover(bench)
    await takeover.tick(TickBudget())
    look_again_later(takeover)
    await takeover.tick(TickBudget())
    assert (state_of(database, dead), state_of(database, living)) == ("DEAD", "READY")
    assert job_row(database, left_behind)["task_state"] == "READY"
    assert job_row(database, kept)["task_state"] == "LOCKED"
    assert attempts(database, left_behind) == [(1, "pod_died")]
    assert attempts(database, kept) == []
    await bench.port.close(session)
    assert_one_truth(database)


async def test_new_pod_inherits_nothing_from_its_namesake(bench: Bench, database: str) -> None:
    before, job_id = await a_pod_with_a_job(bench)
    after = a_pod(name=NAME)
    await bench.port(pods.register, after)
    assert await bench.port(tasks.orphans, pod_id=after.id, known_ids=[]) == []
    assert len(await bench.port(tasks.orphans, pod_id=before.id, known_ids=[])) == 1
    await bench.port(pods.leave, after.id)
    assert state_of(database, before) == "READY"
    assert job_row(database, job_id)["task_state"] == "LOCKED"
