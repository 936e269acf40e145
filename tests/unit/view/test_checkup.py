"""The doctor's findings: from facts to a grade and a fix."""

from typing import Any

import attrs
import pytest

from cortex.domain.drain import Liveness
from cortex.domain.server_facts import PodFacts, ServerFacts, SnapshotFacts
from cortex.view import doctor
from cortex.view.doctor import Finding, Grade

SERVER = ServerFacts(
    is_standby=False,
    is_read_only=False,
    synchronous_commit="on",
    fsync=True,
    connections_used=12,
    connections_max=97,
    snapshots=(),
)
POD = PodFacts(
    name="one",
    version="1.0",
    state="READY",
    liveness=Liveness.LOCK,
    is_locked=True,
    silent_s=3.0,
    running=1,
    loop_lag_ms=1.0,
    hint_latency_ms=1.0,
)


def of_pods(*pods: PodFacts, due: int = 0) -> list[tuple[str, Grade]]:
    found = doctor.of_pods(pods, version="1.0", due=due)
    return [(each.check, each.grade) for each in found]


@pytest.mark.parametrize(
    "seen, grade",
    [
        ({}, Grade.OK),
        ({"synchronous_commit": "remote_apply"}, Grade.OK),
        ({"is_standby": True}, Grade.FAIL),
        ({"is_read_only": True}, Grade.FAIL),
        ({"synchronous_commit": "off"}, Grade.WARN),
        ({"fsync": False}, Grade.WARN),
    ],
)
def test_unsafe_durability_settings_are_graded(seen: dict[str, Any], grade: Grade) -> None:
    found = doctor.of_writes(attrs.evolve(SERVER, **seen))
    assert found.grade is grade
    assert (found.fix is None) == (grade is Grade.OK)


@pytest.mark.parametrize(
    "ahead_s, grade, output",
    [
        (0.012, Grade.OK, "12ms from the database's"),
        (-1.9, Grade.OK, "1900ms from the database's"),
        (600.4, Grade.WARN, "0:10:00 ahead of the database's"),
        (-3.0, Grade.WARN, "0:00:03 behind the database's"),
    ],
)
def test_clocks_that_differ_confuse_people_only(ahead_s: float, grade: Grade, output: str) -> None:
    found = doctor.of_clock(ahead_s)
    assert (found.grade, found.found) == (grade, output)


@pytest.mark.parametrize(
    "used, grade", [(86, Grade.OK), (87, Grade.WARN), (96, Grade.WARN), (97, Grade.FAIL)]
)
def test_connections_need_room_for_one_more_pod(used: int, grade: Grade) -> None:
    assert doctor.of_connections(attrs.evolve(SERVER, connections_used=used)).grade is grade


@pytest.mark.parametrize(
    "free_bytes, grade", [(2 * 10**11, Grade.OK), (10**10, Grade.WARN), (10**8, Grade.FAIL)]
)
def test_nearly_full_disk_is_graded(free_bytes: int, grade: Grade) -> None:
    found = doctor.of_disk(free_bytes=free_bytes, total_bytes=10**12, folder="/data")
    assert found.grade is grade
    assert "in /data" in found.found


@pytest.mark.parametrize(
    "kind, held_s, xids, grade",
    [
        ("session", 299.0, 10**9, Grade.OK),
        ("session", 301.0, 0, Grade.WARN),
        ("session", 3601.0, 0, Grade.FAIL),
        ("session", None, 10**6, Grade.OK),
        ("session", None, 10**6 + 1, Grade.WARN),
        ("prepared transaction", 301.0, 0, Grade.WARN),
        ("replication slot", None, 10**7, Grade.WARN),
        ("standby", None, 10**7, Grade.WARN),
    ],
)
def test_old_snapshot_is_graded(kind: str, held_s: float | None, xids: int, grade: Grade) -> None:
    seen = SnapshotFacts(kind=kind, name="its-name", pid=4711, held_s=held_s, xids=xids)
    found = doctor.of_snapshots([seen])
    assert found.grade is grade
    if grade is not Grade.OK:
        named = {"session": "(4711)", "standby": "hot_standby_feedback"}
        assert named.get(kind, "'its-name'") in str(found.fix)


def test_worst_of_several_snapshots_is_shown() -> None:
    """Since when is not known of each: neither order alone finds the one that matters."""
    fresh = SnapshotFacts(kind="session", name="fresh", pid=1, held_s=1.0, xids=1)
    hidden = SnapshotFacts(kind="session", name="hidden", pid=2, held_s=None, xids=10**7)
    for seen in ([fresh, hidden], [hidden, fresh]):
        assert "pg_terminate_backend(2)" in str(doctor.of_snapshots(seen).fix)


@pytest.mark.parametrize(
    "name, literal",
    [("it's", "'it''s'"), (r"a\b", r"'a\b'"), ("é'\n\\", r"E'\U000000E9''\U0000000A\\'")],
)
def test_pasted_name_is_quoted(name: str, literal: str) -> None:
    kind = "prepared transaction"
    seen = SnapshotFacts(kind=kind, name=name, pid=None, held_s=301.0, xids=0)
    assert doctor.of_snapshots([seen]).fix == f"end it: ROLLBACK PREPARED {literal}"


def test_no_snapshot_is_best() -> None:
    assert doctor.of_snapshots([]).grade is Grade.OK


def test_healthy_pods_are_ok() -> None:
    well = [("pods", Grade.OK), ("heartbeats", Grade.OK)]
    assert of_pods(POD) == well
    assert of_pods(POD, attrs.evolve(POD, state="DRAINING")) == well


def test_missing_pod_fails_only_with_due_jobs() -> None:
    assert of_pods() == [("pods", Grade.WARN)]
    assert of_pods(due=1) == [("pods", Grade.FAIL)]
    silent = attrs.evolve(POD, silent_s=96.0)
    assert of_pods(silent, due=1) == [("pods", Grade.FAIL), ("heartbeats", Grade.WARN)]


@pytest.mark.parametrize(
    "pod, check",
    [
        ({"loop_lag_ms": 101.0}, "event loops"),
        ({"version": "0.9"}, "versions"),
        ({"threads_lost": 1}, "threads"),
    ],
)
def test_odd_pod_is_named(pod: dict[str, Any], check: str) -> None:
    odd = attrs.evolve(POD, name="odd", **pod)
    found = doctor.of_pods([POD, odd], version="1.0", due=0)
    (named,) = [each for each in found if each.check == check]
    assert (named.grade, "odd" in named.found, "one" in named.found) == (Grade.WARN, True, False)


def test_pod_with_failing_calls_is_ill_despite_its_heartbeat() -> None:
    full = attrs.evolve(POD, name="two", trouble="disk_full")
    found = doctor.of_pods([POD, full], version="1.0", due=0)
    (ill,) = (each for each in found if each.grade is Grade.FAIL)
    assert (ill.check, ill.found) == ("database trouble", "of two (disk full)")
    assert ill.fix


@pytest.mark.parametrize("lost, grade", [(1, Grade.WARN), (224, Grade.WARN), (225, Grade.FAIL)])
def test_lost_threads_are_an_error_halfway_to_the_drain(lost: int, grade: Grade) -> None:
    worn = attrs.evolve(POD, name="worn", threads_lost=lost)
    found = doctor.of_pods([POD, worn], version="1.0", due=0)
    (threads,) = (each for each in found if each.check == "threads")
    assert threads.grade is grade
    assert threads.found == f"left behind by time-outs: worn ({lost} of 500)"
    assert "lost 450 threads" in (threads.fix or "")


def test_locks_are_expected_only_of_pods_without_a_pooler() -> None:
    pooled = attrs.evolve(POD, name="pooled", liveness=Liveness.HEARTBEAT, is_locked=False)
    found = doctor.of_locks([POD, pooled])
    assert found.grade is Grade.OK
    assert found.found.startswith("1 of 2 pods hold theirs; 1 behind a pooler")
    lost = attrs.evolve(POD, name="lost", is_locked=False)
    assert doctor.of_locks([POD, pooled, lost]).found == "not held by lost"


@pytest.mark.parametrize(
    "finding, grade",
    [
        (doctor.of_queue(due=0, oldest_s=0.0, ready=False), Grade.OK),
        (doctor.of_queue(due=9, oldest_s=59.0, ready=True), Grade.OK),
        (doctor.of_queue(due=9, oldest_s=61.0, ready=True), Grade.WARN),
        (doctor.of_blocked(0, pid=None, holder=""), Grade.OK),
        (doctor.of_blocked(2, pid=7, holder="process 7"), Grade.FAIL),
        (doctor.of_breakers([]), Grade.OK),
        (doctor.of_breakers(["llm:claude"]), Grade.WARN),
        (doctor.of_letters(waiting=0, escalated=0), Grade.OK),
        (doctor.of_letters(waiting=1, escalated=1), Grade.WARN),
        (doctor.of_effects(0), Grade.OK),
        (doctor.of_schedules([]), Grade.OK),
        (doctor.of_schedules([("a", "no living pod runs x"), ("b", "y")]), Grade.FAIL),
        (doctor.of_schedules([], late=[("a", "missed 3 instants")]), Grade.WARN),
        (doctor.of_effects(3), Grade.WARN),
    ],
)
def test_every_bad_finding_has_a_fix(finding: Finding, grade: Grade) -> None:
    assert finding.grade is grade
    assert (finding.fix is None) == (grade is Grade.OK)


def test_many_names_are_counted() -> None:
    found = doctor.of_breakers([f"tool:{n}" for n in range(7)])
    assert found.found == "not closed: tool:0, tool:1, tool:2, tool:3, tool:4 and 2 more"


def test_a_pod_is_silent_by_its_own_settings() -> None:
    quick = attrs.evolve(POD, silent_after_s=2.0)
    assert ("heartbeats", Grade.WARN) in of_pods(quick)
    slow = attrs.evolve(POD, silent_s=200.0, silent_after_s=305.0)
    assert ("heartbeats", Grade.OK) in of_pods(slow)
