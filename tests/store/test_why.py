"""The reasons why a job does not run, from what is really in the database."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.errors import NotFoundError
from cortex.domain.job import Claim, JobStatus, Release, Suspend
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.why_facts import AHEAD_MAX
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import jobs, pauses, pods, tasks
from cortex.store.why import facts_of, facts_of_all
from cortex.view.why import Cause, Why
from cortex.view.why import why as told_by
from cortex.view.why_brief import brief
from tests.support.records.factories import JOB_TYPE, a_pod
from tests.support.records.rows import move_clock, new_id, submit_many
from tests.support.servers.postgres import sql


async def hold(db: Database, pod: pods.Pod) -> None:
    """Take a pod's lock on the connection that this session keeps."""
    (row,) = await db.fetch("pods.lock", pod.lock_key, None)
    assert row["is_held"]
    await pods.register(db, pod)


@pytest.fixture
def enter(store: Session) -> Callable[..., pods.Pod]:
    """Registers a pod; it lives by default."""

    def enter_one(*, is_alive: bool = True, **fields: Any) -> pods.Pod:
        pod = a_pod(**fields)
        store(pods.register, pod)
        if is_alive:
            store(hold, pod)
        return pod

    return enter_one


def why(store: Session, job_id: UUID) -> Why:
    return told_by(store(facts_of, job_id))


def claim(store: Session, pod: pods.Pod) -> Claim:
    store(tasks.promote)
    (claimed,) = store(tasks.claim, pod_id=pod.id, types=[JOB_TYPE], limit=1, config_id=1)
    return claimed


def suspend(store: Session, pod: pods.Pod, claimed: Claim, **fields: Any) -> None:
    defaults: dict[str, Any] = {"delay_s": 60.0, "is_counted": True, "error": "overloaded"}
    ending = Suspend(lease=claimed.lease, error_class="TRANSIENT_APP", **defaults | fields)
    assert store(tasks.suspend, pod_id=pod.id, operations=[ending])


def test_fleet_counts_only_live_pods(
    store: Session, database: str, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    job_id = submit()
    assert why(store, job_id).cause is Cause.NO_PODS
    enter(is_alive=False)
    assert why(store, job_id).cause is Cause.NO_PODS
    enter(job_types=("other", "wonk"))
    output = why(store, job_id)
    assert (output.cause, "nearest known one is wonk" in output.sentence) == (Cause.CODE, True)
    pod = enter(slots=7)
    enter(slots=100, job_types=("other",))
    assert store(facts_of, job_id).fleet.types == ("other", "wonk", "work")
    assert "1 pod with 7 free slots" in why(store, job_id).sentence
    sql(database, "UPDATE cortex.pod SET running = 7 WHERE id = $1", pod.id)
    assert "all 7 slots of the 1 pod" in why(store, job_id).sentence
    sql(database, "UPDATE cortex.pod SET state = 'DRAINING' WHERE id = $1", pod.id)
    assert why(store, job_id).cause is Cause.DRAINING
    move_clock(database, 100)  # no pod has sent a heartbeat for so long
    assert "no pod is there" in why(store, job_id).sentence
    sql(
        database,
        "INSERT INTO cortex.runner"
        " (name, interval_s, holder, items, duration_s, started_at, succeeded_at)"
        " VALUES ('dispatch', 60, 'tick vm:1', 0, 1, cortex.now(), cortex.now())",
    )
    assert "the next cortex tick" in why(store, job_id).sentence
    enter(name="tick vm:1", job_types=("other",))
    leave = (
        "UPDATE cortex.pod SET state = 'STOPPED', ended_at = cortex.now() WHERE name LIKE 'tick%'"
    )
    sql(database, leave)
    assert "no cortex tick knows its job type" in why(store, job_id).sentence
    move_clock(database, 401)  # five intervals later: ticks are late
    assert "no pod is there" in why(store, job_id).sentence


def test_jobs_ahead_are_counted_up_to_a_bound(
    store: Session, database: str, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    enter()
    submit_many(database, 3, JOB_TYPE, {})
    job_id = submit()
    assert store(facts_of, job_id).ahead_count == 3
    assert store(facts_of, submit(priority=-1)).ahead_count == 0
    submit_many(database, AHEAD_MAX, JOB_TYPE, {})
    last = submit()
    assert store(facts_of, last).ahead_count == AHEAD_MAX + 1
    assert "1000+ are ahead of it" in why(store, last).sentence


def test_queued_job_names_the_job_before_it(
    store: Session, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    pod = enter()
    first, second, third = (submit(queue_name="mail") for _ in range(3))
    assert why(store, first).cause is Cause.READY
    store(tasks.promote)
    assert why(store, first).cause is Cause.READY
    assert f"job {first} is about to; it comes next" in why(store, second).sentence
    claim(store, pod)
    output = why(store, third)
    assert output.cause is Cause.QUEUE
    assert f"job {first} is running; 1 is before it" in output.sentence


def test_running_job_shows_the_health_of_its_pod(
    store: Session, database: str, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    dead = enter(is_alive=False, name="gone")
    lost = submit()
    claim(store, dead)
    assert "pod gone is dead, and no other pod" in why(store, lost).sentence
    pod = enter(name="here")
    assert "it is being taken over" in why(store, lost).sentence
    job_id = submit()
    claim(store, pod)
    sql(
        database,
        """UPDATE cortex.job_record SET checkpoint = '{"seq": 3, "key": "fetch"}' WHERE id = $1""",
        job_id,
    )
    output = why(store, job_id)
    assert output.cause is Cause.RUNNING
    assert output.sentence == "it is running on here, attempt 1, after step 3 · fetch"
    store(jobs.cancel, job_id, by="ana", reason="")
    assert why(store, job_id).cause is Cause.CANCELLING
    move_clock(database, 100)
    facts = store(facts_of, job_id)
    output = told_by(facts)
    assert (output.cause, "has been silent" in output.sentence) == (Cause.ORPHANED, True)
    assert output.expected_at is not None
    assert 250 < (output.expected_at - facts.now).total_seconds() < 270


def test_both_retry_layers_show_time_and_reason(
    store: Session, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    pod = enter()
    by_worker = submit()
    ending = Release(
        lease=claim(store, pod).lease,
        outcome="failed",
        delay_s=60.0,
        error="reset",
        error_class="TRANSIENT_INFRA",
    )
    store(tasks.release, pod_id=pod.id, operations=[ending])
    facts = store(facts_of, by_worker)
    output = told_by(facts)
    assert output.cause is Cause.WORKER_BACKOFF
    assert output.sentence == (
        "it waits for its worker attempt 2 of 3, since attempt 1 ended with TRANSIENT_INFRA: reset"
    )
    assert output.expected_at is not None
    assert 50 < (output.expected_at - facts.now).total_seconds() <= 60
    by_app = submit()
    suspend(store, pod, claim(store, pod))
    output = why(store, by_app)
    assert output.cause is Cause.APP_RETRY
    assert output.sentence == (
        "it waits for its retry 1 of 3, since attempt 1 ended with TRANSIENT_APP: overloaded"
    )
    later = submit(delay_s=60.0)
    assert why(store, later).cause is Cause.SCHEDULED


def test_why_shows_the_state_of_a_breaker(
    store: Session, database: str, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    pod = enter()
    job_id = submit()
    suspend(store, pod, claim(store, pod), waiting_on="llm:m", is_counted=False)
    assert why(store, job_id).sentence.startswith("it waits for llm:m")
    sql(
        database,
        """
        INSERT INTO cortex.breaker (name, state, failures, successes, requests, probe, opened_at,
                                    open_until)
        VALUES ('llm:m', 'OPEN', 3, 0, 3, 0, now(), now() + interval '30 seconds')
        """,
    )
    facts = store(facts_of, job_id)
    output = told_by(facts)
    assert output.cause is Cause.BREAKER
    assert facts.breaker is not None
    assert output.expected_at == facts.breaker.open_until
    sql(
        database,
        """
        UPDATE cortex.breaker SET state = 'HALF_OPEN', probe_by = cortex.uuid7(),
            probe_until = now() + interval '30 seconds'
        """,
    )
    assert "one call is testing breaker" in why(store, job_id).sentence
    sql(
        database,
        """
        UPDATE cortex.breaker SET state = 'OPEN', open_until = NULL, probe_by = NULL,
            probe_until = NULL, forced_by = 'bob', forced_reason = 'repairs', forced_at = now()
        """,
    )
    assert "bob holds breaker llm:m open: repairs" in why(store, job_id).sentence


def test_why_shows_the_spending_of_a_budget(
    store: Session, database: str, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    pod = enter()
    job_id = submit()
    name = "tenant:default:usd:run"
    suspend(store, pod, claim(store, pod), waiting_on=f"budget:{name}", delay_s=None)
    output = why(store, job_id)
    assert (output.cause, f"budget:{name}" in output.sentence) == (Cause.APPROVAL, True)
    sql(
        database,
        """
        WITH budget AS (
            INSERT INTO cortex.budget (
                scope, subject, unit, period, limit_amount, changed_by, reason)
            VALUES ('tenant', 'default', 'usd', 'run', 2.5, 'ana', 'so') RETURNING id
        )
        INSERT INTO cortex.budget_use (budget_id, window_key, spent) SELECT id, $1, 3 FROM budget
        """,
        str(job_id),
    )
    facts = store(facts_of, job_id)
    assert facts.budget is not None
    assert (facts.budget.limit, facts.budget.spent) == (Decimal("2.5"), Decimal(3))
    output = told_by(facts)
    assert (output.cause, output.sentence) == (
        Cause.BUDGET,
        f"budget {name} is spent: $3.00 of $2.50",
    )
    sql(database, "UPDATE cortex.budget SET limit_amount = 10")
    assert why(store, job_id).cause is Cause.READY


def test_why_explains_ended_jobs_and_refuses_unknown_ones(
    store: Session, submit: Callable[..., UUID]
) -> None:
    job_id = submit()
    store(jobs.cancel, job_id, by="ana", reason="enough")
    facts = store(facts_of, job_id)
    assert facts.status is JobStatus.CANCELLED
    assert told_by(facts).sentence == "it was cancelled by ana: enough"
    with pytest.raises(NotFoundError):
        store(facts_of, new_id())


def test_list_shows_a_short_reason_per_job(
    store: Session, database: str, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    pod = enter()
    limited, behind = submit(), submit()
    failure: dict[str, Any] = {"code": "rate_limit", "error_source": "llm:m", "error": "too\nmany"}
    suspend(store, pod, claim(store, pod), **failure)
    suspend(store, pod, claim(store, pod), waiting_on="llm:m", is_counted=False)
    sql(
        database,
        """
        INSERT INTO cortex.breaker (name, state, failures, successes, requests, probe, opened_at,
                                    open_until, last_error)
        VALUES ('llm:m', 'OPEN', 3, 0, 3, 0, now(), now() + interval '30 seconds',
                'rate_limit: slow down')
        """,
    )
    first, second = (submit(queue_name="mail") for _ in range(2))
    store(tasks.promote)
    paused = submit(queue_name="reports")
    store(pauses.pause, Pausable(PauseKind.QUEUE, "reports"), by="ana", reason="deploy")
    unknown, due = submit(type="nobody_has"), submit()
    ids = [limited, behind, second, paused, unknown, due]
    found = {
        job_id: brief(facts) for job_id, facts in store(facts_of_all, [*ids, new_id()]).items()
    }
    assert found[limited] == "429 from m: too many"
    assert found[behind] == "429 from m: slow down"
    assert found[second] == f"behind job …{str(first)[-6:]} in queue mail"
    assert found[paused] == "queue reports paused by ana: deploy"
    assert found[unknown].startswith("no pod knows its job type 'nobody_has'")
    assert found[due] == ""
    assert set(found) == set(ids)
    assert store(facts_of_all, []) == {}


def test_threads_that_a_pod_has_lost(
    store: Session, database: str, submit: Callable[..., UUID], enter: Callable[..., pods.Pod]
) -> None:
    pod = enter()
    job_id = submit()
    claimed = claim(store, pod)
    sql(database, "UPDATE cortex.pod SET threads_lost = 460 WHERE id = $1", pod.id)
    assert "its pod runs with 460 of 500 threads" in why(store, job_id).sentence
    release = Release(lease=claimed.lease, outcome="handed_back", is_counted=False)
    assert store(tasks.release, pod_id=pod.id, operations=[release])
    assert f"pod {pod.name} handed it back: it drained" in why(store, job_id).sentence
