"""The outbox in the database: recipients, order, and the right to record an outcome."""

import random
from uuid import UUID

import attrs
import pytest

from cortex.domain.errors import ConflictError, NotFoundError, RejectedError
from cortex.domain.messages.message import (
    LOST_MAX,
    SENT,
    Message,
    MessageStatus,
    Outcome,
    failed,
    handed_back,
)
from cortex.domain.messages.subscription import Subscription
from cortex.postgres.session import Session
from cortex.store import pulse
from cortex.store.background import outbox, subscriptions
from tests.support.life import Life
from tests.support.records.rows import as_runtime, move_clock, new_id
from tests.support.servers.postgres import sql

ALL = 50


def subscribe(store: Session, name: str, topic: str = "*", **more: object) -> None:
    values = {"name": name, "topic": topic, "channel": "log"} | more
    store(subscriptions.put, Subscription(**values), by="test", reason="")  # type: ignore[arg-type]


def publish(store: Session, number: int, key: str | None = None, topic: str = "order.paid") -> UUID:
    return store(outbox.publish, topic, {"number": number}, key=key)


def claim(store: Session, pod: UUID, *names: str, most: int = ALL) -> list[Message]:
    return store(outbox.claim, pod_id=pod, most=dict.fromkeys(names, most)).messages


def numbers(messages: list[Message]) -> list[int]:
    return [message.payload["number"] for message in messages]


def record(store: Session, pod: UUID, outcome: Outcome, *messages: Message) -> outbox.Recorded:
    return store(outbox.record, pod_id=pod, outcomes=[(each, outcome) for each in messages])


def statuses(database: str) -> list[str]:
    return [row["status"] for row in sql(database, "SELECT status FROM cortex.outbox ORDER BY seq")]


def test_each_subscription_that_matches_gets_a_row_under_one_id(
    database: str, store: Session
) -> None:
    subscribe(store, "a", "order.*")
    subscribe(store, "b", "*", filter={"number": 1})
    subscribe(store, "c", "invoice.*")
    first, second = publish(store, 1), publish(store, 2)
    rows = sql(database, "SELECT id, subscription FROM cortex.outbox ORDER BY seq")
    assert [tuple(row) for row in rows] == [(first, "a"), (first, "b"), (second, "a")]


def test_message_without_subscribers_is_sent_at_once(database: str, store: Session) -> None:
    subscribe(store, "a", "invoice.*")
    publish(store, 1)
    (row,) = sql(database, "SELECT status, subscription, attempts FROM cortex.outbox")
    assert tuple(row) == ("SENT", None, 0)


@pytest.mark.parametrize("topic", ["job.failed", "Order", "order..paid", "a b", "cortex.test"])
def test_applications_cannot_publish_under_topics_of_the_runtime(
    store: Session, topic: str
) -> None:
    with pytest.raises(RejectedError):
        publish(store, 1, topic=topic)


def test_rows_of_the_outbox_come_from_its_functions_alone(database: str) -> None:
    as_pod = as_runtime(database)
    insert = (
        "INSERT INTO cortex.outbox (id, topic, payload, tenant) "
        "VALUES (cortex.uuid7(), 'job.failed', '{}', 'x')"
    )
    with pytest.raises(Exception, match="permission denied"):
        sql(as_pod, insert)
    sql(as_pod, "SELECT cortex.publish('order.paid', '{\"n\": 1}', 'k')")
    assert statuses(database) == ["SENT"]


def test_two_claims_share_no_message(store: Session) -> None:
    subscribe(store, "a")
    for number in range(6):
        publish(store, number)
    first = claim(store, new_id(), "a", most=4)
    second = claim(store, new_id(), "a", most=4)
    assert (numbers(first), numbers(second)) == ([0, 1, 2, 3], [4, 5])


def test_messages_of_one_key_go_one_after_another(database: str, store: Session) -> None:
    subscribe(store, "a")
    subscribe(store, "b")
    for number in range(3):
        publish(store, number, "k")
    publish(store, 9, "other")
    pod = new_id()
    first = claim(store, pod, "a")
    assert numbers(first) == [0, 9]
    (parked,) = sql(database, "SELECT count(*) AS n FROM cortex.outbox WHERE is_parked")
    assert parked["n"] == 2
    assert claim(store, new_id(), "a") == [], "the others wait behind the first"
    assert record(store, pod, SENT, *first).unparked_count == 1
    second = claim(store, pod, "a")
    assert numbers(second) == [1]
    record(store, pod, SENT, *second)
    assert numbers(claim(store, pod, "a")) == [2]
    assert numbers(claim(store, pod, "b")) == [0, 9], "another subscription has its own order"


def test_a_message_that_is_tried_again_holds_up_its_key(database: str, store: Session) -> None:
    subscribe(store, "a")
    publish(store, 0, "k")
    pod = new_id()
    first = claim(store, pod, "a")
    publish(store, 1, "k")
    record(store, pod, failed(1, "down", is_final=False, rng=random.Random(1)), *first)
    assert claim(store, pod, "a") == []
    move_clock(database, seconds=6)
    again = claim(store, pod, "a")
    assert [(each.payload["number"], each.attempt) for each in again] == [(0, 2)]
    record(store, pod, failed(2, "gone", is_final=True, rng=random.Random(1)), *again)
    assert numbers(claim(store, pod, "a")) == [1], "a failed one lets the next go"


def test_a_parked_message_is_found_however_the_claims_interleave(
    database: str, store: Session
) -> None:
    """The first ends between the snapshot of a claim and its parking: nothing may stay parked."""
    subscribe(store, "a")
    publish(store, 0, "k")
    pod = new_id()
    first = claim(store, pod, "a")
    publish(store, 1, "k")
    claim(store, new_id(), "a")
    record(store, pod, SENT, *first)
    publish(store, 2, "k")
    assert numbers(claim(store, pod, "a")) == [1]
    (row,) = sql(database, "SELECT count(*) AS n FROM cortex.outbox WHERE is_parked")
    assert row["n"] == 1


def test_pod_without_the_lease_cannot_record_an_outcome(database: str, store: Session) -> None:
    subscribe(store, "a")
    publish(store, 1)
    slow, quick = new_id(), new_id()
    first = claim(store, slow, "a")
    move_clock(database, seconds=61)
    assert store(outbox.reclaim, limit=ALL) == 1
    second = claim(store, quick, "a")
    assert [each.attempt for each in second] == [1], "its pod's trouble costs no attempt"
    assert [each.id for each in second] == [each.id for each in first]
    assert record(store, slow, SENT, *first).seqs == frozenset()
    assert store(outbox.renew, pod_id=slow, messages=first) == frozenset()
    assert statuses(database) == ["PROCESSING"]
    assert record(store, quick, SENT, *second).seqs == {second[0].seq}
    assert statuses(database) == ["SENT"]


def test_the_same_pod_cannot_record_an_attempt_that_it_lost(store: Session, database: str) -> None:
    subscribe(store, "a")
    publish(store, 1)
    pod = new_id()
    first = claim(store, pod, "a")
    move_clock(database, seconds=61)
    store(outbox.reclaim, limit=ALL)
    claim(store, pod, "a")
    assert record(store, pod, SENT, *first).seqs == frozenset()


def test_messages_of_a_dead_pod_are_taken_back_at_once(
    database: str, store: Session, life: Life
) -> None:
    subscribe(store, "a", "order.*")
    publish(store, 1)
    dead, living = life.pod("dead"), life.pod("living")
    claim(store, dead, "a")
    publish(store, 2)
    claim(store, living, "a")
    sql(database, "UPDATE cortex.pod SET state = 'DEAD' WHERE id = $1", dead)
    assert store(outbox.reclaim, limit=ALL) == 1
    assert numbers(claim(store, living, "a")) == [1]


def test_a_renewed_lease_is_not_reclaimed(store: Session, database: str) -> None:
    subscribe(store, "a")
    publish(store, 1)
    pod = new_id()
    held = claim(store, pod, "a")
    move_clock(database, seconds=50)
    assert store(outbox.renew, pod_id=pod, messages=held) == {held[0].seq}
    move_clock(database, seconds=100)
    assert store(outbox.reclaim, limit=ALL) == 0


def test_the_death_of_a_sending_pod_gives_the_attempt_back_until_ten_have_died(
    database: str, store: Session
) -> None:
    subscribe(store, "a")
    publish(store, 0, "k")
    publish(store, 1, "k")
    for nth in range(1, LOST_MAX + 1):
        assert statuses(database) == ["PENDING", "PENDING"]
        (message,) = claim(store, new_id(), "a")
        assert (message.payload["number"], message.attempt, message.claim) == (0, 1, nth)
        move_clock(database, seconds=400 * nth)
        store(outbox.reclaim, limit=ALL)
        move_clock(database, seconds=400 * nth + 125)  # the longest pause after a death
    assert statuses(database) == ["FAILED", "PENDING"]
    lost, _ = store(outbox.page)[::-1]
    assert (lost.attempts, lost.lost_count) == (0, LOST_MAX)
    assert (lost.last_error or "").startswith("10 pods died or lost their lease")
    assert numbers(claim(store, new_id(), "a")) == [1]


def test_deaths_of_senders_do_not_follow_each_other_at_once(database: str, store: Session) -> None:
    subscribe(store, "a")
    publish(store, 0)
    pauses = []
    for nth in range(1, 6):
        assert claim(store, new_id(), "a")
        move_clock(database, seconds=400 * nth)
        store(outbox.reclaim, limit=ALL)
        (row,) = store(outbox.page)
        pauses.append(round((row.available_at - row.now).total_seconds()))
        move_clock(database, seconds=400 * nth + 125)
    assert pauses == [0, 0, 5, 10, 20]


def test_messages_are_retried_by_state_and_age_and_counted_before(
    database: str, store: Session
) -> None:
    subscribe(store, "a")
    subscribe(store, "b")
    pod = new_id()
    for number in range(3):
        publish(store, number)
    move_clock(database, seconds=7200)
    publish(store, 3)
    waits = Outcome(status=MessageStatus.PENDING, delay_s=36_000.0, error="down")
    gone = failed(1, "gone", is_final=True, rng=random.Random(1))
    held = claim(store, pod, "a")
    record(store, pod, waits, *held[1:])
    record(store, pod, gone, held[0])
    waiting = outbox.MessageChoice(subscription="a", statuses=(MessageStatus.PENDING,))
    assert store(outbox.count, waiting, outbox.RETRIED) == {MessageStatus.PENDING: 3}
    old = attrs.evolve(waiting, older_s=3600.0)
    assert store(outbox.count, old, outbox.RETRIED) == {MessageStatus.PENDING: 2}
    new = attrs.evolve(waiting, since_s=3600.0)
    assert store(outbox.count, new, outbox.RETRIED) == {MessageStatus.PENDING: 1}
    by_default = outbox.MessageChoice(subscription="a")
    assert store(outbox.count, by_default, outbox.RETRIED) == {MessageStatus.FAILED: 1}
    assert claim(store, pod, "a") == []
    assert store(outbox.retry, old, by="ana", reason="") == 2
    again = claim(store, pod, "a")
    assert [(each.payload["number"], each.attempt) for each in again] == [(1, 1), (2, 1)]
    assert store(outbox.retry, by_default, by="ana", reason="") == 1
    assert numbers(claim(store, pod, "a")) == [0]


def test_an_attempt_that_was_given_back_is_fenced_like_any_other(store: Session) -> None:
    subscribe(store, "a")
    publish(store, 1)
    pod = new_id()
    first = claim(store, pod, "a")
    record(store, pod, handed_back(), *first)
    second = claim(store, pod, "a")
    assert [each.attempt for each in second] == [1]
    assert record(store, pod, SENT, *first).seqs == frozenset()
    assert record(store, pod, SENT, *second).seqs == {second[0].seq}


def test_a_message_that_is_handed_back_keeps_its_attempts(store: Session) -> None:
    subscribe(store, "a")
    publish(store, 1)
    pod = new_id()
    for _ in range(5):
        (message,) = claim(store, pod, "a")
        assert message.attempt == 1
        record(store, pod, handed_back(), message)


def test_messages_of_a_removed_subscription_are_given_up(database: str, store: Session) -> None:
    subscribe(store, "a")
    subscribe(store, "b")
    for number in range(3):
        publish(store, number, "k")
    pod = new_id()
    record(store, pod, SENT, *claim(store, pod, "a"))
    store(subscriptions.remove, "a", by="test", reason="gone")
    given_up = 0
    while ended := store(outbox.give_up, limit=ALL):
        given_up += ended
    assert given_up == 2
    query = "SELECT subscription, status FROM cortex.outbox ORDER BY subscription, seq"
    assert [tuple(row) for row in sql(database, query)] == [
        ("a", "SENT"), ("a", "FAILED"), ("a", "FAILED"), *[("b", "PENDING")] * 3,
    ]  # fmt: skip


def test_only_old_messages_are_forgotten(database: str, store: Session) -> None:
    subscribe(store, "a")
    pod = new_id()
    publish(store, 0)
    record(store, pod, SENT, *claim(store, pod, "a"))
    publish(store, 1)
    record(
        store, pod, failed(3, "no", is_final=True, rng=random.Random(1)), *claim(store, pod, "a")
    )
    move_clock(database, seconds=100)
    publish(store, 2)
    record(store, pod, SENT, *claim(store, pod, "a"))
    publish(store, 3)
    assert store(outbox.forget, sent_s=90, failed_s=1000, limit=ALL) == 1
    assert statuses(database) == ["FAILED", "SENT", "PENDING"]
    assert store(outbox.forget, sent_s=90, failed_s=90, limit=ALL) == 1


def test_people_retry_and_discard(database: str, store: Session) -> None:
    subscribe(store, "a")
    pod = new_id()
    publish(store, 0, "k")
    publish(store, 1, "k")
    gone = failed(1, "410", is_final=True, rng=random.Random(1))
    record(store, pod, gone, *claim(store, pod, "a"))
    who = {"by": "ana", "reason": "fixed"}
    assert store(outbox.retry, outbox.MessageChoice(subscription="a", limit=ALL), **who) == 1
    assert numbers(claim(store, pod, "a")) == [0]
    record(store, pod, SENT, *claim(store, pod, "a"))
    assert store(outbox.discard, outbox.MessageChoice(topic="order.*", limit=ALL), **who) == 1
    assert statuses(database) == ["PROCESSING"]
    facts = sql(
        database,
        "SELECT subtype, data->>'by' AS by FROM cortex.fact WHERE source = 'outbox:a' ORDER BY id",
    )
    assert [tuple(row) for row in facts] == [
        ("message_retried", "ana"), ("message_discarded", "ana"),
    ]  # fmt: skip


def test_a_named_message_that_cannot_be_changed_is_refused(store: Session) -> None:
    subscribe(store, "a")
    who = {"by": "ana", "reason": "fixed"}
    choice = outbox.MessageChoice(message_id=publish(store, 0))
    with pytest.raises(ConflictError, match="is PENDING, not FAILED"):
        store(outbox.retry, choice, **who)
    claim(store, new_id(), "a")
    with pytest.raises(ConflictError, match="is PROCESSING, not FAILED nor PENDING"):
        store(outbox.discard, choice, **who)
    with pytest.raises(NotFoundError):
        store(outbox.retry, outbox.MessageChoice(message_id=new_id()), **who)
    assert store(outbox.retry, outbox.MessageChoice(topic="order.*"), **who) == 0


def test_a_list_is_newest_first_and_continues(store: Session) -> None:
    subscribe(store, "a")
    for number in range(5):
        publish(store, number)
    first = store(outbox.page, limit=2)
    rest = store(outbox.page, limit=9, before=first[-1].seq)
    assert [row.payload["number"] for row in (*first, *rest)] == [4, 3, 2, 1, 0]
    assert store(outbox.page, statuses=[MessageStatus.SENT]) == []
    (found,) = store(outbox.page, message_id=store(outbox.find, str(first[0].id)[-6:]))
    assert found.seq == first[0].seq


def test_figures_count_pending_messages_and_the_oldest(store: Session) -> None:
    assert store(pulse.figures).oldest_message_s == 0
    subscribe(store, "a")
    publish(store, 1)
    publish(store, 2)
    claim(store, new_id(), "a", most=1)
    figures = store(pulse.figures)
    assert list(figures.messages.values()) == [1, 1, 0]
    assert figures.oldest_message_s > 0


def test_the_next_due_instant_is_known(store: Session) -> None:
    subscribe(store, "a")
    assert store(outbox.next_due_s, subscriptions=["a"]) is None
    publish(store, 1)
    pod = new_id()
    record(store, pod, handed_back(30.0), *claim(store, pod, "a"))
    due_s = store(outbox.next_due_s, subscriptions=["a"])
    assert due_s is not None
    assert 25 < due_s <= 30
