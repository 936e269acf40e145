"""Dead letters: every failure leaves one, each is settled once, and a new job continues it."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.dead_letter import NEWEST
from cortex.domain.errors import ConflictError, NotFoundError, OutcomeUnknownError
from cortex.domain.job import Claim, Finish, JobStatus
from cortex.domain.job_filter import parse_filter
from cortex.postgres.database import Database, Profile, Record
from cortex.postgres.session import Session, open_session
from cortex.store import dead_letters, job_pages, jobs, specs, tasks
from cortex.store.dead_letters import Resubmission, SettledDeadLetter
from cortex.store.specs import SpecKind
from tests.sql.test_plans import explain
from tests.support.records.dead_letters import fail, letter, lifecycle, set_breaker
from tests.support.records.rows import (
    NoPause,
    as_runtime,
    assert_one_truth,
    history,
    job_row,
    move_clock,
    new_id,
    steps,
    submit,
)
from tests.support.servers.postgres import sql

MADE_UP = """
    INSERT INTO cortex.dead_letter (job_id, lineage_id, fingerprint, type, tenant, created_at)
    VALUES (cortex.uuid7(), cortex.uuid7(), 'x', 'work', 'default', cortex.now())
"""
FAIL_AGAIN = (
    "UPDATE cortex.job_record SET status = 'FAILED', error_message = 'x', attempt = attempt + 1 "
    "WHERE id = $1"
)


COPIED = (
    *("type", "payload", "tenant", "agent_id", "agent_version", "config_id", "queue_name"),
    *("priority", "worker_attempts", "max_retries", "timeout_s", "checkpoint"),
)


def retry(store: Session, *job_ids: UUID, by: str = "ana", **how: Any) -> list[SettledDeadLetter]:
    wanted = [Resubmission(job_id=each, new_id=new_id()) for each in job_ids]
    return store(dead_letters.resubmit, wanted, by=by, reason="mended", **how)


def heir_of(settled: SettledDeadLetter) -> UUID:
    assert settled.error is None
    assert settled.retried_as is not None
    return settled.retried_as


def letter_count(dsn: str) -> int:
    return int(sql(dsn, "SELECT count(*) AS n FROM cortex.dead_letter")[0]["n"])


# --- every failure leaves one


def finished(store: Session, dsn: str, claim: Callable[..., list[Claim]]) -> UUID:
    pod_id, job_id = new_id(), submit(dsn, "work")
    (claimed,) = claim(pod_id)
    ending = Finish(
        lease=claimed.lease, status=JobStatus.FAILED, error="no page 17", code="job_failed"
    )
    store(jobs.finish, pod_id=pod_id, operations=[ending])
    return job_id


def swept(store: Session, dsn: str, claim: Callable[..., list[Claim]]) -> UUID:
    job_id = submit(dsn, "work", worker_attempts=1, max_retries=0)
    claim(new_id())
    move_clock(dsn, 1000)
    store(tasks.sweep, silent_s=300.0, limit=10, rng=NoPause())
    return job_id


def failed_in_retry(_store: Session, dsn: str, _claim: Callable[..., list[Claim]]) -> UUID:
    job_id = submit(dsn, "work")
    for change in (
        "status = 'RUNNING'",
        "status = 'RETRY', next_retry_at = cortex.now()",
        "status = 'FAILED', next_retry_at = NULL, error_message = 'gave up'",
    ):
        sql(dsn, f"UPDATE cortex.job_record SET {change} WHERE id = $1", job_id)  # noqa: S608
    return job_id


@pytest.mark.parametrize("way", [finished, swept, failed_in_retry])
def test_every_failure_leaves_an_open_dead_letter(
    store: Session,
    database: str,
    claim: Callable[..., list[Claim]],
    way: Callable[[Session, str, Callable[..., list[Claim]]], UUID],
) -> None:
    job_id = way(store, database, claim)
    job, found = job_row(database, job_id), letter(database, job_id)
    assert job["status"] == "FAILED"
    assert (found["state"], found["lineage_id"]) == ("OPEN", job_id)
    assert found["created_at"] == job["finished_at"]
    for name in ("type", "tenant", "error_class", "error_code", "error_source"):
        assert found[name] == job[name]


def test_only_committed_failures_leave_a_dead_letter(
    store: Session, database: str, claim: Callable[..., list[Claim]]
) -> None:
    pod_id = new_id()
    submit(database, "work")
    (claimed,) = claim(pod_id)
    done = Finish(lease=claimed.lease, status=JobStatus.COMPLETED, result="1")
    store(jobs.finish, pod_id=pod_id, operations=[done])
    store(jobs.cancel, submit(database, "work"), by="ana", reason="")
    undone = submit(database, "work")
    sql(database, "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", undone)
    with pytest.raises(asyncpg.DivisionByZeroError):
        sql(
            database,
            "WITH f AS (UPDATE cortex.job_record SET status = 'FAILED', error_message = 'x' "
            "WHERE id = $1 RETURNING 1) SELECT 1 / (count(*) - 1) FROM f",
            undone,
        )
    assert letter_count(database) == 0


def test_the_runtime_neither_makes_letters_up_nor_loses_or_forges_one(database: str) -> None:
    (job_id,) = fail(database)
    for query in (
        "DELETE FROM cortex.dead_letter",
        "TRUNCATE cortex.dead_letter",
        "UPDATE cortex.dead_letter SET job_id = cortex.uuid7()",
        "UPDATE cortex.dead_letter SET error_code = 'none'",
        MADE_UP,
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            sql(as_runtime(database), query)
    assert letter(database, job_id)["state"] == "OPEN"


@pytest.mark.parametrize(
    "one, other, are_equal",
    [
        ("page 17 is gone", "page 4 is gone", True),
        ("no file 'out/a.txt' here", "no file 'b c.txt' here", True),
        ('got "some words of 5"', "got 'other words'", True),
        ("got '%s'" % ("a" * 41), "got '%s'" % ("b" * 41), True),
        ('got "it\'s 5 here"', "got 'them'", False),
        ('got "it\'s 5 here"', 'got "he\'s 6 there"', True),
        ("no file /tmp/a here", "no file /srv/b/c.txt here", True),
        ("stopped with 'refusal'", "stopped with 'max_tokens'", False),
        ("KeyError: 'url'", "KeyError: 'page'", False),
        ("no `llm.x`", "no `llm.y`", False),
        ('key "x1" twice', 'key "y2" twice', True),
        ("https://one.example/a", "https://two.example/a", False),
        (f"job {UUID(int=10)}", "job abcdefab-cdef-7000-8000-abcdefabcdef", True),
        ("commit 3f9a1c2 failed", "commit 77de01b failed", True),
        ("after 30s", "after 1.5s", True),
        ("1,204 rows at 12:30:01", "7 rows at 01:00:00", True),
        ("can't read it, won't try", "can't read it, don't try", False),
        ("the page is gone", "the page is back", False),
        ("face", "fade", False),
    ],
)
def test_equal_errors_share_a_fingerprint(
    database: str, one: str, other: str, are_equal: bool
) -> None:
    query = """
        SELECT cortex.fingerprint('work', 'x', $1) AS one,
               cortex.fingerprint('work', 'x', $2) AS other,
               cortex.fingerprint('rest', 'x', $1) AS of_type,
               cortex.fingerprint('work', NULL, $1) AS of_code
    """
    (row,) = sql(database, query, one, other)
    assert (row["one"] == row["other"]) is are_equal
    assert len({row["one"], row["of_type"], row["of_code"]}) == 3
    assert len(row["one"]) == 12


# --- a new job continues


def test_the_new_job_has_all_that_the_old_one_had_but_its_fate(
    store: Session, database: str
) -> None:
    apply(store, "one", timeout_seconds=500)
    submitted = {
        "payload": '{"n": 1}',
        "tenant": "acme",
        "agent": "tester",
        "queue_name": "q",
        "priority": -3,
        "worker_attempts": 7,
        "max_retries": 9,
        "timeout_s": 77,
    }
    (old_id,) = fail(database, steps=3, submitted=submitted)
    with_all = "UPDATE cortex.job_step SET input = '[]', amid = 'error', parent_key = 'step 0'"
    sql(database, "ALTER TABLE cortex.job_step DISABLE TRIGGER USER")  # append-only
    sql(database, with_all)
    old = job_row(database, old_id)
    (settled,) = retry(store, old_id)
    new = job_row(database, heir_of(settled))
    assert {name: new[name] for name in COPIED} == {name: old[name] for name in COPIED}
    assert (new["agent_version"], new["tenant"], new["timeout_s"]) == (1, "acme", 77)
    fresh = ("status", "attempt", "retry_count", "started_at", "task_state", "attempts_spent")
    assert [new[name] for name in fresh] == ["PENDING", 0, 0, None, "QUEUED", 0]
    assert (new["origin_id"], new["lineage_id"]) == (old_id, old_id)
    assert steps(database, new["id"]) == [(n, 0, "step", f"step {n}") for n in (1, 2, 3)]
    copied = "SELECT to_jsonb(s) - 'job_id' - 'attempt' FROM cortex.job_step s WHERE job_id = $1"
    assert sql(database, copied, new["id"]) == sql(database, copied, old_id)
    assert job_row(database, old_id) | {"now": None} == old | {"now": None}
    assert_one_truth(database)


def test_retry_records_person_and_reason(store: Session, database: str) -> None:
    (job_id,) = fail(database)
    (settled,) = retry(store, job_id)
    found = letter(database, job_id)
    assert found["state"] == "RETRIED"
    assert (found["resolved_by"], found["reason"]) == ("ana", "mended")
    assert found["retried_as"] == settled.retried_as
    assert found["resolved_at"] >= found["created_at"]
    assert not found["is_automatic"]
    ((subtype, data),) = lifecycle(database, job_id)
    assert subtype == "dead_letter_retried"
    assert (data["by"], data["reason"], data["before"]) == ("ana", "mended", "OPEN")
    assert data["retried_as"] == str(settled.retried_as)


def test_lineage_keeps_its_first_job(
    store: Session, database: str, claim: Callable[..., list[Claim]]
) -> None:
    (first,) = fail(database)
    second = heir_of(retry(store, first)[0])
    (claimed,) = claim(new_id())
    assert claimed.lease.job_id == second
    sql(database, FAIL_AGAIN, second)
    third = heir_of(retry(store, second)[0])
    row = job_row(database, third)
    assert (row["origin_id"], row["lineage_id"]) == (second, first)
    assert letter(database, second)["lineage_id"] == first


def test_second_settlement_is_refused_and_names_the_first(store: Session, database: str) -> None:
    (job_id,) = fail(database)
    first = heir_of(retry(store, job_id)[0])
    (again,) = retry(store, job_id, by="li")
    assert isinstance(again.error, ConflictError)
    assert "was retried by ana at 2" in again.error.message
    assert str(first) in again.error.message
    (refused,) = store(dead_letters.discard, [job_id], by="li", reason="old")
    assert isinstance(refused.error, ConflictError)
    (given_up,) = fail(database)
    assert store(dead_letters.discard, [given_up], by="li", reason="old")[0].error is None
    (late,) = retry(store, given_up)
    assert late.error is not None
    assert "was discarded by li" in late.error.message
    assert len(history(database, given_up)) == 3


def test_job_that_has_not_failed_cannot_be_retried(store: Session, database: str) -> None:
    pending, unknown = submit(database, "work"), new_id()
    for job_id, output in ((pending, "is PENDING"), (unknown, "does not exist")):
        (settled,) = retry(store, job_id)
        assert isinstance(settled.error, NotFoundError)
        assert output in settled.error.message
        with pytest.raises(NotFoundError, match=output):
            store(dead_letters.show, job_id)


def test_repeated_resubmission_with_the_same_ids_is_idempotent(
    store: Session, database: str
) -> None:
    wanted = [Resubmission(job_id=each, new_id=new_id()) for each in fail(database, 25)]
    first = store(dead_letters.resubmit, wanted, by="ana", reason="mended")
    second = store(dead_letters.resubmit, wanted, by="ana", reason="mended")
    assert first == second
    assert {each.retried_as for each in first} == {each.new_id for each in wanted}
    (row,) = sql(database, "SELECT count(*) AS n FROM cortex.job WHERE origin_id IS NOT NULL")
    assert row["n"] == 25


def test_a_lost_reply_is_asked_for_again(
    store: Session, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (retried, discarded) = fail(database, 2)
    really = Database.fetch
    lost: list[str] = []

    async def lossy(self: Database, query: str, *args: object) -> list[Record]:
        rows = await really(self, query, *args)
        if query in ("dead_letters.retry", "dead_letters.settle") and query not in lost:
            lost.append(query)
            raise OutcomeUnknownError("the reply was lost")
        return rows

    monkeypatch.setattr(Database, "fetch", lossy)
    assert retry(store, retried)[0].error is None
    assert store(dead_letters.discard, [discarded], by="ana", reason="old")[0].error is None
    assert len(lost) == 2
    assert len(lifecycle(database, retried)) == len(lifecycle(database, discarded)) == 1


def test_racing_retries_settle_each_letter_once(database: str) -> None:
    ids = fail(database, 400, steps=2)

    def race(who: str, order: Sequence[UUID]) -> list[SettledDeadLetter]:
        with open_session(Profile(dsn=database)) as call:
            return retry(call, *order, by=who)

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(race, "ana", ids)
        other = threads.submit(race, "li", ids[::-1])
        settled = [*one.result(), *other.result()]
    won = {each.job_id for each in settled if each.error is None}
    assert won == set(ids)
    assert sum(each.error is None for each in settled) == len(ids)
    assert all(isinstance(e.error, ConflictError) for e in settled if e.error is not None)
    (row,) = sql(database, "SELECT count(*) AS n FROM cortex.job WHERE origin_id IS NOT NULL")
    assert row["n"] == len(ids)
    assert_one_truth(database)


# --- a response that failed its job


def answer(stop: str, *tools: str) -> str:
    content = [{"type": "text", "text": "x"}, *({"type": "tool_use", "name": t} for t in tools)]
    return json.dumps({"stop_reason": stop, "content": content})


@pytest.mark.parametrize(
    "response, error, kept",
    [
        ((4, answer("refusal")), {}, 3),
        ((1, answer("refusal")), {}, None),
        ((2, answer("tool_use", "a", "b")), {}, 1),
        ((3, answer("tool_use", "a", "b")), {}, None),
        ((4, answer("tool_use", "a")), {}, None),
        ((4, answer("refusal")), {"error_class": "TRANSIENT_INFRA"}, None),
        ((4, answer("paused")), {"error_class": "PERMANENT", "error_code": "rejected"}, 3),
        ((4, answer("end_turn")), {"error_class": "PERMANENT", "error_code": "rejected"}, None),
        (
            (3, answer("tool_use", "a")),
            {"error_class": "PERMANENT", "error_code": "rejected"},
            None,
        ),
    ],
    ids=[
        *("refused", "gone on from", "unfit calls", "a call failed", "its call failed"),
        *("another class", "stopped oddly", "ended well", "steps used up"),
    ],
)
def test_a_response_that_failed_its_job_does_not_go_along(
    store: Session,
    database: str,
    response: tuple[int, str],
    error: dict[str, str],
    kept: int | None,
) -> None:
    cause: dict[str, Any] = {
        "error_class": "INVALID_OUTPUT",
        "error_code": "invalid_output",
    } | error
    (old_id,) = fail(database, steps=4, response=response, **cause)
    assert store(dead_letters.show, old_id).asks_again_after == kept
    (row,) = store(dead_letters.of_jobs, [old_id])
    (of_page,) = store(dead_letters.page)
    (group,) = store(dead_letters.groups, limit=1)
    assert {row.asks_again_after, of_page.asks_again_after, group.asks_again_after} == {kept}
    new = job_row(database, heir_of(retry(store, old_id)[0]))
    count = 4 if kept is None else kept
    assert [step[0] for step in steps(database, new["id"])] == list(range(1, count + 1))
    head = {"seq": count, "kind": "step", "key": f"step {count}"}
    if kept is not None:
        head |= {"input_tokens": 7 * kept, "cost_usd": f"{0.25 * kept:.8f}"}
    assert new["checkpoint"] == head
    assert lifecycle(database, old_id)[0][1]["asks_again_after"] == kept


def test_first_response_that_failed_is_not_inherited(store: Session, database: str) -> None:
    refused = (1, answer("refusal"))
    (old_id,) = fail(database, steps=1, response=refused, error_class="INVALID_OUTPUT")
    new = job_row(database, heir_of(retry(store, old_id)[0]))
    assert (new["checkpoint"], steps(database, new["id"])) == ({}, [])


# --- another version, from the start


def apply(store: Session, model: str, **limits: int) -> None:
    spec = {"name": "tester", "model": model, "limits": limits}
    store(specs.apply, SpecKind.AGENT, new_id=new_id(), name="tester", spec=spec, by="ana")


def test_other_agent_version_restarts_under_the_jobs_limits(store: Session, database: str) -> None:
    apply(store, "one", timeout_seconds=100)
    (old_id,) = fail(database, steps=2, submitted={"agent": "tester", "max_retries": 8})
    apply(store, "two", timeout_seconds=200)
    new = job_row(database, heir_of(retry(store, old_id, agent_version=NEWEST)[0]))
    assert (new["agent_version"], new["timeout_s"], new["max_retries"]) == (2, 200, 8)
    assert (new["checkpoint"], steps(database, new["id"])) == ({}, [])
    assert_one_truth(database)


def test_identical_agent_version_keeps_the_steps(store: Session, database: str) -> None:
    apply(store, "one")
    (old_id,) = fail(database, steps=2, submitted={"agent": "tester"})
    apply(store, "two")
    apply(store, "one")
    new = job_row(database, heir_of(retry(store, old_id, agent_version=3)[0]))
    assert (new["agent_version"], len(steps(database, new["id"]))) == (3, 2)


def test_retry_keeps_the_agent_version_by_default(store: Session, database: str) -> None:
    apply(store, "one")
    (old_id,) = fail(database, steps=2, submitted={"agent": "tester"})
    apply(store, "two")
    new = job_row(database, heir_of(retry(store, old_id)[0]))
    assert (new["agent_version"], len(steps(database, new["id"]))) == (1, 2)


def test_a_version_that_is_not_there_is_refused(store: Session, database: str) -> None:
    apply(store, "one")
    (of_agent,) = fail(database, submitted={"agent": "tester"})
    (of_none,) = fail(database)
    refused = retry(store, of_agent, of_none, agent_version=7)
    assert isinstance(refused[0].error, NotFoundError)
    assert refused[0].error.message == "agent 'tester' has no version 7"
    assert refused[1].error is not None
    assert "runs no agent" in refused[1].error.message
    assert letter(database, of_agent)["state"] == letter(database, of_none)["state"] == "OPEN"


def test_retry_from_start_inherits_no_steps(store: Session, database: str) -> None:
    (old_id,) = fail(database, steps=2)
    new = job_row(database, heir_of(retry(store, old_id, from_start=True)[0]))
    assert (new["checkpoint"], steps(database, new["id"])) == ({}, [])


def test_delayed_resubmission_waits_in_the_queue(store: Session, database: str) -> None:
    now, later = fail(database, 2)
    wanted = [
        Resubmission(job_id=now, new_id=new_id()),
        Resubmission(job_id=later, new_id=new_id(), delay_s=60.0),
    ]
    store(dead_letters.resubmit, wanted, by="ana", reason="mended")
    rows = [job_row(database, each.new_id) for each in wanted]
    assert [row["task_state"] for row in rows] == ["READY", "LATER"]
    assert 59 < (rows[1]["task_run_at"] - rows[1]["created_at"]).total_seconds() <= 60


# --- many


def test_thousands_are_chosen_and_retried(store: Session, database: str) -> None:
    ids = fail(database, 1000, steps=3, error_message="page 9 is gone")
    fail(database, 10, error_message="something else")
    (fingerprint,) = {row.fingerprint for row in store(dead_letters.of_jobs, ids)}
    which = parse_filter(f"fingerprint:{fingerprint[:6]}")
    (group,) = store(dead_letters.groups, which, limit=10)
    assert (group.count, group.error_message) == (1000, "page 9 is gone")
    chosen = store(dead_letters.choose, which, limit=5000)
    assert set(chosen) == set(ids)
    settled = retry(store, *chosen)
    assert [each.job_id for each in settled] == chosen
    assert all(each.error is None for each in settled)
    assert store(dead_letters.groups, which, limit=10) == []
    assert letter_count(database) == 1010
    assert_one_truth(database)


OTHER: dict[str, Any] = {"queue_name": "mail", "tags": ("a", "b")}


def test_filters_and_pages(store: Session, database: str) -> None:
    apply(store, "one")
    (old,) = fail(database)
    move_clock(database, 7200)
    (denied,) = fail(database, error_class="PERMANENT", error_code="forbidden")
    (agents_own,) = fail(
        database, submitted={"agent": "tester", "tenant": "acme", "type": "other", **OTHER}
    )

    def found(text: str = "") -> list[UUID]:
        which = parse_filter(text)
        rows = store(dead_letters.page, which)
        ids = [row.job_id for row in rows]
        chosen = store(dead_letters.choose, which, limit=10)
        assert chosen == ([] if "letter:" in text else ids[::-1])  # only of those that wait
        counted = store(dead_letters.groups, which, limit=10)
        assert sum(row.count for row in counted) == len(ids)
        states = "" if "letter:" in text else " letter:unresolved"
        listed = store(job_pages.page, parse_filter(text + states)).jobs
        assert {row.id for row in listed} == set(ids), "a list of jobs has the same"
        return ids

    assert found() == [agents_own, denied, old]
    assert found("code:forbidden") == found("class:permanent") == [denied]
    assert found("type:oth*") == found("agent:tester") == found("tenant:acme") == [agents_own]
    assert found("queue:mail") == found("tag:slow,b") == found("ended<1h tag:a") == [agents_own]
    assert (
        found("ended<1h") == found("age<1h") == found("ended<3h ended<1h") == [agents_own, denied]
    )
    assert found("ended>1h") == found("age>1h") == found(f"id:{old.hex[-8:]}") == [old]
    assert found("status:run,retry") == found("status:done") == found("pod:none") == []
    assert found("status:fail,run class:permanent,budget") == [denied]
    assert found(f"fingerprint:{letter(database, denied)['fingerprint'][:6]}") == [denied]
    store(dead_letters.discard, [denied], by="ana", reason="old")
    assert found() == [agents_own, old]
    assert found("letter:discarded") == [denied]
    rows = store(
        dead_letters.page,
        parse_filter("letter:all"),
        before=agents_own,
        limit=1,
    )
    assert [row.job_id for row in rows] == [denied]


def test_dead_letter_shows_step_cost_and_stack_of_its_job(store: Session, database: str) -> None:
    (first,) = fail(database, steps=2, error_source="llm:x", error_class="TRANSIENT_APP")
    second = heir_of(retry(store, first)[0])
    output = store(dead_letters.show, first)
    assert (output.step, output.spent_usd, output.breaker) == ("2 step 2", Decimal("0.5"), None)
    assert (output.retried_as, output.retried_status) == (second, "PENDING")
    sql(database, "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", second)
    sql(database, FAIL_AGAIN, second)
    assert store(dead_letters.show, second).spent_usd is None  # its steps were paid before
    fact = (
        "INSERT INTO cortex.fact (type, subtype, job_id, amount, currency, data) "
        "VALUES ($2, 'x', $1, $3, $4, $5)"
    )
    sql(database, fact, second, "cost", 0.75, "USD", "{}")
    sql(database, fact, second, "error", None, None, json.dumps({"stack": "Traceback …"}))
    output = store(dead_letters.show, second)
    assert (output.spent_usd, output.stack) == (Decimal("0.75"), "Traceback …")
    assert (output.origin_id, output.step) == (first, "2 step 2")


# --- at any size

FILL = """
    INSERT INTO cortex.job_record (id, type, payload)
    SELECT id, 'work', '{}' FROM unnest($1::uuid[]) AS id
"""
LETTERS = """
    INSERT INTO cortex.dead_letter (
        job_id, lineage_id, fingerprint, type, tenant, error_class, error_code, error_source, state,
        created_at, triaged_at, resolved_at, resolved_by)
    SELECT id, id, 'f' || n % 50, 'work', 'default', 'TRANSIENT_APP', 'x',
           CASE WHEN n > 1000 THEN 'llm:1' WHEN n % 4 = 0 THEN 'llm:0' END,
           CASE WHEN n % 10 = 9 THEN 'DISCARDED' ELSE 'OPEN' END, now() - n * interval '1 s',
           CASE WHEN n % 2 = 1 AND n < 1000 THEN now() END,
           CASE WHEN n % 10 = 9 THEN now() END, CASE WHEN n % 10 = 9 THEN 'ana' END
    FROM unnest($1::uuid[]) WITH ORDINALITY AS l(id, n)
"""
MANY = 6_000
WANTED = 20


def test_statements_read_only_the_letters_they_need(database: str) -> None:
    ids = [UUID(int=n) for n in range(1, MANY + 1)]
    sql(database, FILL, ids)
    sql(database, LETTERS, ids)
    set_breaker(database, "llm:1", "OPEN")  # what most and the oldest letters await
    some, ones, why = ids[:WANTED], ["OPEN"] * WANTED, ["x"] * WANTED
    new_ids = [new_id() for _ in some]
    statements: dict[str, tuple[object, ...]] = {
        "dead_letters.unjudged": (WANTED,),
        "dead_letters.recovered": (60.0, WANTED),
        "dead_letters.hold_unseen": (some,),
        "dead_letters.standing": (some,),
        "dead_letters.of_jobs": (some,),
        "dead_letters.show": (ids[0],),
        "dead_letters.settle": (some, ones, why, "ana"),
        "dead_letters.retry": (
            *(some, new_ids, [0.0] * WANTED, None, False, "ana", why, False),
            *([None] * WANTED, [None] * WANTED, None),
        ),
    }
    sql(database, "ANALYZE cortex.dead_letter, cortex.job_record")
    offences = [
        f"{name}: {look}"
        for name, arguments in statements.items()
        for look in explain(database, name, arguments)
        if look.table in {"dead_letter", "job", "job_step"} and look.rows > 8 * WANTED
    ]
    assert not offences, "\n".join(["", *offences])
