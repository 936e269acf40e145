"""Jobs moved away from a drained pod, leases of pods, and their sessions."""

from contextlib import ExitStack
from uuid import UUID

import pytest

from cortex.domain.job import Claim
from cortex.postgres.database import APPLICATION_CHARS_MAX, Profile
from cortex.postgres.session import open_session
from cortex.store import drains, pods
from tests.support.life import Life
from tests.support.records.rows import move_clock


@pytest.fixture
def life(life: Life) -> Life:
    life.type()
    return life


def begin(life: Life, pod: UUID) -> Claim:
    life.job()
    return life.claim(pod)


def moved(life: Life, pod: UUID) -> list[tuple[str, str | None, int]]:
    found = life.call(drains.moved, pod)
    assert found.is_whole
    return [(group.what, group.pod, group.count) for group in found.groups]


def test_moved_jobs_are_found_in_their_new_state(life: Life) -> None:
    pod, other = life.pod("pod-1"), life.pod("pod-2")
    life.release(pod, begin(life, pod), "handed_back")
    life.finish(other, life.claim(other))
    move_clock(life.dsn, 60)
    claims = [begin(life, pod) for _ in range(4)]
    assert moved(life, pod) == [], "nobody drains it"
    life.call(drains.request, pod, by="ana", reason="deploy")
    for claim in claims:
        life.release(pod, claim, "handed_back")
    assert moved(life, pod) == [("waits", None, 4)]
    assert moved(life, other) == []
    life.finish(other, life.claim(other))
    life.claim(other)
    assert moved(life, pod) == [("ended", None, 1), ("runs", "pod-2", 1), ("waits", None, 2)]
    life.sql("DELETE FROM cortex_worker.task WHERE state = 'READY'")
    assert moved(life, pod) == [("ended", None, 1), ("lost", None, 2), ("runs", "pod-2", 1)]


def test_job_handed_back_twice_is_counted_once(life: Life) -> None:
    pod = life.pod("pod-1")
    life.call(drains.request, pod, by="ana", reason="deploy")
    life.release(pod, begin(life, pod), "handed_back")
    life.release(pod, life.claim(pod), "handed_back")
    assert moved(life, pod) == [("waits", None, 1)]


def test_truncated_read_of_moved_jobs_is_reported(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = life.pod("pod-1")
    life.call(drains.request, pod, by="ana", reason="deploy")
    for claim in [begin(life, pod) for _ in range(2)]:
        life.release(pod, claim, "handed_back")
    assert moved(life, pod) == [("waits", None, 2)]
    monkeypatch.setattr(drains, "HANDED_BACK_MAX", 2)
    assert not life.call(drains.moved, pod).is_whole


def test_handed_back_attempt_is_found_in_a_reused_page(life: Life) -> None:
    """Rows are not only appended: a page that was cleaned takes new ones."""
    pod = life.pod("pod-1")
    claim = begin(life, pod)
    life.sql(
        "INSERT INTO cortex.job_attempt (job_id, attempt, pod_id, outcome, ended_at, due_at, "
        "retry_count) SELECT gen_random_uuid(), 1, $1, 'failed', now() - interval '1 hour', now(), "
        "0 FROM generate_series(1, 60000) n",
        pod,
    )
    life.sql("DELETE FROM cortex.job_attempt WHERE ctid < '(50,0)'")
    life.sql("VACUUM cortex.job_attempt")
    life.call(drains.request, pod, by="ana", reason="deploy")
    life.release(pod, claim, "handed_back")
    (place,) = life.sql("SELECT ctid FROM cortex.job_attempt WHERE outcome = 'handed_back'")
    assert place["ctid"][0] < 50
    assert moved(life, pod) == [("waits", None, 1)]


def test_pods_page_has_the_ages_of_leases(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    pod, idle = life.pod("pod-1"), life.pod("pod-2")
    first = begin(life, pod)
    move_clock(life.dsn, 600)
    begin(life, pod)
    beaten = "UPDATE cortex_worker.task SET heartbeat_at = cortex.now() WHERE job_id = $1"

    def held() -> tuple[float, float | None]:
        rows = {row.id: row for row in life.call(pods.page)}
        assert rows[idle].oldest_lease_at is None
        row = rows[pod]
        claim = row.longest_claim_at
        ages = [None if at is None else row.now - at for at in (row.oldest_lease_at, claim)]
        lease_s, claim_s = (None if each is None else each.total_seconds() for each in ages)
        assert lease_s is not None
        return lease_s, claim_s

    lease_s, claim_s = held()
    assert lease_s == claim_s
    assert 600 <= lease_s < 650
    life.sql(beaten, first.lease.job_id)
    lease_s, claim_s = held()
    assert lease_s < 50
    assert claim_s is not None
    assert claim_s >= 600
    monkeypatch.setattr(pods, "LEASES_MAX", 1)
    assert held()[1] is None, "the one that it has had for longest may not have been read"


def test_pod_with_unread_leases_shows_the_oldest_bound(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, busy, idle = (life.pod(f"pod-{n}") for n in range(3))
    begin(life, late)
    move_clock(life.dsn, 600)
    begin(life, busy)
    life.sql("UPDATE cortex.pod SET running = 1 WHERE id = ANY($1::uuid[])", [late, busy])

    def leases() -> dict[UUID, float | None]:
        found: dict[UUID, float | None] = {}
        for row in life.call(pods.page):
            at = row.oldest_lease_at
            found[row.id] = None if at is None else round((row.now - at).total_seconds(), -2)
        return found

    assert leases() == {late: 600, busy: 0, idle: None}
    monkeypatch.setattr(pods, "LEASES_MAX", 1)
    assert leases() == {late: 600, busy: 600, idle: None}, "it is at most that old"


def test_sessions_are_counted_only_for_distinct_pod_names(life: Life) -> None:
    name = f"host-{'x' * APPLICATION_CHARS_MAX}"
    pod, nobody = life.pod(name), life.pod("pod-2")

    def connections() -> dict[UUID, int | None]:
        return {row.id: row.connections for row in life.call(pods.page)}

    assert connections() == {pod: None, nobody: None}
    with ExitStack() as stack:
        for _ in range(2):
            call = stack.enter_context(open_session(Profile.of_pod(life.dsn, name)))
            call(pods.live_types)
        assert connections() == {pod: 2, nobody: None}
        life.sql("UPDATE cortex.pod SET liveness = 'heartbeat' WHERE id = $1", pod)
        assert connections()[pod] is None, "a pooler stands between"
        life.sql("UPDATE cortex.pod SET liveness = 'lock' WHERE id = $1", pod)
        same = life.pod(f"{name}y")
        assert connections() == {pod: None, nobody: None, same: None}, "two have this name there"
