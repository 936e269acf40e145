"""Retention in the database: deleted rows, kept rows, and the right to delete."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg
import attrs
import pytest

from cortex.postgres.session import Session
from cortex.store import dead_letters
from cortex.store.background import retention
from cortex.store.background.retention import Deleted, Kind, RetentionPeriods
from cortex.store.dead_letters import Resubmission
from tests.support.holder import holding
from tests.support.people import user
from tests.support.records.ended import an_ended_job, left_of, with_everything
from tests.support.records.rows import as_runtime, move_clock, new_id, stop_clock, submit
from tests.support.servers.postgres import sql

DAY_S = 86_400.0
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def keep(store: Session, **days: float | None) -> None:
    seconds = {name: None if n is None else n * DAY_S for name, n in days.items()}
    periods = RetentionPeriods(
        completed_s=seconds.get("completed"),
        failed_s=seconds.get("failed"),
        facts_s=seconds.get("facts"),
    )
    store(retention.put, periods, by=user("ana"), reason="a test")


def run(store: Session, *, limit: int = 100) -> int:
    """One batch of each kind; return how many jobs and facts it deleted."""
    deleted = 0
    for kind in Kind:
        batch = store(retention.next_batch, kind, limit=limit)
        if batch is not None:
            done = store(retention.delete, batch)
            deleted += done.jobs + done.facts
    return deleted


def exists(dsn: str, job_id: UUID) -> bool:
    return "job_record" in left_of(dsn, job_id)


# --- what goes


def test_retention_deletes_no_jobs_until_a_period_is_set(store: Session, database: str) -> None:
    job_id = an_ended_job(database, days=4000)
    assert store(retention.current) is None
    assert store(retention.turn) is None
    assert run(store) == 0
    keep(store, failed=30)
    assert run(store) == 0
    assert exists(database, job_id)


def test_retention_deletes_all_rows_of_a_job(store: Session, database: str) -> None:
    job_id, other = an_ended_job(database, "FAILED"), an_ended_job(database)
    for each in (job_id, other):
        with_everything(database, each)
    keep(store, failed=30)
    assert run(store) == 1
    assert left_of(database, job_id) == set()
    assert sql(database, "SELECT count(*) AS n FROM cortex.approval_vote")[0]["n"] == 1
    assert len(left_of(database, other)) == 11


@pytest.mark.parametrize(
    "status, kept", [("COMPLETED", "completed"), ("FAILED", "failed"), ("CANCELLED", "failed")]
)
def test_each_state_has_its_period(store: Session, database: str, status: str, kept: str) -> None:
    old, young = an_ended_job(database, status, days=31), an_ended_job(database, status, days=29)
    other = {"completed": "failed", "failed": "completed"}[kept]
    keep(store, **{kept: 30.0, other: 1000.0})
    assert run(store) == 1
    assert (exists(database, old), exists(database, young)) == (False, True)


def test_retention_deletes_a_lineage_when_its_last_job_expires(
    store: Session, database: str
) -> None:
    first = an_ended_job(database, "FAILED", days=100)
    second = an_ended_job(database, "FAILED", days=99, continues=first)
    third = an_ended_job(database, "COMPLETED", days=20, continues=second)
    keep(store, completed=30, failed=30)
    assert run(store) == 0
    sql(
        database,
        "UPDATE cortex.job_record SET finished_at = cortex.now() - interval '31 days' "
        "WHERE id = $1",
        third,
    )
    keep(store, completed=30, failed=30)  # from the beginning again
    assert run(store) == 3
    assert not any(exists(database, each) for each in (first, second, third))


def test_facts_with_a_period_of_their_own_outlive_their_job(store: Session, database: str) -> None:
    job_id = an_ended_job(database)
    with_everything(database, job_id)
    sql(
        database,
        "INSERT INTO cortex.fact (type, subtype, at) "
        "VALUES ('lifecycle', 'old', cortex.now() - interval '500 days')",
    )
    keep(store, completed=30, facts=400)
    assert run(store) == 2
    assert left_of(database, job_id) == {"fact"}


def test_retention_keeps_facts_of_live_jobs_and_resolved_errors(
    store: Session, database: str
) -> None:
    alive = submit(database, "work")
    rows = sql(
        database,
        """
        INSERT INTO cortex.fact (type, subtype, job_id, at)
        SELECT 'error', subtype, job_id, cortex.now() - interval '500 days'
        FROM (VALUES ('of a live job', $1::uuid), ('resolved', NULL), ('gone', NULL))
             AS f(subtype, job_id)
        RETURNING id, subtype
        """,
        alive,
    )
    ids = {row["subtype"]: row["id"] for row in rows}
    sql(
        database,
        "INSERT INTO cortex.fact (type, subtype, resolves) VALUES ('error', 'resolves', $1)",
        ids["resolved"],
    )
    keep(store, facts=400)
    assert run(store) == 1
    left = {row["subtype"] for row in sql(database, "SELECT subtype FROM cortex.fact")}
    assert left == {"of a live job", "resolved", "resolves", "retention_set", "person_created"}


# --- what stays

BLOCKS = {
    "a task": "INSERT INTO cortex_worker.task (job_id, task, state, max_attempts) "
    "VALUES ($1, 'work', 'READY', 1)",
    "a call that is not booked": "INSERT INTO cortex.reservation (id, job_id, attempt, pod_id, "
    "tenant, step, model, input_tokens, budget_ids, window_keys, amounts) "
    "VALUES (cortex.uuid7(), $1, 1, cortex.uuid7(), 'default', 's', 'm', 1, '{}', '{}', '{}')",
    "an effect of unknown outcome": "INSERT INTO cortex.effect (id, job_id, lineage_id, attempt, "
    "key, tool, tenant, arguments, digest, status, can_reconcile) VALUES (cortex.uuid7(), $1, $1, "
    "1, 'k', 'pay', 'default', '{}', sha256('{}'), 'UNKNOWN', false)",
    "an open request": "INSERT INTO cortex.approval (id, job_id, lineage_id, attempt, key, tenant, "
    "asked, asked_digest, arguments, digest, risk, people, on_deny, on_expiry, expires_at) "
    "VALUES (cortex.uuid7(), $1, $1, 1, 'k', 'default', '{}', sha256('{}'), '{}', sha256('{}'), "
    "'LOW', 1, 'fail', 'fail', cortex.now())",
    "a link that shows the outcome": "INSERT INTO cortex.approval (id, job_id, lineage_id, attempt,"
    " key, tenant, asked, asked_digest, arguments, digest, risk, people, on_deny, on_expiry, "
    "expires_at, status, decided_at, decided_by, spent_digest) VALUES (cortex.uuid7(), $1, $1, 1, "
    "'k', 'default', '{}', sha256('{}'), '{}', sha256('{}'), 'LOW', 1, 'fail', 'fail', "
    "cortex.now(), 'DENIED', cortex.now() - interval '6 days', 'ana', sha256('t'))",
    "a budget of its own": "INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, "
    "changed_by, reason) VALUES ('job', $1::uuid::text, 'usd', 'run', 1, 'ana', '')",
    "a schedule that has not seen its end": "INSERT INTO cortex.schedule_instant (schedule, "
    "instant, outcome, job_id) SELECT name, cortex.now(), 'SUBMITTED', $1 "
    "FROM cortex.schedule LIMIT 1",
    "somebody who watches": "INSERT INTO cortex.watch (job_id, watcher, until) "
    "VALUES ($1, cortex.uuid7(), cortex.now() + interval '1 minute')",
}


@pytest.mark.smoke("Retention deletes only what nothing refers to")
@pytest.mark.parametrize("statement", BLOCKS.values(), ids=list(BLOCKS))
def test_retention_keeps_jobs_that_other_rows_reference(
    store: Session, database: str, statement: str
) -> None:
    if "cortex.schedule " in statement:
        sql(
            database,
            "INSERT INTO cortex.schedule (name, cron, zone, type, origin, changed_by) "
            "VALUES ('s', '0 0 * * *', 'UTC', 'work', 'file', 'ana') ON CONFLICT DO NOTHING",
        )
    job_id, free = an_ended_job(database), an_ended_job(database)
    sql(database, statement, job_id)
    keep(store, completed=30)
    assert run(store) == 1
    assert (exists(database, job_id), exists(database, free)) == (True, False)


def test_an_open_dead_letter_keeps_its_job_until_it_is_settled(
    store: Session, database: str
) -> None:
    job_id = an_ended_job(database, "FAILED", is_settled=False)
    keep(store, failed=30)
    assert run(store) == 0
    sql(
        database,
        "UPDATE cortex.dead_letter SET state = 'DISCARDED', resolved_at = cortex.now(), "
        "resolved_by = 'ana', reason = ''",
    )
    keep(store, failed=30)
    assert run(store) == 1
    assert not exists(database, job_id)


def test_a_job_that_is_retried_while_retention_takes_it_stays(
    store: Session, database: str
) -> None:
    """The retry comes after the batch was read; and one that is under way holds the dead letter."""
    retried = an_ended_job(database, "FAILED", is_settled=False)
    held = an_ended_job(database, "FAILED")
    keep(store, failed=30)
    sql(
        database,
        "UPDATE cortex.dead_letter SET state = 'OPEN', resolved_at = NULL, resolved_by = NULL",
    )
    batch = store(retention.next_batch, Kind.FAILED, limit=100)
    assert batch is not None
    batch = attrs.evolve(batch, roots=(retried, held))
    (made,) = store(
        dead_letters.resubmit, [Resubmission(job_id=retried, new_id=new_id())], by="ana", reason=""
    )
    assert made.error is None
    sql(
        database,
        "UPDATE cortex.dead_letter SET state = 'DISCARDED', resolved_at = cortex.now(), "
        "resolved_by = 'ana' WHERE job_id = $1",
        held,
    )
    lock = f"SELECT job_id FROM cortex.dead_letter WHERE job_id = '{held}' FOR UPDATE"  # noqa: S608
    with holding(database, lock):
        assert store(retention.delete, batch) == Deleted(jobs=0)
    assert (exists(database, retried), exists(database, held)) == (True, True)
    assert store(retention.delete, batch) == Deleted(jobs=1)
    assert (exists(database, retried), exists(database, held)) == (True, False)


def test_retention_keeps_a_job_with_facts_newer_than_its_copy(
    store: Session, database: str
) -> None:
    job_id = an_ended_job(database)
    keep(store, completed=30)
    batch = store(retention.next_batch, Kind.COMPLETED, limit=10)
    assert batch is not None
    copy = store(retention.copy, batch)
    sql(
        database,
        "INSERT INTO cortex.fact (type, subtype, job_id) VALUES ('cost', 'late', $1)",
        job_id,
    )
    assert store(retention.delete, copy.batch, facts_through=copy.facts_through).jobs == 0
    assert exists(database, job_id)


# --- bounded reads


def test_retention_skips_kept_jobs_and_deletes_those_behind(store: Session, database: str) -> None:
    """Three that stay, then one that goes; batches of two. An hour later all are read again."""
    stop_clock(database, NOON)
    stays = [an_ended_job(database, "FAILED", days=90 - n, is_settled=False) for n in range(3)]
    goes = an_ended_job(database, "FAILED", days=80)
    keep(store, failed=30)
    assert [run(store, limit=2) for _ in range(3)] == [0, 1, 0]
    assert not exists(database, goes)
    sql(
        database,
        "UPDATE cortex.dead_letter SET state = 'DISCARDED', resolved_at = cortex.now(), "
        "resolved_by = 'ana', reason = ''",
    )
    assert run(store, limit=2) == 0
    stop_clock(database, NOON + timedelta(minutes=61))
    assert [run(store, limit=2) for _ in range(2)] == [2, 1]
    assert not any(exists(database, each) for each in stays)


def test_reading_is_by_index_and_bounded(store: Session, database: str) -> None:
    for _ in range(30):
        an_ended_job(database)
    sql(database, "ANALYZE")
    keep(store, completed=30)
    batch = store(retention.next_batch, Kind.COMPLETED, limit=7)
    assert batch is not None
    assert (batch.looked_count, len(batch.roots), batch.is_at_end) == (7, 7, False)
    assert store(retention.delete, batch) == Deleted(jobs=7)
    again = store(retention.next_batch, Kind.COMPLETED, limit=100)
    assert again is not None
    assert (len(again.roots), again.is_at_end) == (23, True)
    assert set(again.roots).isdisjoint(batch.roots)


# --- the clock


def test_a_clock_that_jumps_holds_everything_for_an_hour(store: Session, database: str) -> None:
    job_id = an_ended_job(database, days=5)
    keep(store, completed=30)
    turn = store(retention.turn)
    assert turn is not None
    assert turn.is_mine
    assert not turn.is_held
    move_clock(database, 400 * DAY_S)
    held = store(retention.turn)
    assert held is not None
    assert held.is_held
    assert run(store) == 0
    observed = store(retention.current)
    assert observed is not None
    assert observed.held_until is not None
    move_clock(database, 0)  # mended: it went back
    assert store(retention.turn).is_held  # type: ignore[union-attr]
    move_clock(database, 2 * 3600)
    assert not store(retention.turn).is_held  # type: ignore[union-attr]
    assert run(store) == 0
    assert exists(database, job_id)


# --- two at once, and rights


def test_one_process_at_a_time_deletes(store: Session, database: str) -> None:
    job_id = an_ended_job(database)
    keep(store, completed=30)
    batch = store(retention.next_batch, Kind.COMPLETED, limit=10)
    assert batch is not None
    with holding(database, "SELECT is_mine FROM cortex.retention_turn()"):
        assert store(retention.turn).is_mine is False  # type: ignore[union-attr]
        assert store(retention.delete, batch) == Deleted(is_skipped=True)
    assert exists(database, job_id)
    assert store(retention.delete, batch) == Deleted(jobs=1)
    assert store(retention.delete, batch) == Deleted(jobs=0)


def test_runtime_role_cannot_delete_rows_within_their_period(store: Session, database: str) -> None:
    young, fact = an_ended_job(database, days=29), "SELECT max(id) AS id FROM cortex.fact"
    keep(store, completed=30, facts=30)
    runtime = as_runtime(database)
    sql(runtime, "SELECT cortex.delete_retired(ARRAY[$1::uuid], NULL)", young)
    newest = sql(database, fact)[0]["id"]
    assert (
        sql(runtime, "SELECT cortex.delete_retired_facts(ARRAY[$1::bigint]) AS n", newest)[0]["n"]
        == 0
    )
    assert exists(database, young)
    for statement in (
        "UPDATE cortex.retention SET completed_s = 86400",
        "DELETE FROM cortex.retention",
        "SELECT set_config('cortex.retention', 'deletes', false)",
    ):
        if statement.startswith("SELECT"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                sql(runtime, "DELETE FROM cortex.job_history")
        else:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                sql(runtime, statement)
    with pytest.raises(asyncpg.CheckViolationError):
        sql(runtime, "SELECT cortex.set_retention(3600, NULL, NULL, NULL, '{}', 'faster')")


def test_retention_changes_record_person_and_reason(store: Session, database: str) -> None:
    keep(store, completed=30)
    keep(store, completed=None, failed=None, facts=None)
    rows = sql(
        database, "SELECT subtype, data FROM cortex.fact WHERE source = 'retention' ORDER BY id"
    )
    assert [row["subtype"] for row in rows] == ["retention_set", "retention_unset"]
    data = json.loads(rows[0]["data"])
    assert (data["by"], data["reason"], data["after"]["completed_s"]) == (
        "ana",
        "a test",
        30 * 86400,
    )


# --- the copy


def test_a_copy_is_a_record_a_line_without_digests_of_links(store: Session, database: str) -> None:
    job_id = an_ended_job(database, "FAILED")
    with_everything(database, job_id)
    heir = an_ended_job(database, continues=job_id)
    keep(store, completed=30, failed=30)
    batch = store(retention.next_batch, Kind.FAILED, limit=10)
    assert batch is not None
    copy = store(retention.copy, batch)
    assert not any("\n" in line for line in copy.lines)
    rows = [json.loads(line) for line in copy.lines]
    assert [row["row"]["id"] for row in rows[:2]] == sorted([str(job_id), str(heir)])
    assert {row["table"] for row in rows} == left_of(database, job_id) | {"approval_vote"}
    assert '"n": 1.50' in "".join(copy.lines)
    assert "digest" in {key for row in rows if row["table"] == "approval" for key in row["row"]}
    assert not any("token_digest" in line or "spent_digest" in line for line in copy.lines)


def test_a_copy_that_would_be_too_large_is_cut_between_two_jobs(
    store: Session, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "COPY_BYTES_MAX", 10)
    jobs = {an_ended_job(database) for _ in range(3)}
    keep(store, completed=30)
    deleted = set()
    for _ in range(3):
        batch = store(retention.next_batch, Kind.COMPLETED, limit=10)
        assert batch is not None
        copy = store(retention.copy, batch)
        assert len(copy.batch.roots) == 1
        assert store(retention.delete, copy.batch).jobs == 1
        deleted |= set(copy.batch.roots)
    assert deleted == jobs
