"""Pods: registration, liveness and ownership of jobs."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.drain import DrainPhase, DrainStatus
from cortex.domain.job import Claim, Lease
from cortex.postgres.database import Profile
from cortex.postgres.dedicated import Dedicated
from cortex.postgres.session import Session
from cortex.store import codes, pods, tasks
from cortex.store.codes import Code
from cortex.store.pods import PodRow, Vitals
from tests.support.records.factories import VITALS, a_pod
from tests.support.records.rows import NoPause, job_row, move_clock, new_id
from tests.support.servers.postgres import run_asyncio, sql


def on_session(dsn: str, work: Callable[[Dedicated], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        session = Dedicated(Profile(dsn=dsn), on_lost=lambda: None)
        await session.open()
        try:
            return await work(session)
        finally:
            await session.close()

    return run_asyncio(main)


def beat(dsn: str, pod: pods.Pod, leases: list[Lease], vitals: Vitals = VITALS) -> set[UUID]:
    found: set[UUID] = on_session(
        dsn, lambda session: pods.beat(session, pod_id=pod.id, leases=leases, vitals=vitals)
    )
    return found


def test_pod_is_registered_once_and_listed_with_its_vitals(store: Session, database: str) -> None:
    code = Code(version="3f9a1c0b2d4e")
    pod = a_pod(job_types=("a", "b"), slots=3, code=code)
    store(codes.ensure, code)
    store(pods.register, pod)
    store(pods.register, pod)
    vitals = Vitals(
        state="READY", loop_lag_ms=1.5, rss_bytes=2**33, hint_latency_ms=0.5, threads_lost=7
    )
    beat(database, pod, [], vitals)
    (row,) = store(pods.page)
    output = (
        "id",
        "name",
        "slots",
        "state",
        "loop_lag_ms",
        "rss_bytes",
        "hint_latency_ms",
        "threads_lost",
        "running",
        "code_version",
    )
    expected = [pod.id, pod.name, 3, "READY", 1.5, 2**33, 0.5, 7, 0, code.version]
    assert [getattr(row, name) for name in output] == expected
    assert store(pods.live_types) == ["a", "b"]
    for has_run in (False, True):  # a dead pod without a job is deleted by it
        beat(database, pod, [], attrs.evolve(vitals, has_run=has_run))
        assert sql(database, "SELECT has_run FROM cortex.pod")[0]["has_run"] is has_run


def test_heartbeat_renews_and_returns_only_own_leases(
    store: Session,
    database: str,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
) -> None:
    pod, thief = a_pod(), new_id()
    store(pods.register, pod)
    mine, other_attempt, stolen = submit(), submit(), submit()
    leases = {c.lease.job_id: c.lease for c in claim(pod.id)}
    sql(
        database,
        "UPDATE cortex_worker.task SET locked_by = $1, attempt = attempt + 1 WHERE job_id = $2",
        thief,
        stolen,
    )
    move_clock(database, 100)
    asked = [leases[mine], Lease(other_attempt, 9), leases[stolen], Lease(new_id(), 1)]
    assert beat(database, pod, asked) == {mine}
    row = job_row(database, mine)
    assert (row["now"] - row["heartbeat_at"]).total_seconds() < 50
    row = job_row(database, stolen)
    assert (row["now"] - row["heartbeat_at"]).total_seconds() > 50
    (shown,) = store(pods.page)
    assert shown.running == 2, "as the record has it, not as it said"


def test_work_of_hours_keeps_its_heartbeat(
    store: Session,
    database: str,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
) -> None:
    """One step of six hours: nothing but its pod's heartbeat is written meanwhile."""
    pod = a_pod()
    store(pods.register, pod)
    sql(database, "INSERT INTO cortex.job_type VALUES ('work', 3, 3, 21600, 32400)")
    job_id = submit(timeout_s=6 * 3600)
    (claimed,) = claim(pod.id)

    def taken_away() -> tuple[int, int]:
        swept = store(tasks.sweep, silent_s=300.0, limit=9, rng=NoPause())
        return swept.retried_count, store(tasks.expire, limit=9, every_s=0.0)

    for hours in (1, 3, 5.9):
        move_clock(database, 3600 * hours)
        assert beat(database, pod, [claimed.lease]) == {job_id}
        assert taken_away() == (0, 0)
        assert job_row(database, job_id)["status"] == "RUNNING"
    move_clock(database, 5.9 * 3600 + 301)
    assert taken_away() == (1, 0), "its pod fell silent"


def test_unregistered_pod_owns_no_jobs(
    database: str, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    pod = a_pod()
    submit()
    (claimed,) = claim(pod.id)
    assert beat(database, pod, [claimed.lease]) == set()


def test_draining_starts_once_and_a_stopped_pod_stays_stopped(
    store: Session, database: str
) -> None:
    pod = a_pod()
    store(pods.register, pod)
    draining = Vitals(state="DRAINING", loop_lag_ms=0.0, rss_bytes=1, hint_latency_ms=None)
    began = []
    for seconds in (10.0, 20.0):
        move_clock(database, seconds)
        beat(database, pod, [], draining)
        began.append(store(pods.page)[0].draining_at)
    assert began[0] == began[1]
    assert store(pods.live_types) == []
    store(pods.leave, pod.id)
    beat(database, pod, [])  # one that was on its way
    assert store(pods.page) == []
    (row,) = store(pods.page, ended=5)
    assert (row.state, row.ended_at is not None) == ("STOPPED", True)


def test_a_phase_and_its_deadlines_stand_until_the_next_one_begins(
    store: Session, database: str
) -> None:
    pod = a_pod()
    store(pods.register, pod)

    def beat_in(phase: DrainPhase, *, abort_in_s: float) -> PodRow:
        drain = DrainStatus(
            phase=phase, jobs_left=1, abort_in_s=abort_in_s, closed_in_s=abort_in_s + 10
        )
        beat(database, pod, [], attrs.evolve(VITALS, state="DRAINING", drain=drain))
        return store(pods.page, ended=1)[0]

    first = beat_in(DrainPhase.JOBS, abort_in_s=40)
    move_clock(database, 10)
    same = beat_in(DrainPhase.JOBS, abort_in_s=30)
    last = beat_in(DrainPhase.HAND_BACK, abort_in_s=0)
    phase = attrgetter("phase", "phase_at", "abort_at", "closed_at")
    assert phase(same) == phase(first)
    assert (first.phase, last.phase) == ("jobs", "hand_back")
    assert [_s(row.phase_at, row.abort_at) for row in (first, last)] == [40, 0]
    assert _s(last.phase_at, last.closed_at) == 10
    store(pods.leave, pod.id)
    assert beat_in(DrainPhase.SIGN_OFF, abort_in_s=0).phase is None, "it was on its way"


def _s(since: datetime | None, until: datetime | None) -> float:
    assert since is not None
    assert until is not None
    return (until - since).total_seconds()


def test_only_a_held_lock_shows_that_a_pod_lives(store: Session, database: str) -> None:
    living, dead, gone, looking = (a_pod() for _ in range(4))
    for pod in (living, dead, gone, looking):
        store(pods.register, pod)
    store(pods.leave, gone.id)

    async def look(session: Dedicated) -> set[UUID]:
        assert (await pods.lock(session, living.lock_key)).is_held
        await pods.register(session, living)
        suspects = await asyncio.to_thread(
            store, pods.without_lock, caller=looking.id, settle_s=0.0
        )
        return {suspect.id for suspect in suspects}

    assert on_session(database, look) == {dead.id}


def test_a_lock_counts_from_the_statement_that_takes_it(store: Session, database: str) -> None:
    pod = a_pod()

    async def first(session: Dedicated) -> None:
        await pods.lock(session, pod.lock_key)
        await pods.register(session, pod)

    async def again(session: Dedicated) -> list[pods.Suspect]:
        """The next statement of the pod may be late: it lives all the same."""
        assert (await pods.lock(session, pod.lock_key, pod_id=pod.id)).is_held
        return await asyncio.to_thread(store, pods.without_lock, caller=new_id(), settle_s=0.0)

    on_session(database, first)
    assert on_session(database, again) == []


@pytest.mark.parametrize("lock_key", [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, -1, -(2**63)])
def test_every_key_is_recognised_in_the_servers_list_of_locks(
    store: Session, database: str, lock_key: int
) -> None:
    pod = a_pod(lock_key=lock_key)

    async def look(session: Dedicated) -> list[pods.Suspect]:
        assert (await pods.lock(session, lock_key)).is_held
        await pods.register(session, pod)
        return await asyncio.to_thread(store, pods.without_lock, caller=new_id(), settle_s=0.0)

    assert on_session(database, look) == []


def test_silent_pod_is_retired_once_it_owns_no_jobs(
    store: Session,
    database: str,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
) -> None:
    pod = a_pod()
    store(pods.register, pod)
    submit()
    claim(pod.id)
    move_clock(database, 100)
    store(pods.retire_silent, silent_s=200.0)
    store(pods.retire_silent, silent_s=50.0)
    stored = sql(database, "SELECT state FROM cortex.pod")
    assert [row["state"] for row in stored] == ["READY"], "a job is still its own"
    assert store(tasks.sweep, silent_s=50.0, limit=10, rng=NoPause()).retried_count == 1
    store(pods.retire_silent, silent_s=50.0)
    assert [row.state for row in store(pods.page, ended=1)] == ["DEAD"]
