"""Requests to drain a pod: the first one stays, and an ambiguous name drains no pod."""

import json
from uuid import UUID

import pytest

from cortex.domain.drain import DrainPhase, DrainStatus
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.postgres.session import Session
from cortex.store import drains, pods
from tests.support.records.factories import a_pod
from tests.support.servers.postgres import sql


@pytest.fixture
def pod(store: Session) -> pods.Pod:
    """A living pod."""
    entered = a_pod()
    store(pods.register, entered)
    return entered


def requested(database: str) -> list[tuple[str | None, str | None]]:
    rows = sql(database, "SELECT drain_requested_by AS by, drain_reason FROM cortex.pod")
    return [(row["by"], row["drain_reason"]) for row in rows]


def test_a_request_stands_until_it_is_withdrawn_and_both_are_facts(
    store: Session, database: str, pod: pods.Pod
) -> None:
    assert not store(drains.is_requested, pod.id)
    assert store(drains.request, pod.id, by="ana", reason="deploy")
    assert store(drains.is_requested, pod.id)
    assert not store(drains.request, pod.id, by="ben", reason="else")
    assert requested(database) == [("ana", "deploy")]
    assert store(drains.withdraw, pod.id, by="ben")
    assert not store(drains.withdraw, pod.id, by="ben")
    assert requested(database) == [(None, None)]
    rows = sql(database, "SELECT subtype, source, pod_id, data FROM cortex.fact ORDER BY id")
    assert {(row["source"], row["pod_id"]) for row in rows} == {(f"pod:{pod.name}", pod.id)}
    acts = [(row["subtype"], json.loads(row["data"])["by"]) for row in rows]
    assert acts == [("pod_drained", "ana"), ("pod_undrained", "ben")]


def test_a_pod_that_has_ended_or_leaves_is_refused(
    store: Session, database: str, pod: pods.Pod
) -> None:
    leaving = DrainStatus(phase=DrainPhase.JOBS, jobs_left=0, abort_in_s=1.0, closed_in_s=2.0)
    sql(database, "UPDATE cortex.pod SET state = 'DRAINING', phase = $1", leaving.phase.value)
    for act in (drains.request, drains.withdraw):
        with pytest.raises(ConflictError, match=f"pod {pod.name} is leaving"):
            store(act, pod.id, by="ana")
    store(pods.leave, pod.id)
    for act in (drains.request, drains.withdraw):
        with pytest.raises(ConflictError, match=f"pod {pod.name} has ended: it is STOPPED"):
            store(act, pod.id, by="ana")
        with pytest.raises(NotFoundError, match="does not exist"):
            store(act, UUID(int=1), by="ana")
    assert sql(database, "SELECT count(*) AS n FROM cortex.fact")[0]["n"] == 0


def test_a_pod_is_found_by_its_name_and_by_either_end_of_its_id(store: Session) -> None:
    low, high = UUID("0aaa" + "1" * 24 + "bbb0"), UUID("0aaa" + "2" * 24 + "bbb1")
    first, second = a_pod(id=low, name="host:12"), a_pod(id=high, name="host:13", lock_key=2)
    for each in (first, second):
        store(pods.register, each)
    for reference in ("host:12", str(low), low.hex, "0aaa1", "…bbb0", "BBB0"):
        assert store(drains.find, reference) == low, reference
    with pytest.raises(NotFoundError, match="'0aaa' names 2 pods: host:12"):
        store(drains.find, "0aaa")
    for reference in ("host", "host:1", "bbb", "%", "cccc"):
        with pytest.raises(NotFoundError, match="no living pod is called"):
            store(drains.find, reference)
    store(pods.leave, low)
    with pytest.raises(NotFoundError):
        store(drains.find, "host:12")


def test_name_shared_by_several_pods_is_refused(store: Session) -> None:
    for _ in range(4):
        store(pods.register, a_pod(name="same"))
    with pytest.raises(NotFoundError, match=r"'same' names 4 pods: .*, …"):
        store(drains.find, "same")


def test_exact_pod_name_wins_over_an_id_prefix(store: Session) -> None:
    named = a_pod(name="0aaa")
    store(pods.register, named)
    store(pods.register, a_pod(id=UUID("0aaa" + "2" * 28), lock_key=2))
    assert store(drains.find, "0aaa") == named.id
