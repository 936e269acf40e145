"""Missing or needless notifications of people, and jobs deleted too early."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid5

import pytest
from attrs import evolve

from chaos.checkers import i28_people, i29_retention
from chaos.checkers.verdict import Result
from chaos.evidence import Delivery
from chaos.workloads.program import NOTE
from tests.support.evidence import HOOK, PEOPLE, Run, uuid

APPROVAL = uuid("approval")
BY_HAND = uuid("remind")
NOTIFIES = uuid("notify")
NOTE_ID = uuid5(NOTIFIES, "message")


def healthy() -> Run:
    """A request that was reminded of twice, by a runner and by a job; and a notification."""
    run = Run(logs={"p1.1": ""})
    run.phase(9, "quiet")
    run.subscriptions += [{"name": PEOPLE, "topic": "approval.*"}, {"name": HOOK, "topic": "*.x"}]
    run.approvals["j"] = {"id": APPROVAL, "job_id": uuid("j"), "status": "APPROVED"}
    run.jobs["remind"] = _job(BY_HAND, "approval_notify", {"notified": [PEOPLE]})
    run.asked(1, APPROVAL, "requested", 1.0)
    run.asked(2, APPROVAL, "reminder", 2.0, stage="50 %")
    run.asked(3, APPROVAL, "reminder", 3.0, stage="requested")
    run.messages[2]["id"] = uuid5(BY_HAND, "message")
    run.asked(4, APPROVAL, "decided", 4.0)
    result = {"message_id": str(NOTE_ID), "sent": [HOOK], "is_degraded": False}
    run.jobs["notify"] = _job(NOTIFIES, "send_notification", result)
    output = {"job": str(NOTIFIES)}
    run.steps.append({"job_id": uuid("j"), "seq": 1, "key": "2:notify", "output": output})
    note = Delivery(
        subscription=HOOK,
        message=str(NOTE_ID),
        topic=NOTE,
        payload={},
        at_s=5.0,
        is_accepted=True,
    )
    run.deliveries += [note, note]
    return run


def _job(job_id: UUID, type_: str, result: dict[str, Any]) -> dict[str, Any]:
    payload = {"topic": NOTE, "data": {"key": "j", "place": 2}}
    return {
        "id": job_id,
        "type": type_,
        "status": "COMPLETED",
        "result": result,
        "payload": payload,
    }


def test_approval_requests_with_timely_reminders_are_healthy() -> None:
    verdict = i28_people.check(healthy().evidence())
    assert verdict.result is Result.VALID, verdict.why
    assert verdict.figures["reminders"] == 2


Spoil = Callable[[Run], object]


def never_asked(run: Run) -> None:
    del run.messages[0]


def asked_twice(run: Run) -> None:
    run.asked(5, APPROVAL, "requested", 5.0)


def not_delivered(run: Run) -> None:
    del run.deliveries[0]


def reminded_twice(run: Run) -> None:
    run.messages.insert(2, run.messages[1] | {"id": UUID(int=7)})


def reminded_after_the_end(run: Run) -> None:
    run.asked(5, APPROVAL, "reminder", 5.0, stage="90 %")


def end_not_announced(run: Run) -> None:
    del run.messages[3]


def reminded_by_nobody(run: Run) -> None:
    run.messages[2]["id"] = UUID(int=7)


def reminded_again_by_hand(run: Run) -> None:
    run.messages.insert(2, run.messages[2])


def reminded_of_nothing(run: Run) -> None:
    del run.messages[2]


def another_id(run: Run) -> None:
    run.deliveries[-1] = evolve(run.deliveries[-1], message=str(UUID(int=7)))


def not_sent(run: Run) -> None:
    del run.deliveries[-2:]


def lost_in_the_log(run: Run) -> None:
    run.jobs["notify"]["result"] |= {"sent": [], "is_degraded": True}


def two_jobs(run: Run) -> None:
    run.jobs["again"] = run.jobs["notify"] | {"id": uuid("again"), "status": "RUNNING"}


def no_job(run: Run) -> None:
    run.steps[0]["output"] = {"job": str(UUID(int=7))}


@pytest.mark.parametrize(
    "spoil, why",
    [
        (never_asked, "was requested by 0 messages"),
        (asked_twice, "was requested by 2 messages"),
        (not_delivered, "recorded as sent, but nobody was asked"),
        (reminded_twice, "was reminded of 2 times at 50 %"),
        (reminded_after_the_end, "was reminded of, at 90 %, after its end"),
        (end_not_announced, "is APPROVED, which 0 messages say"),
        (reminded_by_nobody, "which no job sent"),
        (reminded_again_by_hand, f"was reminded of 2 times by job {BY_HAND}"),
        (reminded_of_nothing, f"reports that it reminded {PEOPLE}, which got nothing"),
        (another_id, f"{HOOK} got {UUID(int=7)}, which no job sent"),
        (not_sent, f"sent nothing to {HOOK}"),
        (lost_in_the_log, "lost what it could not send"),
        (two_jobs, "2 jobs notify for 2 of j"),
        (no_job, "no job notifies for step 2:notify"),
    ],
)
def test_people_left_alone_or_bothered_are_seen(spoil: Spoil, why: str) -> None:
    run = healthy()
    spoil(run)
    verdict = i28_people.check(run.evidence())
    assert verdict.result is Result.INVALID
    assert any(why in each for each in verdict.why), verdict.why


def test_a_job_that_is_deleted_must_be_old_news_and_archived() -> None:
    run = Run()
    for name, is_needed in (("gone", False), ("kept", True)):
        run.tell(1, "run", "old", job=str(uuid(name)), is_needed=is_needed)
    run.jobs["kept"] = {"id": uuid("kept")}
    assert "not in the archive" in i29_retention.check(run.evidence()).why[0]
    run.archived.add(str(uuid("gone")))
    verdict = i29_retention.check(run.evidence())
    assert (verdict.result, verdict.figures) == (Result.VALID, {"deleted": 1})
    del run.jobs["kept"]
    assert "but a budget refers to it" in i29_retention.check(run.evidence()).why[0]
