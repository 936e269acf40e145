"""The health of the system: its queue, what failed lately, background work."""

from datetime import timedelta

import pytest

from cortex.domain import health as rules
from cortex.domain.health import Measure, Word
from cortex.domain.messages.message import SENT, MessageStatus, Outcome
from cortex.domain.messages.subscription import Channel, Subscription
from cortex.domain.policy import CODE_WAIT_S
from cortex.postgres.session import Session
from cortex.store import health as store_health
from cortex.store import pulse
from cortex.store.background import alarms, outbox, subscriptions
from cortex.store.health import Health, health
from cortex.view import doctor
from cortex.view.health import subscription_text
from tests.support.life import Life
from tests.support.records.rows import move_clock, new_id

MOVES = """
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, at, metadata)
    SELECT gen_random_uuid(), 'RUNNING', $2::text::cortex.job_status, 1,
           cortex.now() - $1::float8 * interval '1 second', '{}' FROM generate_series(1, $3)
"""
LETTERS = """
    INSERT INTO cortex.dead_letter (job_id, lineage_id, fingerprint, type, tenant, created_at)
    SELECT id, id, 'f', 'work', 'default', cortex.now() - $1::float8 * interval '1 second'
    FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, $2)) made
"""
ERRORS = """
    INSERT INTO cortex.fact (at, type, subtype, step, data)
    SELECT cortex.now() - $1::float8 * interval '1 second', 'error', 'x', $2, $3
    FROM generate_series(1, $4)
"""
RUNNERS = """
    INSERT INTO cortex.runner (
        name, interval_s, started_at, duration_s, items, holder, item_count, error, succeeded_at)
    SELECT name, 30, cortex.now(), 0.5, 3, 'pod a', 70, error,
           cortex.now() - ago_s * interval '1 second'
    FROM (VALUES ('retries', NULL, 4), ('schedules', 'it broke', 20), ('triage', NULL, 151))
        AS r(name, error, ago_s)
"""


def of(found: Health, name: str) -> Measure:
    (measure,) = [each for each in found.measures if each.name == name]
    return measure


def test_empty_system_is_healthy(store: Session) -> None:
    found = store(health)
    assert [each.name for each in found.measures] == list(rules.THRESHOLDS)
    assert {each.word for each in found.measures} == {Word.OK}
    assert (found.word, found.runners) == (Word.OK, ())
    assert of(found, rules.DUE).value == of(found, rules.OLDEST_DUE).value == 0
    assert of(found, rules.FAILURE_RATE).value is None


def test_due_jobs_and_their_oldest_age_are_measured(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    for _ in range(3):
        life.job()
    life.sql("UPDATE cortex_worker.task SET run_at = run_at - $1::interval", timedelta(seconds=700))
    found = store(health)
    assert of(found, rules.DUE).value == 3
    oldest = of(found, rules.OLDEST_DUE)
    assert oldest.value is not None
    assert 700 <= oldest.value < 760
    assert (oldest.word, found.word) == (Word.BAD, Word.BAD)


def test_jobs_that_no_pod_serves_are_stranded(store: Session, database: str) -> None:
    life = Life(store, database)

    def stranded() -> Measure:
        store(alarms.check, code_wait_s=CODE_WAIT_S)
        return of(store(health), rules.STRANDED)

    for name in ("digest", "report"):
        life.type(name)
        life.job(name)
    life.agent()  # its tool is read_file
    life.job("run_agent", agent="researcher", payload='{"prompt": "x"}')
    assert stranded().value == 0, "no pod lives at all"
    life.pod("a", "digest", "run_agent")
    assert (stranded().value, stranded().word) == (2, Word.WARN)
    assert store(pulse.figures).stranded_types == ("report", "run_agent")
    life.sql("UPDATE cortex.pod SET tools = '{read_file,write_file}'")
    assert stranded().value == 1
    life.pod("b", "report")
    assert stranded().value == 0
    life.sql("UPDATE cortex.pod SET heartbeat_at = now() - interval '1 hour' WHERE name = 'b'")
    assert stranded().value == 1


def test_health_counts_recent_completions_and_failures(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    pod = life.pod()
    life.job()
    life.finish(pod, life.claim(pod))
    life.failed()
    found = store(health)
    assert of(found, rules.DEAD_LETTER_RATE).value == 1 / 2
    assert of(found, rules.DEAD_LETTER_RATE).among == 2


def test_failure_rates_separate_attempts_from_calls(store: Session, database: str) -> None:
    life = Life(store, database)
    life.sql(MOVES, 60.0, "COMPLETED", 90)
    life.sql(MOVES, 60.0, "FAILED", 4)
    life.sql(LETTERS, 60.0, 3)  # one of the four was ended by a person
    life.sql(ERRORS, 60.0, None, "{}", 10)
    life.sql(ERRORS, 60.0, "a step", '{"max": 3}', 20)
    life.sql(ERRORS, 60.0, "a step", '{"resolution": "reported to the model"}', 40)
    life.sql(ERRORS, 5_000.0, None, "{}", 1_000)  # long ago
    life.sql(MOVES, 5_000.0, "FAILED", 1_000)
    life.sql(LETTERS, 5_000.0, 1_000)
    found = store(health)
    assert of(found, rules.FAILURE_RATE).value == 10 / 100
    assert of(found, rules.RETRY_CHURN).value == (10 - 4 + 20) / 100
    assert of(found, rules.DEAD_LETTER_RATE).value == 3 / 94
    assert 800 < found.span_s <= 900


def test_more_errors_than_are_read_are_extrapolated(
    store: Session, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(store, database)
    life.sql(MOVES, 1.0, "COMPLETED", 900)
    for ago_s in range(0, 800, 10):
        life.sql(ERRORS, float(ago_s), None, "{}", 1)
    monkeypatch.setattr(store_health, "ERRORS_MAX", 40)
    found = of(store(health), rules.FAILURE_RATE)
    assert found.value is not None
    assert 80 / 980 * 0.8 < found.value < 100 / 1000 * 1.2


def test_waiting_messages_and_their_oldest_age_are_measured(store: Session, database: str) -> None:
    insert = """
        INSERT INTO cortex.outbox (id, topic, payload, tenant, subscription, available_at)
        SELECT gen_random_uuid(), 'order.placed', '{}', 'default', 'mail',
               cortex.now() - n * interval '1 second' FROM generate_series(301, 401, 50) n
    """
    mail = Subscription(name="mail", topic="order.*", channel=Channel.LOG)
    store(subscriptions.put, mail, by="ana", reason="")
    Life(store, database).sql(insert)
    found = store(health)
    assert (of(found, rules.OUTBOX).value, of(found, rules.OUTBOX).word) == (3, Word.OK)
    oldest = of(found, rules.OLDEST_MESSAGE)
    assert oldest.value is not None
    assert 301 <= oldest.value < 500
    assert oldest.word is found.word is Word.WARN


def test_health_names_a_subscription_whose_receiver_fails(store: Session, database: str) -> None:
    life = Life(store, database)
    mail = Subscription(name="mail", topic="order.*", channel=Channel.LOG)
    store(subscriptions.put, mail, by="ana", reason="")
    for number in range(3):
        store(outbox.publish, "order.placed", {"n": number}, key="k")
    pod = new_id()
    (first,) = store(outbox.claim, pod_id=pod, most={"mail": 9}).messages
    failed = Outcome(status=MessageStatus.PENDING, delay_s=7200.0, error="503: down for today")
    store(outbox.record, pod_id=pod, outcomes=[(first, failed)])
    move_clock(database, 3600)
    found = store(health)
    (failing,) = found.failing
    assert (failing.name, failing.failures, failing.pending) == ("mail", 1, 3)
    assert subscription_text(failing) == "for 1h 00m: 3 messages wait; 503: down for today"
    assert of(found, rules.FAILING).word is Word.WARN
    assert of(found, rules.OLDEST_MESSAGE).value == 0, "what waits for its receiver is not late"
    assert doctor.of_subscriptions(found.failing).found == (
        "mail fails for 1h 00m: 3 messages wait; 503: down for today"
    )
    (row,) = store(subscriptions.page)
    assert (row.failing_since, row.failures, row.pending) == (failing.since, 1, 3)
    assert row.next_attempt_at is not None
    assert 3500 < (row.next_attempt_at - row.now).total_seconds() < 3700
    move_clock(database, 7300)
    (again,) = store(outbox.claim, pod_id=pod, most={"mail": 9}).messages
    store(outbox.record, pod_id=pod, outcomes=[(again, SENT)])
    assert store(health).failing == ()
    life.sql("UPDATE cortex.outbox SET status = 'PENDING', finished_at = NULL")
    store(subscriptions.remove, "mail", by="ana", reason="")
    assert store(health).failing == ()


def test_runner_health_follows_its_last_runs(store: Session, database: str) -> None:
    Life(store, database).sql(RUNNERS)
    found = store(health)
    words = {each.name: each.word for each in found.runners}
    assert words == {"retries": Word.OK, "schedules": Word.WARN, "triage": Word.BAD}
    first = found.runners[0]
    assert (first.items, first.duration_s, first.item_count, first.bad_over_s) == (3, 0.5, 70, 150)
    assert first.succeeded_ago_s is not None
    assert 4 <= first.succeeded_ago_s < 60
    assert found.word is Word.BAD
