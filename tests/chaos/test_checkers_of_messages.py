"""Each way in which messages can be sick: lost, doubled under two ids, out of order, made up."""

from collections.abc import Callable
from uuid import UUID

import pytest
from attrs import evolve

from chaos.checkers import i19_messages
from chaos.checkers.verdict import Result
from tests.support.evidence import HOOK, Run

STEP = {"topic": "chaos.step", "payload": {"key": "j", "place": 0}, "key": "j"}
ENDED = {"topic": "job.completed", "payload": {"job": str(UUID(int=90))}, "key": "90"}


def healthy() -> Run:
    """Two orders, of which the first was refused once, and a job that has published and ended."""
    run = Run()
    for number in (1, 2):
        labels = {"number": number, "key": "publisher-1"}
        run.tell(number, "publisher-1", "publish", "invoke", **labels)
        run.tell(number + 0.1, "publisher-1", "publish", "ok", **labels)
    run.tell(3, "publisher-1", "publish", "invoke", number=3, key="publisher-1")
    run.tell(3.1, "publisher-1", "publish", "fail", number=3, key="publisher-1")
    run.phase(9, "quiet")
    run.subscriptions.append({"name": HOOK, "topic": "*"})
    run.jobs["j"] = {"id": UUID(int=90), "status": "COMPLETED"}
    run.steps.append({"job_id": UUID(int=90), "seq": 1, "kind": "message", "output": STEP})
    run.message(1, 1.2, 6.2)
    run.message(2, 6.3, 6.4)
    run.message(4, 5.0, **STEP)
    run.message(5, 5.1, **ENDED)
    run.deliveries[0] = evolve(run.deliveries[0], is_accepted=False)
    return run


def test_messages_that_arrive_once_or_again_in_order_are_healthy() -> None:
    verdict = i19_messages.check(healthy().evidence())
    assert verdict.result is Result.VALID, verdict.why
    assert verdict.figures["again"] == 2


Spoil = Callable[[Run], object]


def lost(run: Run) -> None:
    del run.deliveries[4]


def left(run: Run) -> None:
    run.messages[1]["status"] = "PENDING"


def given_up(run: Run) -> None:
    run.messages[1]["status"] = "FAILED"


def death_costs(run: Run) -> None:
    run.messages[1] |= {"attempts": 2, "claim": 2, "lost_count": 1}


def made_up(run: Run) -> None:
    del run.messages[0]


def not_published(run: Run) -> None:
    del run.messages[2]


def not_announced(run: Run) -> None:
    del run.messages[3]


def not_rolled_back(run: Run) -> None:
    run.message(3, 7.0)


def two_ids(run: Run) -> None:
    run.message(7, 7.0, payload={"number": 2})


def overtaken(run: Run) -> None:
    run.deliveries[2] = evolve(run.deliveries[2], at_s=6.1)


def altered(run: Run) -> None:
    run.deliveries[2] = evolve(run.deliveries[2], payload={"number": 7})


def reopened(run: Run) -> None:
    names = {"message": "m", "subscription": HOOK}
    run.reopened.append({**names, "previous": "SENT", "new": "PENDING"})


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lost, "recorded as sent, but never arrived"),
        (left, "is still PENDING"),
        (given_up, "was given up after 1 attempts"),
        (death_costs, "counts as 2 attempts, though 1 of their pods did not survive"),
        (made_up, "but nobody published it"),
        (not_announced, "job.completed of"),
        (not_published, "chaos.step of j:0 was never published"),
        (not_rolled_back, "chaos.order 3 certainly was not"),
        (two_ids, "chaos.order of 2 was published 2 times"),
        (overtaken, "before message"),
        (altered, "arrived as chaos.order"),
        (reopened, "was SENT, and then written to again: PENDING"),
    ],
)
def test_sick_messages_are_seen(spoil: Spoil, why: str) -> None:
    run = healthy()
    spoil(run)
    verdict = i19_messages.check(run.evidence())
    assert verdict.result is Result.INVALID
    assert any(why in each for each in verdict.why), verdict.why


def test_an_order_that_is_not_certain_is_not_judged() -> None:
    """The reply to the first was lost: it may have been committed after the second."""
    run = healthy()
    overtaken(run)
    run.events = [e for e in run.events if e.value.get("number") != 1 or e.type != "ok"]
    assert i19_messages.check(run.evidence()).result is Result.VALID
