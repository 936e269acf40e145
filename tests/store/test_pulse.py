"""The pulse of a cluster: recent figures, and the troubles that need attention."""

from datetime import timedelta
from decimal import Decimal

import pytest

from cortex.domain.job import Suspend
from cortex.postgres.session import Session
from cortex.store import breakers, pulse, tasks
from tests.support.life import Life
from tests.support.records.approvals import Askers, a_request
from tests.support.records.ended import an_ended_job
from tests.support.servers.postgres import sql

COST = """
    INSERT INTO cortex.fact (at, type, subtype, source, amount, currency, data)
    SELECT cortex.now() - $1::float8 * interval '1 second', 'cost', 'model_call', 'llm:gpt',
           $2, 'USD', jsonb_build_object('outcome', 'kept', 'took_s', 2 * n)
    FROM generate_series(1, $3) n
"""
MOVES = """
    INSERT INTO cortex.job_history (job_id, previous, new, attempt, at, metadata)
    SELECT gen_random_uuid(), 'RUNNING', $2::text::cortex.job_status, 1,
           cortex.now() - $1::float8 * interval '1 second', '{}' FROM generate_series(1, $3)
"""
RESOLVE = """
    UPDATE cortex.dead_letter SET state = $1, resolved_at = now(), resolved_by = 'li'
    WHERE coalesce(job_id = $2, true)
"""
AGE = """
    UPDATE cortex.dead_letter SET created_at = cortex.now() - $1::float8 * interval '1 second'
    WHERE job_id = $2
"""


def test_an_empty_cluster_has_a_flat_pulse(store: Session) -> None:
    recent = store(pulse.recent)
    assert len(recent.buckets) == pulse.BUCKETS
    assert {(b.started, b.done, b.failed, b.wait_p50_s) for b in recent.buckets} == {
        (0, 0, 0, None)
    }
    assert all(b.is_known and b.is_priced for b in recent.buckets)
    assert (recent.spent_usd, recent.calls) == (Decimal(0), 0)
    assert store(pulse.attention) == pulse.Attention()


def test_each_transition_counts_in_its_bucket(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    life.failed()
    pod = life.pod()
    life.job()
    life.finish(pod, life.claim(pod))
    life.sql(MOVES, 615.0, "COMPLETED", 7)
    life.sql(MOVES, 5_000.0, "COMPLETED", 9)
    buckets = store(pulse.recent).buckets
    newest = buckets[-2:]  # the border between two may fall between
    assert sum(b.started for b in newest) == 2
    assert sum(b.failed for b in newest) == sum(b.done for b in newest) == 1
    waits = [b.wait_p50_s for b in newest if b.wait_p50_s is not None]
    assert waits
    assert all(0 <= wait < 60 for wait in waits)
    assert [b.done for b in buckets if b.done == 7] == [7]
    assert sum(b.done for b in buckets) == 8


def test_the_wait_is_from_due_to_the_first_start(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    pod = life.pod()
    job_ids = [life.job() for _ in range(3)]
    for job_id, late_s in zip(job_ids, (1, 1_000, 50_000), strict=True):
        life.sql(
            "UPDATE cortex.job_record SET run_at = run_at - $2::interval WHERE id = $1",
            job_id,
            timedelta(seconds=late_s),
        )
    store(tasks.claim, pod_id=pod, types=["digest"], limit=3)  # all of them in one transaction
    (bucket,) = (b for b in store(pulse.recent).buckets if b.wait_p50_s is not None)
    assert bucket.wait_p50_s is not None
    assert bucket.wait_p95_s is not None
    assert 1_000 <= bucket.wait_p50_s < 2_000
    assert 40_000 < bucket.wait_p95_s < 50_100


def test_model_latency_is_the_median_of_kept_calls(store: Session, database: str) -> None:
    call = """
        INSERT INTO cortex.fact (type, subtype, source, amount, currency, data)
        VALUES ('cost', 'model_call', 'llm:gpt', 1, 'USD', $1)
    """
    for data in (
        '{"outcome": "kept", "took_s": 2}',
        '{"outcome": "failed", "took_s": 9}',
        '{"outcome": "kept"}',
    ):
        Life(store, database).sql(call, data)
    (took_s,) = {b.model_p50_s for b in store(pulse.recent).buckets} - {None}
    assert took_s == 2


def test_costs_are_summed_for_an_hour(store: Session, database: str) -> None:
    life = Life(store, database)
    life.sql(COST, 10.0, Decimal("0.5"), 3)
    life.sql(COST, 1_800.0, Decimal("0.25"), 2)
    life.sql(COST, 4_000.0, Decimal(9), 2)
    recent = store(pulse.recent)
    assert (recent.spent_usd, recent.calls, recent.spent_s) == (Decimal(2), 5, 3_600)
    assert sum(b.usd for b in recent.buckets) == Decimal("1.5")


def test_spending_rate_covers_only_the_calls_read(store: Session, database: str) -> None:
    Life(store, database).sql(COST, 600.0, Decimal("0.01"), pulse.CALLS_MAX + 100)
    recent = store(pulse.recent)
    assert recent.calls == pulse.CALLS_MAX
    assert 600 <= recent.spent_s < 660
    assert not recent.buckets[0].is_priced
    assert recent.buckets[-1].is_priced


def test_attention_names_open_breakers_and_silent_pods(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    life.pod("eu-1")
    life.pod("eu-2")
    life.sql(
        "UPDATE cortex.pod SET heartbeat_at = heartbeat_at - $2::interval WHERE name = $1",
        "eu-2",
        timedelta(hours=1),
    )
    store(breakers.force_open, "llm:gpt", by="ana", reason="it lies")
    found = store(pulse.attention).troubles
    assert [(each.kind, each.name, each.word) for each in found] == [
        ("breaker", "llm:gpt", "OPEN"),
        ("pod", "eu-2", "READY"),
    ]
    held, silent = found
    assert (held.forced_by, held.forced_reason, held.open_until) == ("ana", "it lies", None)
    assert silent.forced_by is None
    store(breakers.force_open, "llm:gpt", by="ana", reason="deploy", for_s=60.0)
    assert store(pulse.attention).troubles[0].open_until is not None


def test_requests_are_named_the_one_that_expires_first_on_top(
    store: Session, database: str
) -> None:
    life = Life(store, database)
    life.type("run_agent")
    askers = Askers(store, database)
    for number, expires_s in enumerate((3_000.0, 120.0)):
        life.job("run_agent")
        claim = life.claim(askers.pod_id, "run_agent")
        tool = f"refund{number}"
        askers.suspend(claim, a_request({"n": number}, tool=tool, expires_s=expires_s))
    first, second = store(pulse.attention).needs
    assert [(each.kind, each.name) for each in (first, second)] == [
        ("approval", "refund1"),
        ("approval", "refund0"),
    ]
    assert first.until is not None
    assert first.since is not None
    assert (first.until - first.since).total_seconds() == 120
    assert first.id != first.job_id


def test_jobs_that_wait_for_a_budget_a_quota_or_a_person_are_named(
    store: Session, database: str
) -> None:
    life = Life(store, database)
    life.type()
    pod = life.pod()
    waits = (("budget:x:usd:run", None), ("quota:mail:calls:day", 60.0), ("person:llm:m", None))
    jobs = []
    for waiting_on, delay_s in (*waits, ("llm:m", 60.0)):
        jobs.append(life.job())
        lease = life.claim(pod).lease
        wait = Suspend(lease=lease, delay_s=delay_s, is_counted=False, waiting_on=waiting_on)
        store(tasks.suspend, pod_id=pod, operations=[wait])
    needs = store(pulse.attention).needs
    assert [(each.id, each.word) for each in needs] == [
        (job_id, waiting_on) for job_id, (waiting_on, _) in zip(jobs, waits, strict=False)
    ]
    assert {(each.kind, each.name) for each in needs} == {("job", "digest")}
    assert all(each.since is not None for each in needs)


def test_the_newest_failed_jobs_that_wait_come_first(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    jobs = [life.failed(f"no page {number}") for number in range(pulse.ATTENTION_MAX + 2)]
    failures = store(pulse.attention).failures
    assert [each.job_id for each in failures] == jobs[:1:-1]
    assert failures[0].message == f"no page {len(jobs) - 1}"
    assert (failures[0].type, failures[0].error) == ("digest", "job_failed")
    life.sql(RESOLVE, "DISCARDED", None)
    assert store(pulse.attention).failures == ()


def test_an_archived_failure_is_shown_as_long_as_it_waits(store: Session, database: str) -> None:
    life = Life(store, database)
    life.type()
    old = life.failed("no page")
    life.sql("UPDATE cortex.dead_letter SET state = 'ARCHIVED'")
    life.sql(AGE, 10 * 86_400.0, old)
    assert [each.job_id for each in store(pulse.attention).failures] == [old]


def test_pulse_counts_rows_in_reused_history_space(
    store: Session, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once retention deletes, new rows are no longer all at the end of the history."""
    monkeypatch.setattr(pulse, "HISTORY_BLOCKS_MAX", 4)
    old = [an_ended_job(database) for _ in range(40)]
    by_age = MOVES.replace("gen_random_uuid()", "cortex.uuid7()")
    for _ in range(3):
        sql(database, by_age, 5_000.0, "COMPLETED", 400)
    sql(database, "SELECT cortex.set_retention(86400, NULL, NULL, NULL, '{}', 'a test')")
    sql(database, "SELECT cortex.delete_retired($1::uuid[], NULL)", old)
    sql(database, "VACUUM cortex.job_history")
    life = Life(store, database)
    pod = life.pod()
    life.job()
    life.finish(pod, life.claim(pod))
    first = sql(
        database,
        "SELECT min((ctid::text::point)[0]) AS block FROM cortex.job_history WHERE new = 'PENDING'",
    )
    assert first[0]["block"] < 4  # otherwise this proves nothing
    assert sum(b.done for b in store(pulse.recent).buckets) == 1
