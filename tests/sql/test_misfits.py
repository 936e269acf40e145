"""Jobs that do not fit a pod's code: handed back uncounted, claimed by other code, or stranded."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.drain import Liveness
from cortex.domain.errors import ConflictError
from cortex.domain.job import Claim, JobStatus, Misfit, Release, Suspend
from cortex.domain.job_filter import parse_filter
from cortex.domain.policy import CODE_WAIT_S
from cortex.postgres.session import Session
from cortex.store import (
    codes,
    feed,
    job_choice,
    job_pages,
    jobs,
    pods,
    queues,
    retries,
    screen_head,
    specs,
    tasks,
    why,
)
from cortex.store.background import alarms
from cortex.store.codes import Code
from cortex.store.specs import SpecKind
from cortex.view.why import Cause
from cortex.view.why import why as why_of
from tests.support.records.factories import a_pod
from tests.support.records.rows import move_clock, new_id
from tests.support.records.rows import submit as submit_by_sql
from tests.support.servers.postgres import sql

TYPE = "digest"
LACKS = "payload of 'digest' lacks site"


def pod(store: Session, version: str, *types: str, **fields: Any) -> UUID:
    """Register a living pod of a code, whose heartbeat shows that it lives."""
    code = Code(version=version)
    store(codes.ensure, code)
    types = types or (TYPE,)
    it = a_pod(code=code, job_types=types, liveness=Liveness.HEARTBEAT, name=version, **fields)
    store(pods.register, it)
    return it.id


def claim(store: Session, pod_id: UUID, *types: str, **given: Any) -> list[Claim]:
    store(tasks.promote)
    found: list[Claim] = store(
        tasks.claim, pod_id=pod_id, types=types or (TYPE,), limit=10, **given
    )
    return found


def hand_back(store: Session, pod_id: UUID, *found: Claim, error: str = LACKS) -> set[UUID]:
    operations = [Misfit(lease=each.lease, kind="arguments", error=error) for each in found]
    done: set[UUID] = store(
        tasks.misfit, pod_id=pod_id, operations=operations, code_wait_s=CODE_WAIT_S
    )
    return done


def misfit(store: Session, pod_id: UUID, *types: str, **given: Any) -> Claim:
    (found,) = claim(store, pod_id, *types, **given)
    assert hand_back(store, pod_id, found) == {found.lease.job_id}
    return found


def check(store: Session, code_wait_s: float = CODE_WAIT_S) -> list[str]:
    found = store(alarms.check, code_wait_s=code_wait_s)
    assert found is not None
    return list(found.announced)


def job(database: str, job_id: UUID) -> dict[str, Any]:
    (row,) = sql(database, "SELECT * FROM cortex.job WHERE id = $1", job_id)
    return dict(row)


def passing(database: str, seconds: float) -> None:
    """Let time pass; the pods beat on."""
    move_clock(database, seconds)
    sql(database, "UPDATE cortex.pod SET heartbeat_at = cortex.now()")


@pytest.mark.smoke("A change of the code fails no job")
def test_other_code_claims_a_job_that_one_code_handed_back(store: Session, database: str) -> None:
    old, twin, new = pod(store, "v1"), pod(store, "v1"), pod(store, "v2")
    job_id = submit_by_sql(database, TYPE)
    first = misfit(store, old)
    row = job(database, job_id)
    assert (row["status"], row["waiting_on"], row["attempt"]) == ("RETRY", None, 1), "v2 fits"
    assert row["next_retry_at"] == row["suspended_at"], "it is due"
    assert (row["retry_count"], row["rate_limit_count"], row["pod_id"]) == (0, 0, None)
    assert claim(store, old) == claim(store, twin) == [], "the same code does not look again"
    (second,) = claim(store, new)
    assert second.lease.job_id == first.lease.job_id
    assert (second.attempts_spent, second.retry_count) == (1, 0), "nothing was counted"
    assert job(database, job_id)["status"] == "RUNNING"
    assert job(database, job_id)["waiting_on"] is None
    assert hand_back(store, old, first) == set(), "another attempt owns it"
    facts = sql(database, "SELECT FROM cortex.fact WHERE type = 'error'")
    assert facts == [], "it is no error"


def test_later_code_takes_jobs_that_earlier_code_could_not(store: Session, database: str) -> None:
    job_id = submit_by_sql(database, TYPE)
    for version in ("v1", "v2"):
        misfit(store, pod(store, version))
    assert [claim(store, pod(store, version)) for version in ("v1", "v2")] == [[], []]
    (found,) = claim(store, pod(store, "v3"))
    assert found.lease == (found.lease.__class__(job_id, 3))


def test_job_returns_after_a_wait_to_code_that_did_not_refuse_it(
    store: Session, database: str
) -> None:
    old, new = pod(store, "v1"), pod(store, "v2")
    submit_by_sql(database, TYPE)
    misfit(store, old)
    (found,) = claim(store, new)
    wish = Suspend(lease=found.lease, delay_s=20.0, is_counted=False, waiting_on="sleep")
    store(tasks.suspend, pod_id=new, operations=[wish])
    passing(database, 21)
    assert store(retries.due, limit=10).count == 1
    assert claim(store, old) == []
    (found,) = claim(store, new)
    done = Release(lease=found.lease, outcome="handed_back", is_counted=False)
    store(tasks.release, pod_id=new, operations=[done])
    assert (claim(store, old), len(claim(store, new))) == ([], 1)


def test_an_agents_job_needs_tools_and_code(store: Session, database: str) -> None:
    spec = {"name": "reader", "model": "m", "system": "Help.", "tools": ["look_up"]}
    store(specs.apply, SpecKind.AGENT, new_id=new_id(), name="reader", spec=spec, by="ana")
    old, new = pod(store, "v1", "run_agent"), pod(store, "v2", "run_agent")
    submit_by_sql(database, "run_agent", agent="reader")
    misfit(store, old, "run_agent", tools=("look_up",))
    assert claim(store, new, "run_agent") == []
    (found,) = claim(store, new, "run_agent", tools=("look_up",))
    wish = Suspend(lease=found.lease, delay_s=20.0, is_counted=False, waiting_on="sleep")
    store(tasks.suspend, pod_id=new, operations=[wish])
    passing(database, 21)
    store(retries.due, limit=10)
    assert claim(store, old, "run_agent", tools=("look_up",)) == []
    assert len(claim(store, new, "run_agent", tools=("look_up",))) == 1


@pytest.mark.parametrize("is_isolated", [False, True])
def test_suspects_and_isolated_types_know_codes_too(
    store: Session, database: str, is_isolated: bool
) -> None:
    old, new = pod(store, "v1"), pod(store, "v2")
    submit_by_sql(database, TYPE)
    given: dict[str, Any] = {"isolated_types": (TYPE,)} if is_isolated else {}
    types = ("other",) if is_isolated else (TYPE,)
    if not is_isolated:
        sql(database, "UPDATE cortex_worker.task SET is_suspect = true")
    misfit(store, old, *types, **given)
    assert claim(store, old, *types, **given) == []
    check(store)
    assert sql(database, "SELECT jobs FROM cortex_worker.stranded") == [], "v2 can take it"
    sql(database, "UPDATE cortex.pod SET state = 'STOPPED' WHERE id = $1", new)
    check(store)
    assert [row["jobs"] for row in sql(database, "SELECT jobs FROM cortex_worker.stranded")] == [1]
    assert len(claim(store, new, *types, **given)) == 1


def test_a_stranded_head_makes_way_in_its_queue(store: Session, database: str) -> None:
    old = pod(store, "v1")
    first, second = (submit_by_sql(database, TYPE, queue_name="mail") for _ in range(2))
    assert misfit(store, old).lease.job_id == first
    (found,) = claim(store, old)
    assert found.lease.job_id == second
    check(store)
    assert job(database, first)["waiting_on"] == "code"
    new = pod(store, "v2")
    check(store)
    assert claim(store, new) == [], "one after another"
    done = Release(lease=found.lease, outcome="handed_back", is_counted=False)
    store(tasks.release, pod_id=old, operations=[done])
    assert [each.lease.job_id for each in claim(store, new)] == [first], "it kept its place"


def test_a_job_waits_for_code_behind_a_running_one_of_its_queue(
    store: Session, database: str
) -> None:
    old = pod(store, "v1", TYPE, "other")
    job_id = submit_by_sql(database, TYPE, queue_name="mail")
    following = submit_by_sql(database, "other", queue_name="mail", priority=200)
    misfit(store, old)
    (found,) = claim(store, old, "other")
    assert found.lease.job_id == following
    check(store)
    row = job(database, job_id)
    assert (row["status"], row["waiting_on"]) == ("RETRY", "code")
    assert why_of(store(why.facts_of, job_id)).cause is Cause.CODE
    pod(store, "v2")
    check(store)
    assert job(database, job_id)["waiting_on"] is None, "it waits for its queue now"


def test_a_queue_that_became_strict_meanwhile_loses_no_task(store: Session, database: str) -> None:
    pod(store, "v1")
    submit_by_sql(database, "x", queue_name="mail")
    store(queues.make_strict, "mail", by="ana", reason="")
    sql(database, "UPDATE cortex_worker.task SET state = 'STRANDED'")
    check(store)
    assert sql(database, "SELECT state::text FROM cortex_worker.task")[0]["state"] == "QUEUED"


def test_a_cancelled_job_is_not_handed_back(store: Session, database: str) -> None:
    old = pod(store, "v1")
    job_id = submit_by_sql(database, TYPE)
    (found,) = claim(store, old)
    store(jobs.cancel, job_id, by="ana", reason="not needed")
    assert hand_back(store, old, found) == {job_id}
    assert job(database, job_id)["status"] == "CANCELLED"
    assert sql(database, "SELECT FROM cortex_worker.task") == []
    other = submit_by_sql(database, TYPE)
    misfit(store, old)
    store(jobs.cancel, other, by="ana", reason="not needed")
    assert job(database, other)["status"] == "CANCELLED"


def listed(store: Session, text: str) -> set[UUID]:
    return {each.id for each in store(job_pages.page, parse_filter(text)).jobs}


def test_stranded_jobs_have_a_state_of_their_own(store: Session, database: str) -> None:
    pod(store, "v1")
    handed_back, unknown, fine = (submit_by_sql(database, name) for name in (TYPE, "x", "y"))
    old, other = pod(store, "v1"), pod(store, "v1", "y")
    misfit(store, old)
    assert listed(store, "status:code") == set()
    assert check(store) == []
    assert listed(store, "status:code") == {handed_back, unknown}
    shown = store(jobs.show, unknown)
    assert (shown.status, shown.waiting_on) == (JobStatus.PENDING, "code")
    assert store(screen_head.head).stranded == 2
    passing(database, 4)
    assert len(check(store)) == 2
    assert check(store) == [], "announced once"
    assert listed(store, "status:pend") - listed(store, "status:code") == {fine}
    pod(store, "v2", TYPE, "x")
    check(store)
    assert store(screen_head.head).stranded == 0
    assert listed(store, "status:code") == set(), "v2 takes it next"
    assert len(claim(store, other, "y")) == 1


def test_a_poll_for_a_result_ends_early_only_for_stranded_jobs(
    store: Session, database: str
) -> None:
    old, new = pod(store, "v1"), pod(store, "v2")
    job_id = submit_by_sql(database, TYPE)
    misfit(store, old)
    check(store)
    assert store(feed.results, [job_id]).waiting == {}, "v2 can take it"
    sql(database, "UPDATE cortex.pod SET state = 'STOPPED' WHERE id = $1", new)
    check(store)
    assert store(feed.results, [job_id]).waiting.keys() == {job_id}


def test_why_names_the_misfit_until_other_code_exists(store: Session, database: str) -> None:
    job_id = submit_by_sql(database, TYPE)
    misfit(store, pod(store, "v1"))
    found = why_of(store(why.facts_of, job_id))
    assert found.cause is Cause.CODE
    text = f"it does not fit code v1 of pod v1: {LACKS}; it fails at "
    assert found.sentence.startswith(text)
    pod(store, "v2")
    assert why_of(store(why.facts_of, job_id)).cause is Cause.READY


def test_a_job_fails_that_no_code_has_taken_for_too_long(store: Session, database: str) -> None:
    old = pod(store, "v1")
    job_id = submit_by_sql(database, TYPE)
    misfit(store, old)
    check(store)
    due = job(database, job_id)["next_retry_at"]
    passing(database, 86_400)
    later = pod(store, "v2")
    misfit(store, later)
    check(store)
    assert job(database, job_id)["next_retry_at"] == due, "it waits since the first hand-back"
    passing(database, CODE_WAIT_S - 60)
    check(store)
    assert job(database, job_id)["status"] == "RETRY"
    passing(database, CODE_WAIT_S + 61)
    check(store)
    row = job(database, job_id)
    assert (row["status"], row["error_code"]) == ("FAILED", "unfit")
    assert row["error_message"] == f"no code has taken it within 7d 0h: {LACKS}"
    (letter,) = sql(database, "SELECT state FROM cortex.dead_letter WHERE job_id = $1", job_id)
    assert letter["state"] == "OPEN"
    assert sql(database, "SELECT FROM cortex_worker.task") == []


@pytest.mark.smoke("A change of the code fails no job")
def test_a_job_does_not_fail_while_a_pod_could_take_it(store: Session, database: str) -> None:
    misfitting, taking = pod(store, "v1"), pod(store, "v2")
    job_id = submit_by_sql(database, TYPE)
    misfit(store, misfitting)
    passing(database, 2 * CODE_WAIT_S)
    check(store)
    assert job(database, job_id)["status"] == "RETRY"
    assert len(claim(store, taking)) == 1
    check(store)
    assert job(database, job_id)["status"] == "RUNNING"


def test_a_job_of_an_unknown_type_fails_once_that_has_lasted_too_long(
    store: Session, database: str
) -> None:
    pod(store, "v1")
    old = submit_by_sql(database, "x")
    check(store)
    passing(database, CODE_WAIT_S - 10)
    young = submit_by_sql(database, "x")
    passing(database, CODE_WAIT_S + 1)
    check(store)
    row = job(database, old)
    assert (row["status"], row["attempt"]) == ("FAILED", 0)
    assert row["error_message"] == "no pod could take its type x or its tools for 7d 0h"
    assert job(database, young)["status"] == "PENDING"


def test_kinds_of_tasks_are_forgotten_after_their_last_use(store: Session, database: str) -> None:
    old = pod(store, "v1")
    submit_by_sql(database, TYPE)
    misfit(store, old)
    passing(database, timedelta(days=2).total_seconds())
    assert store(tasks.forget_unfit) == 0, "a task has its name"
    new = pod(store, "v2")
    (found,) = claim(store, new)
    store(jobs.cancel, found.lease.job_id, by="ana", reason="x")
    sql(database, "DELETE FROM cortex_worker.task")
    assert store(tasks.forget_unfit) == 1


@pytest.mark.parametrize("queue_name", [None, "mail"])
@pytest.mark.parametrize("is_stranded", [False, True])
def test_retry_now_lets_the_same_code_claim_again(
    store: Session, database: str, queue_name: str | None, is_stranded: bool
) -> None:
    pod_id = pod(store, "v1")
    job_id = submit_by_sql(database, TYPE, queue_name=queue_name)
    misfit(store, pod_id)
    for _ in range(2 * is_stranded):
        check(store)
    assert store(job_choice.why_not_retried, [job_id]) == {job_id: None}
    store(retries.retry_now, job_id, by="ana", reason="mended", new_id=new_id)
    row = job(database, job_id)
    assert (row["unfit_codes"], row["waiting_on"], row["status"]) == (None, None, "RETRY")
    (found,) = claim(store, pod_id)
    assert (found.lease.attempt, found.attempts_spent, found.retry_count) == (2, 1, 0)
    with pytest.raises(ConflictError, match="is running"):
        store(retries.retry_now, job_id, by="ana", reason="", new_id=new_id)
    assert hand_back(store, pod_id, found) == {job_id}, "it does not fit after all"
    assert claim(store, pod_id) == []


def tick(store: Session, database: str, version: str, *types: str) -> UUID:
    """Register a pod of a tick that ends at once."""
    pod_id = pod(store, version, *types)
    end = "UPDATE cortex.pod SET name = 'tick x', state = 'STOPPED', ended_at = cortex.now()"
    sql(database, f"{end} WHERE id = $1", pod_id)
    return pod_id


def test_jobs_that_no_tick_can_take_wait_for_code(store: Session, database: str) -> None:
    job_id, unknown = submit_by_sql(database, TYPE), submit_by_sql(database, "x")
    misfit(store, tick(store, database, "v1"))
    assert len(check(store)) == 0
    assert listed(store, "status:code") == {job_id, unknown}
    assert store(feed.results, [job_id, unknown]).waiting.keys() == {job_id, unknown}
    assert why_of(store(why.facts_of, job_id)).cause is Cause.CODE
    passing(database, 60)
    tick(store, database, "v1")
    assert len(check(store)) == 2
    passing(database, 120)
    tick(store, database, "v2")
    check(store)
    assert listed(store, "status:code") == {unknown}
    passing(database, 86_400)
    assert listed(store, "status:code") == {unknown}
    assert check(store) == [], "no tick for a day: nothing is there to judge by"
    assert listed(store, "status:code") == set()


def test_stranded_tasks_of_a_queue_let_others_pass_and_go_back(
    store: Session, database: str
) -> None:
    old = pod(store, "v1")
    first = [submit_by_sql(database, "x", queue_name="mail", priority=n % 3) for n in range(130)]
    last = submit_by_sql(database, TYPE, queue_name="mail", priority=5)
    for _ in range(2):
        store(tasks.promote)
        check(store)
    for _ in range(3):
        store(tasks.promote)
    states = "SELECT state::text, count(*)::int AS n FROM cortex_worker.task GROUP BY 1"
    assert {row["state"]: row["n"] for row in sql(database, states)} == {
        "STRANDED": 130,
        "READY": 1,
    }
    (row,) = store(queues.page, ["mail"])
    assert (row.ready, row.running) == (131, 0)
    (found,) = claim(store, old)
    assert found.lease.job_id == last
    store(queues.make_strict, "mail", by="ana", reason="")
    assert {row["state"] for row in sql(database, states)} == {"QUEUED", "LOCKED"}
    store(queues.make_relaxed, "mail", by="ana", reason="")
    done = Release(lease=found.lease, outcome="handed_back", is_counted=False)
    store(tasks.release, pod_id=old, operations=[done])
    assert store(tasks.promote) == tasks.PROMOTE_BATCH, "more must make way"
    new = pod(store, "v2", "x")
    check(store)
    (found,) = claim(store, new, "x")
    assert found.lease.job_id == first[0], "they kept their places"
