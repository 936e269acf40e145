"""Workers: processes of one pod that claim and die by themselves, and that people see as one."""

from uuid import UUID

import attrs

from cortex.domain.drain import DrainPhase, DrainStatus
from cortex.postgres.session import Session
from cortex.store import doctor, drains, pods, screen_head
from tests.store.test_pods import beat
from tests.support.records.factories import VITALS, a_pod
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql


def two_workers(store: Session) -> tuple[UUID, pods.Pod, pods.Pod]:
    """Return the id of a pod, and its two workers."""
    group_id = new_id()
    first, second = (
        attrs.evolve(a_pod(name="eu-1", slots=n + 2), group_id=group_id, worker=n) for n in (1, 2)
    )
    for each in (first, second):
        store(pods.register, each)
    return group_id, first, second


def test_people_see_one_pod_with_sums_and_the_worst_of_its_workers(
    store: Session, database: str
) -> None:
    group_id, first, second = two_workers(store)
    other = a_pod(name="eu-2")
    store(pods.register, other)
    beat(database, first, [], attrs.evolve(VITALS, rss_bytes=10, loop_lag_ms=1.0, threads_lost=2))
    beat(database, second, [], attrs.evolve(VITALS, rss_bytes=20, loop_lag_ms=9.0, threads_lost=3))
    sql(
        database,
        "UPDATE cortex.pod SET heartbeat_at = heartbeat_at - interval '7 s' WHERE id = $1",
        first.id,
    )
    seen, alone = store(pods.page)
    assert (seen.id, seen.name, seen.workers) == (group_id, "eu-1", 2)
    assert (seen.slots, seen.rss_bytes, seen.loop_lag_ms, seen.state) == (7, 30, 9.0, "READY")
    assert seen.threads_lost == 5
    assert [each.threads_lost for each in store(doctor.living)] == [3, 0], "each has its own limit"
    assert (seen.now - seen.heartbeat_at).total_seconds() >= 7
    assert (alone.id, alone.workers) == (other.id, 1)
    head = store(screen_head.head)
    assert (head.pods_ready, head.pods_living) == (2, 2)


def test_a_drain_request_reaches_all_workers_and_those_that_are_restarted(
    store: Session, database: str
) -> None:
    group_id, first, second = two_workers(store)
    assert store(drains.find, "eu-1") == group_id
    assert store(drains.request, group_id, by="ana", reason="deploy")
    assert not store(drains.request, group_id, by="ben")
    sql(database, "UPDATE cortex.pod SET state = 'DEAD', ended_at = now() WHERE id = $1", second.id)
    again = attrs.evolve(second, id=new_id(), lock_key=77)
    store(pods.register, again)
    assert all(store(drains.is_requested, each.id) for each in (first, again))
    (row,) = store(pods.page, ended=5)
    assert (row.workers, row.drain_requested_by, row.drain_reason) == (2, "ana", "deploy")
    assert store(drains.withdraw, group_id, by="ben")
    assert not any(store(drains.is_requested, each.id) for each in (first, again))
    facts = sql(database, "SELECT subtype FROM cortex.fact ORDER BY id")
    assert [row["subtype"] for row in facts] == ["pod_drained", "pod_undrained"]


def test_drain_phase_is_that_of_the_slowest_worker(store: Session, database: str) -> None:
    _, first, second = two_workers(store)
    phases = {first: DrainPhase.FLUSH, second: DrainPhase.JOBS}
    for worker, phase in phases.items():
        status = DrainStatus(phase=phase, jobs_left=0, abort_in_s=3.0, closed_in_s=5.0)
        beat(database, worker, [], attrs.evolve(VITALS, state="DRAINING", drain=status))
    (row,) = store(pods.page)
    assert (row.state, row.phase) == ("DRAINING", DrainPhase.JOBS)


def test_ended_workers_are_shown_with_their_pod_once_it_has_ended(
    store: Session, database: str
) -> None:
    group_id, first, second = two_workers(store)
    sql(database, "UPDATE cortex.pod SET state = 'DEAD', ended_at = now() WHERE id = $1", first.id)
    (row,) = store(pods.page, ended=5)
    assert (row.workers, row.state) == (1, "READY")
    again = attrs.evolve(first, id=new_id(), lock_key=78)
    store(pods.register, again)
    for each in (again, second):
        store(pods.leave, each.id)
    assert store(pods.page) == []
    (row,) = store(pods.page, ended=5)
    assert (row.id, row.workers, row.state) == (group_id, 2, "STOPPED"), "the dead one came back"
