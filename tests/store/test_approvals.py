"""Requests for approval: creation, decision, expiry, and the consequences for their jobs.

Long because all of them are about one function, on the same jobs that ask.
"""

import hashlib
import json
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import attrs
import pytest

from cortex.domain.approvals.approval import Approval, ApprovalStatus, Risk
from cortex.domain.canonical import canonical, digest
from cortex.domain.dead_letter import UNRESOLVED
from cortex.domain.errors import ConflictError, ExpiredError, NotFoundError, RejectedError
from cortex.domain.job import Finish, JobStatus
from cortex.domain.people import Identity
from cortex.domain.token import digest_of_link
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import approvals, dead_letters, jobs, people, pulse, retries, specs, tasks
from cortex.store.dead_letters import Resubmission
from cortex.store.specs import SpecKind
from tests.support.people import enrolled, uid_of, user
from tests.support.records.approvals import (
    ARGUMENTS,
    Askers,
    a_request,
    a_verdict,
    facts,
    suspension,
)
from tests.support.records.rows import (
    NoPause,
    assert_one_truth,
    history,
    job_row,
    move_clock,
    new_id,
)
from tests.support.servers.postgres import sql

EDITED = canonical({"customer": "cus_88", "amount": 9})


@pytest.fixture
def askers(store: Session, database: str) -> Askers:
    return Askers(store, database)


def test_waiting_for_approval_holds_no_task_or_pod(askers: Askers) -> None:
    request = a_request()
    job_id = askers.ask(request)
    row = job_row(askers.dsn, job_id)
    assert (row["status"], row["waiting_on"]) == ("WAITING_FOR_APPROVAL", f"approval:{request.id}")
    assert (row["task_state"], row["worker_job_id"], row["pod_id"]) == (None, None, None)
    shown = askers.row(request)
    assert (shown.status, shown.risk, shown.agreed) == ("PENDING", "MED", 0)
    assert (shown.arguments, shown.asked) == (ARGUMENTS, ARGUMENTS)
    assert shown.arguments_text == request.arguments
    assert shown.digest == request.digest == shown.asked_digest
    assert (shown.job_id, shown.lineage_id, shown.attempt) == (job_id, job_id, 1)
    assert 3590 < (shown.expires_at - shown.now).total_seconds() <= 3600
    assert not hasattr(shown, "token_digest")
    assert_one_truth(askers.dsn)


def test_approval_resumes_the_job(askers: Askers) -> None:
    request = a_request()
    job_id = askers.ask(request)
    ruling = askers.decide(request, reason="fine", address="10.0.0.7", client="curl")
    assert (ruling.outcome, ruling.agreed_count) == ("approved", 1)
    shown = askers.row(request)
    output = ("status", "decided_by", "reason", "channel", "address", "client")
    expected = ["APPROVED", "ana", "fine", "cli", "10.0.0.7", "curl"]
    assert [getattr(shown, name) for name in output] == expected
    assert job_row(askers.dsn, job_id)["task_state"] == "READY"
    ((what, data),) = facts(askers.dsn, request.id)
    assert (what, data["by"], data["reason"], data["was_edited"]) == (
        "approval_approved",
        "ana",
        "fine",
        False,
    )
    again = askers.claim(job_id)
    assert (again.lease.attempt, again.attempts_spent) == (2, 1), "waiting is no trial"
    assert again.has_open, "its question must be loaded"
    found = askers.call(approvals.of_line, job_id, request.key)
    assert found is not None
    assert (found.status, found.by) == (ApprovalStatus.APPROVED, "ana")
    assert_one_truth(askers.dsn)


def test_denial_resumes_or_fails_the_job_as_configured(askers: Askers) -> None:
    output, failed = a_request(), a_request(on_deny="fail")
    told_job, failed_job = askers.ask(output), askers.ask(failed)
    for request in (output, failed):
        ruling = askers.decide(request, is_approved=False, by="li", reason="too much")
        assert (ruling.outcome, askers.row(request).status) == ("denied", "DENIED")
    assert job_row(askers.dsn, told_job)["task_state"] == "READY"
    row = job_row(askers.dsn, failed_job)
    assert (row["status"], row["error_code"], row["error_class"]) == (
        "FAILED",
        "denied",
        "PERMANENT",
    )
    assert row["error_message"] == "refund was denied by li: too much"
    assert [new for _, new, _ in history(askers.dsn, failed_job)][-1] == "FAILED"
    assert sql(askers.dsn, "SELECT FROM cortex.dead_letter") == []
    assert_one_truth(askers.dsn)


@pytest.mark.parametrize("decision", ["denied", "approval_expired"])
def test_a_job_that_people_failed_is_no_dead_letter_and_asks_again_in_a_new_job(
    askers: Askers, decision: str
) -> None:
    request = a_request(on_deny="fail")
    job_id = askers.ask(request)
    if decision == "denied":
        askers.decide(request, is_approved=False, by="li", reason="too much")
    else:
        move_clock(askers.dsn, 3601)
        assert askers.call(approvals.expire).count == 1
    assert sql(askers.dsn, "SELECT FROM cortex.dead_letter") == []
    assert askers.call(pulse.figures).letters == dict.fromkeys(UNRESOLVED, 0)
    with pytest.raises(NotFoundError, match="that is a decision, and no dead letter"):
        askers.call(dead_letters.show, job_id)
    done = askers.call(retries.retry_now, job_id, by="ana", reason="agreed", new_id=new_id)
    assert done.retried_as is not None
    heir = job_row(askers.dsn, done.retried_as)
    assert (heir["status"], heir["origin_id"]) == ("PENDING", job_id)
    with pytest.raises(ConflictError, match="goes on already"):
        askers.call(retries.retry_now, job_id, by="bo", reason="", new_id=new_id)
    assert len(sql(askers.dsn, "SELECT FROM cortex.job WHERE origin_id IS NOT NULL")) == 1
    ((what, data),) = sql(
        askers.dsn,
        "SELECT subtype, data::json FROM cortex.fact WHERE subtype = 'decision_retried'",
    )
    assert (what, json.loads(data)["by"]) == ("decision_retried", "ana")


def test_second_decider_learns_the_first_decision(askers: Askers) -> None:
    request = askers.asked()
    askers.decide(request, is_approved=False, by="li", reason="no", channel="page")
    output = askers.refused(request).message
    assert output.startswith(f"approval {request.id} was already denied by li at 20")
    assert output.endswith("Z on page: no")
    assert askers.row(request).decided_by == "li"
    assert len(facts(askers.dsn, request.id)) == 1


def test_a_decision_on_other_arguments_than_those_shown_is_refused(askers: Askers) -> None:
    request = askers.asked(people=2)
    assert askers.decide(request, by="li", edited=EDITED).outcome == "agreed"
    for is_approved in (True, False):
        refused = askers.refused(request, is_approved=is_approved, reason="no")
        assert "have changed since" in refused.message
    assert askers.row(request).status == "PENDING"


def test_approval_covers_the_edited_arguments(askers: Askers) -> None:
    request = a_request()
    job_id = askers.ask(request)
    assert askers.decide(request, edited=EDITED).outcome == "approved"
    shown = askers.row(request)
    assert (shown.arguments_text, shown.asked_text) == (EDITED, request.arguments)
    assert (shown.digest, shown.asked_digest) == (digest(EDITED), request.digest)
    assert (shown.version, shown.edited_by) == (2, "ana")
    ((_, data),) = facts(askers.dsn, request.id)
    assert data["was_edited"] is True
    old = sql(askers.dsn, "SELECT old, digest FROM cortex.approval_vote")[0]
    assert (old["old"], old["digest"]) == (request.arguments, digest(EDITED))
    found = askers.call(approvals.of_line, job_id, request.key)
    assert found is not None
    assert (found.arguments, found.asked_digest) == (EDITED, request.digest)


def test_request_without_a_schema_cannot_be_edited(askers: Askers) -> None:
    request = askers.asked(schema=None)
    for edited in (EDITED, request.arguments):
        assert "cannot be edited" in askers.refused(request, edited=edited).message
    assert askers.decide(request).outcome == "approved"


@pytest.mark.smoke("What was approved is what runs")
def test_critical_request_needs_two_people_besides_the_submitter(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL", submitted_by="ana")
    for number in (1, 2):
        same = enrolled(askers.dsn, "ana", number=number)
        assert "asked for by you" in askers.refused(request, by=same).message
    first = askers.decide(request, by="li")
    assert (first.outcome, first.agreed_count) == ("agreed", 1)
    for number in (1, 2):
        refused = askers.refused(request, by=enrolled(askers.dsn, "li", number=number))
        assert refused.message == f"you have agreed to approval {request.id} already"
        assert "another person" in str(refused.hint)
    assert askers.row(request).status == "PENDING"
    assert job_row(askers.dsn, askers.row(request).job_id)["task_state"] is None
    last = askers.decide(request, by="kim", reason="checked")
    assert (last.outcome, last.agreed_count) == ("approved", 2)
    assert [vote.person for vote in askers.row(request).votes] == ["li", "kim"]
    assert [what for what, _ in facts(askers.dsn, request.id)] == [
        "approval_agreed",
        "approval_approved",
    ]


@pytest.mark.parametrize(
    "same", ["LI\u00c9", "lie\u0301", " li\u00e9", "li\u00e9\t", "\uff4c\uff49\u00e9"]
)
def test_submitter_is_recognised_in_any_spelling_of_the_name(askers: Askers, same: str) -> None:
    request = askers.asked(risk="CRITICAL", submitted_by=same)
    assert "asked for by you" in askers.refused(request, by="li\u00e9").message


def test_two_credentials_of_one_person_are_one_person(askers: Askers) -> None:
    request = askers.asked(people=2)
    assert askers.decide(request, by=user("x1")).outcome == "agreed"
    by = user("admin")
    credentials = [f"os:{uid_of('x1')}"]
    askers.call(people.add, "x3", credentials=credentials, by=by, reason="it is hers")
    for same in (user("x1"), enrolled(askers.dsn, "x3"), enrolled(askers.dsn, "x3", number=2)):
        refused = askers.refused(request, by=same)
        assert "you have agreed" in refused.message
        assert "CORTEX_TOKEN" in str(refused.hint)
    second = askers.decide(request, by=enrolled(askers.dsn, "x4"))
    assert (second.outcome, second.agreed_count) == ("approved", 2)
    shown = askers.row(request)
    assert [vote.person for vote in shown.votes] == ["x1", "x4"]
    assert shown.votes[0].credential == credentials[0]


def test_an_operating_system_user_is_not_enough_for_a_critical_request(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    refused = askers.refused(request, by=user("li"))
    assert "an operating-system user is not enough" in refused.message
    assert askers.decide(request, by=user("li"), is_approved=False).outcome == "denied"


def test_a_label_stands_beside_the_name_and_never_replaces_it(askers: Askers) -> None:
    request = askers.asked(people=2)
    assert askers.decide(request, by=user("x1", label="x2")).outcome == "agreed"
    assert "you have agreed" in askers.refused(request, by=user("x1", label="x3")).message
    assert [vote.person for vote in askers.row(request).votes] == ["x1 (x2)"]


def test_the_credential_that_submitted_a_job_does_not_decide(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    by = enrolled(askers.dsn, "somebody else")
    query = "UPDATE cortex.approval SET requested_with = $2 WHERE id = $1"
    sql(askers.dsn, query, request.id, by.credential)
    for number in (1, 2):
        refused = askers.refused(request, by=enrolled(askers.dsn, "somebody else", number=number))
        assert "asked for by you" in refused.message
    assert askers.decide(request, is_approved=False, by=by).outcome == "denied"


def test_several_people_must_sign_in(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    reader = Identity.with_link("ana", link=b"")
    refused = askers.refused(request, by=reader)
    assert (refused.code, "needs several people" in refused.message) == ("forbidden", True)
    one = askers.asked(risk="LOW")
    token = askers.call(approvals.link, one.id, by=user("ana"))
    assert "a link is not enough" in askers.refused(one, by=reader).message
    reader = Identity.with_link("ana", link=digest_of_link(token))
    assert askers.decide(one, by=reader).outcome == "approved"


def test_a_submit_by_sql_has_a_requester(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    (found,) = sql(askers.dsn, "SELECT session_user AS login")
    assert askers.row(request).requested_with == f"db:{found['login']}"


def test_edit_restarts_the_count_of_agreements(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    assert askers.decide(request, by="li").outcome == "agreed"
    edit = askers.decide(request, by="kim", edited=EDITED)
    assert (edit.outcome, edit.agreed_count) == ("agreed", 1)
    assert askers.row(request).agreed == 1
    refused = askers.refused(request, by="kim", seen=digest(EDITED))
    assert "you have agreed" in refused.message
    again = askers.decide(request, by="li", seen=digest(EDITED))
    assert (again.outcome, again.agreed_count) == ("approved", 2)
    assert askers.row(request).arguments_text == EDITED


def test_the_database_itself_does_not_let_one_person_approve_a_critical_one(
    askers: Askers,
) -> None:
    with pytest.raises(RejectedError, match="critical_needs_two"):
        askers.asked(risk="CRITICAL", people=1)


@pytest.mark.parametrize(
    "change", ["status = 'APPROVED'", "asked = '{}'", "risk = 'LOW'", "tool = 'x'", "people = 1"]
)
def test_decided_requests_and_votes_are_immutable(askers: Askers, change: str) -> None:
    request = askers.asked(risk="CRITICAL")
    askers.decide(request, is_approved=False, reason="no")
    with pytest.raises(asyncpg.CheckViolationError):
        sql(askers.dsn, f"UPDATE cortex.approval SET {change}")  # noqa: S608
    with pytest.raises(asyncpg.CheckViolationError):
        sql(askers.dsn, "DELETE FROM cortex.approval_vote")


# --- expiry


def test_expired_request_cannot_be_decided_and_is_not_denied(askers: Askers) -> None:
    request = askers.asked()
    move_clock(askers.dsn, 3601)
    error = askers.refused(request)
    assert isinstance(error, ExpiredError)
    assert "nothing was executed" in error.message
    assert askers.call(approvals.expire).count == 1
    shown = askers.row(request)
    assert (shown.status, shown.decided_by, shown.reason) == ("EXPIRED", None, None)
    error = askers.refused(request)
    assert (error.code, error.exit_code) == ("expired", 7)
    assert askers.call(approvals.expire).count == 0
    assert [what for what, _ in facts(askers.dsn, request.id)] == ["approval_expired"]


def test_expiry_fails_or_resumes_the_job_as_configured(askers: Askers) -> None:
    failing, telling = a_request(), a_request(on_expiry="tell")
    failed_job, told_job = askers.ask(failing), askers.ask(telling)
    other = askers.asked(expires_s=9000.0)
    move_clock(askers.dsn, 3601)
    assert askers.call(approvals.expire).count == 2
    row = job_row(askers.dsn, failed_job)
    assert (row["status"], row["error_code"]) == ("FAILED", "approval_expired")
    assert row["error_message"].startswith("nobody decided on refund until 20")
    assert job_row(askers.dsn, told_job)["task_state"] == "READY"
    assert askers.row(other).status == "PENDING"
    assert_one_truth(askers.dsn)


def test_a_job_may_fail_by_an_expired_request(askers: Askers, database: str) -> None:
    """Its code did not catch the error: the fact of that has the code of the request's end."""
    claim = askers.claimed()
    end = Finish(
        lease=claim.lease,
        status=JobStatus.FAILED,
        error="nobody decided",
        code="approval_expired",
        fact="{}",
    )
    assert askers.call(jobs.finish, pod_id=askers.pod_id, operations=[end]) == {claim.lease.job_id}
    (fact,) = sql(database, "SELECT type FROM cortex.fact WHERE subtype = 'approval_expired'")
    assert fact["type"] == "error"


def test_clock_moved_back_reopens_an_expired_request(askers: Askers) -> None:
    request = askers.asked()
    move_clock(askers.dsn, 7200)
    assert askers.refused(request).code == "expired"
    move_clock(askers.dsn, 0)
    assert askers.call(approvals.expire).count == 0
    assert askers.decide(request).outcome == "approved"


def test_a_vote_that_was_read_as_too_late_never_counts(
    askers: Askers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rules were not checked: the clock may be set back before the database judges it."""
    request = a_request(risk=Risk.HIGH)
    job_id = askers.ask(request)
    read = approvals.show_all

    async def late(db: Database, ids: Sequence[UUID]) -> list[Approval]:
        return [attrs.evolve(each, now=each.expires_at) for each in await read(db, ids)]

    monkeypatch.setattr(approvals, "show_all", late)
    refused = askers.refused(request, edited="{", confirm=None)
    assert isinstance(refused, ExpiredError)
    assert askers.row(request).status is ApprovalStatus.PENDING
    assert job_row(askers.dsn, job_id)["status"] == "WAITING_FOR_APPROVAL"


def test_the_newest_request_counts_although_the_clock_went_back(askers: Askers) -> None:
    claim = askers.claimed()
    move_clock(askers.dsn, 3600)
    old = a_request()
    askers.suspend(claim, old)
    askers.decide(old, is_approved=False, reason="no")
    move_clock(askers.dsn, -3600)
    new = a_request({"customer": "cus_89", "amount": 1})
    askers.suspend(askers.claim(claim.lease.job_id), new)
    found = askers.call(approvals.of_line, claim.lease.job_id, new.key)
    assert found is not None
    assert found.id == new.id


# --- several gates of one job


def test_decision_while_the_job_runs_prevents_its_suspension(askers: Askers) -> None:
    first, second = a_request(key="a"), a_request(key="b")
    job_id = askers.ask(first, second)
    askers.decide(first)
    running = askers.claim(job_id)
    assert askers.decide(second).outcome == "approved"
    askers.suspend(running, awaited=(second.id,))
    row = job_row(askers.dsn, job_id)
    assert (row["status"], row["waiting_on"]) == ("RETRY", None)
    assert row["next_retry_at"] <= row["now"]


def test_undecided_request_suspends_the_job_again(askers: Askers) -> None:
    first, second = a_request(key="a"), a_request(key="b")
    job_id = askers.ask(first, second)
    askers.decide(second)
    askers.suspend(askers.claim(job_id), awaited=(first.id,))
    row = job_row(askers.dsn, job_id)
    assert row["status"] == "WAITING_FOR_APPROVAL"
    assert row["waiting_on"] == f"approval:{first.id}"
    askers.decide(first)
    assert job_row(askers.dsn, job_id)["task_state"] == "READY"


def test_both_decisions_of_a_waiting_job_make_one_task(askers: Askers) -> None:
    first, second = a_request(key="a"), a_request(key="b")
    job_id = askers.ask(first, second)
    askers.decide(first)
    askers.decide(second)
    tasks_of = "SELECT count(*) AS n FROM cortex_worker.task WHERE job_id = $1"
    assert sql(askers.dsn, tasks_of, job_id)[0]["n"] == 1
    assert_one_truth(askers.dsn)


def test_denial_that_fails_the_job_voids_its_other_requests(askers: Askers) -> None:
    first, second = a_request(key="a", on_deny="fail"), a_request(key="b")
    job_id = askers.ask(first, second)
    askers.decide(first, is_approved=False, reason="no")
    assert job_row(askers.dsn, job_id)["status"] == "FAILED"
    assert askers.refused(second).message.endswith("is void: its job was FAILED")


def test_changed_request_of_a_job_voids_its_old_one(askers: Askers) -> None:
    """So after a release with another default: no person decides on what will not run."""
    old, other = a_request(key="a"), a_request(key="b")
    job_id = askers.ask(old, other)
    askers.decide(other)
    new = a_request({"customer": "cus_88", "amount": 13}, key="a")
    askers.suspend(askers.claim(job_id), new)
    assert askers.row(old).status == "CANCELLED"
    assert askers.row(old).reason == "its job asks for something else now"
    assert askers.row(new).status == "PENDING"
    assert askers.row(other).status == "APPROVED"


# --- other ends


def test_a_cancelled_job_voids_its_requests(askers: Askers) -> None:
    request = a_request()
    job_id = askers.ask(request)
    askers.call(jobs.cancel, job_id, by="li", reason="not wanted")
    shown = askers.row(request)
    assert (shown.status, shown.decided_by) == ("CANCELLED", None)
    assert "is void: its job was CANCELLED" in askers.refused(request).message
    move_clock(askers.dsn, 9000)
    assert askers.call(approvals.expire).count == 0


def test_a_running_job_that_ends_voids_its_requests(askers: Askers) -> None:
    first, second = a_request(key="a"), a_request(key="b")
    job_id = askers.ask(first, second)
    askers.decide(first)
    running = askers.claim(job_id)
    end = Finish(lease=running.lease, status=JobStatus.COMPLETED, result="1")
    askers.call(jobs.finish, pod_id=askers.pod_id, operations=[end])
    assert askers.row(second).status == "CANCELLED"
    assert askers.row(first).status == "APPROVED"


def test_cancelled_job_makes_no_request(askers: Askers) -> None:
    claim = askers.claimed()
    askers.call(jobs.cancel, claim.lease.job_id, by="li", reason="")
    request = a_request()
    askers.suspend(claim, request)
    assert job_row(askers.dsn, claim.lease.job_id)["status"] == "CANCELLED"
    with pytest.raises(NotFoundError):
        askers.row(request)


def test_a_dead_pods_job_finds_the_decision(askers: Askers) -> None:
    first, second = a_request(key="a"), a_request(key="b")
    job_id = askers.ask(first, second)
    askers.decide(first)
    askers.claim(job_id)
    askers.decide(second)
    move_clock(askers.dsn, 1000)
    assert askers.call(tasks.sweep, silent_s=300.0, limit=10, rng=NoPause()).retried_count == 1
    assert askers.call(retries.due).count == 1
    assert askers.claim(job_id).lease.attempt == 3
    assert_one_truth(askers.dsn)


def test_a_repeated_suspension_asks_once(askers: Askers) -> None:
    claim = askers.claimed()
    operation = suspension(claim, a_request())
    for expected in ({claim.lease.job_id}, set()):
        done = askers.call(tasks.suspend, pod_id=askers.pod_id, operations=[operation])
        assert done == expected
    assert len(askers.call(approvals.pending)) == 1


def test_approved_job_returns_to_its_named_queue(askers: Askers) -> None:
    request = a_request()
    job_id = askers.ask(request, queue_name="q")
    behind = askers.claimed(queue_name="q")
    askers.decide(request)
    assert job_row(askers.dsn, job_id)["task_state"] == "QUEUED", "the queue is busy"
    end = Finish(lease=behind.lease, status=JobStatus.COMPLETED, result="1")
    askers.call(jobs.finish, pod_id=askers.pod_id, operations=[end])
    assert askers.claim(job_id).lease.attempt == 2


def test_a_job_keeps_its_key_over_the_wait(askers: Askers) -> None:
    """Submitted again under its key, a decided job that has not begun is replaced as before."""
    request = a_request()
    job_id = askers.ask(request, job_key="k")
    askers.decide(request)
    second = a_request(key="b")
    askers.suspend(askers.claim(job_id), second)
    askers.decide(second)
    successor = askers.claimed(job_key="k").lease.job_id
    row = job_row(askers.dsn, job_id)
    assert (row["status"], row["task_state"]) == ("CANCELLED", None)
    assert str(successor) in row["cancel_reason"]


# --- several at once


def test_several_are_decided_together_or_not_at_all(askers: Askers) -> None:
    requests = [askers.asked() for _ in range(3)]
    verdicts = [a_verdict(each) for each in requests]
    askers.decide(requests[1], is_approved=False, by="li", reason="not this")
    with pytest.raises(ConflictError, match="already denied by li"):
        askers.call(approvals.decide, verdicts)
    assert [askers.row(each).status for each in requests] == ["PENDING", "DENIED", "PENDING"]
    assert all(
        job_row(askers.dsn, askers.row(requests[i]).job_id)["task_state"] is None for i in (0, 2)
    )
    rest = [verdicts[2], verdicts[0]]
    rulings = askers.call(approvals.decide, rest)
    assert [each.outcome for each in rulings] == ["approved", "approved"]
    with pytest.raises(NotFoundError):
        askers.call(approvals.decide, [a_verdict(a_request())])


# --- links


def test_a_link_has_a_token_of_its_own_until_the_decision(askers: Askers) -> None:
    request, other = askers.asked(), askers.asked()
    tokens = [askers.call(approvals.link, request.id, by=user("ana")) for _ in range(2)]
    assert len(tokens[0]) == 43, "256 random bits"
    row = sql(askers.dsn, "SELECT token_digest FROM cortex.approval WHERE id = $1", request.id)[0]
    assert row["token_digest"] == hashlib.sha256(tokens[1].encode()).digest(), "kept as a digest"
    assert not askers.call(approvals.is_token, request.id, tokens[0]), "the second took its place"
    assert askers.call(approvals.is_token, request.id, tokens[1])
    for wrong in ("", tokens[1][:-1], tokens[1] + "x", "\0", "\ud800", "0" * 64):
        assert not askers.call(approvals.is_token, request.id, wrong)
    assert not askers.call(approvals.is_token, other.id, tokens[1])
    assert not askers.call(approvals.is_token, new_id(), tokens[1])
    assert askers.row(request).has_link
    assert tokens[1] not in str(askers.row(request))
    askers.decide(request)
    assert askers.call(approvals.is_token, request.id, tokens[1]), "it shows how it ended"
    move_clock(askers.dsn, 8 * 86_400)
    assert not askers.call(approvals.is_token, request.id, tokens[1])
    move_clock(askers.dsn, 0)
    with pytest.raises(ConflictError, match="already approved by ana"):
        askers.call(approvals.link, request.id, by=user("ana"))
    with pytest.raises(NotFoundError):
        askers.call(approvals.link, new_id(), by=user("ana"))


# --- lists


def test_resubmitted_job_finds_the_approval_of_its_lineage(askers: Askers) -> None:
    """A yes to the same arguments counts for the lineage; a no is asked again, see the gates."""
    request = a_request()
    job_id = askers.ask(request)
    askers.decide(request)
    claim = askers.claim(job_id)
    end = Finish(lease=claim.lease, status=JobStatus.FAILED, error="boom", code="job_failed")
    askers.call(jobs.finish, pod_id=askers.pod_id, operations=[end])
    new = Resubmission(job_id=job_id, new_id=new_id())
    askers.call(dead_letters.resubmit, [new], by="ana", reason="again")
    again = askers.claim(new.new_id)
    assert again.lineage_id == job_id
    found = askers.call(approvals.of_line, job_id, request.key)
    assert found is not None
    assert (found.status, found.job_id) == (ApprovalStatus.APPROVED, job_id)


RULES = [
    {"approve": True, "tool": "refund", "when": {"amount": {"gt": 1000}}, "risk": "CRITICAL"},
    {"approve": True, "tool": "refund"},
]


def test_an_edit_that_crosses_a_rule_is_refused_when_it_is_made(askers: Askers) -> None:
    spec = {"model": "scripted", "approvals": RULES}
    askers.call(specs.apply, SpecKind.AGENT, new_id=new_id(), name="payer", spec=spec, by="ana")
    request = a_request()
    askers.ask(request, agent="payer")
    with pytest.raises(RejectedError, match=r"makes refund CRITICAL.*2 people.*rule 1"):
        askers.decide(request, edited=canonical({**ARGUMENTS, "amount": 1500}))
    assert askers.row(request).status == "PENDING"
    smaller = canonical({**ARGUMENTS, "amount": 900})
    assert askers.decide(request, edited=smaller).outcome == "approved"


def test_arguments_that_are_edited_back_count_no_person_twice(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    assert askers.decide(request, by="x1").outcome == "agreed"
    there = askers.decide(request, by="x1", edited=EDITED)
    assert there.outcome == "agreed"
    other = {"by": enrolled(askers.dsn, "x1", number=2), "seen": digest(EDITED)}
    back = askers.decide(request, **other, edited=request.arguments)
    assert (back.outcome, back.agreed_count) == ("agreed", 1)
    assert askers.decide(request, by="x2").outcome == "approved"
