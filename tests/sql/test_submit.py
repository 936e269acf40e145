"""Submitting from plain SQL: part of the caller's own transaction, and safe to repeat."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import attrs
import pytest

from cortex.domain.bulk import BulkRequest, BulkVerb
from cortex.domain.errors import ConflictError, InvalidValueError, NotFoundError, UsageError
from cortex.domain.job import BULK, RUN_FLOW, Claim, Submission
from cortex.domain.policy import JOB_HARD, POLICIES, TIMEOUT_MAX_S, JobPolicy, refuse_bulk
from cortex.domain.tracing.traceparent import TraceParent
from cortex.jobs import builtin_registry
from cortex.postgres.database import Profile, open_database
from cortex.postgres.session import Session
from cortex.store import facts, jobs, specs, tasks
from cortex.store.facts import Fact
from cortex.store.specs import SpecKind
from tests.support.eventually import eventually
from tests.support.records.rows import (
    as_runtime,
    history,
    job_row,
    move_clock,
    new_id,
    seeded_random,
)
from tests.support.records.rows import submit as submit_by_sql
from tests.support.servers.postgres import run_asyncio, sql

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SUBMIT = "SELECT cortex.submit_job('work', '{}')"
ADD = "SELECT cortex_worker.add_job('work', '{}')"
ROWS = """
    SELECT (SELECT count(*) FROM cortex.job) AS jobs,
           (SELECT count(*) FROM cortex_worker.task) AS tasks,
           (SELECT count(*) FROM cortex.job_history) AS transitions
"""
WAITS = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%submit_jobs%'
"""


@pytest.mark.parametrize("query", [SUBMIT, ADD])
@pytest.mark.parametrize("commits", [True, False])
def test_a_submit_lives_and_dies_with_the_callers_transaction(
    database: str, query: str, commits: bool
) -> None:
    async def submit_among_own_work() -> None:
        connection = await asyncpg.connect(as_runtime(database))
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch(query)
        assert tuple(*(await connection.fetch(ROWS))) == (1, 1, 1)
        await (transaction.commit() if commits else transaction.rollback())
        await connection.close()

    run_asyncio(submit_among_own_work)
    assert tuple(sql(database, ROWS)[0]) == ((1, 1, 1) if commits else (0, 0, 0))


def test_add_job_returns_the_task_that_the_job_points_to(database: str) -> None:
    (row,) = sql(
        as_runtime(database),
        "SELECT cortex_worker.add_job(task => 'work', payload => '{\"x\": 1}', queue_name => 'q', "
        "max_attempts => 7, job_key => 'k', priority => -2) AS id",
    )
    (task,) = sql(database, "SELECT * FROM cortex_worker.task WHERE id = $1", row["id"])
    job = job_row(database, task["job_id"])
    assert (task["task"], task["queue_name"], task["max_attempts"]) == ("work", "q", 7)
    assert (task["job_key"], task["priority"], task["state"]) == ("7:default:k", -2, "QUEUED")
    assert (job["worker_job_id"], job["status"]) == (row["id"], "PENDING")
    assert job["payload"] == '{"x": 1}'


def test_defaults_come_from_the_job_type_and_the_agent(database: str, store: Session) -> None:
    sql(database, "INSERT INTO cortex.job_type VALUES ('work', 5, 7, 90, 135)")
    spec = {"limits": {"max_retries": 1, "timeout_seconds": 11}}
    store(specs.apply, SpecKind.AGENT, new_id=new_id(), name="ana", spec=spec, by="test")
    plain = job_row(database, submit_by_sql(database, "work"))
    with_agent = job_row(database, submit_by_sql(database, "work", agent="ana"))
    asked = job_row(database, submit_by_sql(database, "work", agent="ana", timeout_s=3))
    named = ("worker_attempts", "max_retries", "timeout_s")
    assert [plain[name] for name in named] == [5, 7, 90]
    assert [with_agent[name] for name in named] == [5, 1, 11]
    assert [asked[name] for name in named] == [5, 1, 3]
    assert (with_agent["agent_version"], plain["agent_version"]) == (1, None)


@pytest.mark.parametrize(
    "type_, longest_s", [("work", 135), ("run_agent", 5400), ("unknown", 5400)]
)
def test_no_job_gets_more_time_than_its_type_may(
    database: str, store: Session, type_: str, longest_s: int
) -> None:
    """The same as by the API and the command line: a built-in type keeps its own limit."""
    policies = {"work": JobPolicy(timeout_s=90), "run_agent": JobPolicy(timeout_s=5400)}
    store(jobs.ensure_types, policies)
    submit_by_sql(database, type_, timeout_s=longest_s)
    with pytest.raises(asyncpg.CheckViolationError, match=f'"{type_}": {longest_s} seconds'):
        submit_by_sql(database, type_, timeout_s=longest_s + 1)


@pytest.mark.parametrize(
    "type_, payload, message",
    [
        (
            "http_request",
            '{"url": 5}',
            'payload.url of job type "http_request" must be text, got 5',
        ),
        ("llm_generate", "{}", "payload.model .* got nothing"),
    ],
)
def test_built_in_types_refuse_missing_and_non_text_fields(
    database: str, type_: str, payload: str, message: str
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=message):
        sql(database, "SELECT cortex.submit_job($1, $2::jsonb)", type_, payload)


def test_built_in_types_have_their_policies_before_any_pod(database: str) -> None:
    """The migration writes what pods would: `submit_job` knows defaults and hard limits at once."""
    rows = sql(database, "SELECT * FROM cortex.job_type")
    assert {tuple(row) for row in rows} == {
        (name, each.worker_attempts, each.max_retries, each.timeout_s, longest_s(each))
        for name, each in builtin_registry().policies.items()
    }
    assert set(POLICIES) <= set(builtin_registry().names), "a policy without a handler"
    for name, policy in builtin_registry().policies.items():
        if longest_s(policy) <= TIMEOUT_MAX_S and name != RUN_FLOW:
            payload = {"url": "u", "model": "m", "tool": "t"}
            submit_by_sql(database, name, payload, timeout_s=longest_s(policy))
        wrong = f'timeout_s {longest_s(policy) + 1} is above .* "{name}": {longest_s(policy)} sec'
        with pytest.raises(asyncpg.CheckViolationError, match=wrong):
            submit_by_sql(database, name, timeout_s=longest_s(policy) + 1)


def longest_s(policy: JobPolicy) -> int:
    return int(JOB_HARD * policy.timeout_s)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT cortex.submit_job('work', queue_name => 'bulk')",
        "SELECT cortex_worker.add_job('work', queue_name => 'bulk')",
    ],
)
def test_only_bulk_operations_enter_their_queue(database: str, store: Session, query: str) -> None:
    """The same as by the API and the command line: another job would hold all of them up."""
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        sql(as_runtime(database), query)
    with pytest.raises(UsageError) as by_hand:
        refuse_bulk("work", BULK)
    error = refused.value
    assert (error.args[0], error.hint) == (by_hand.value.message, by_hand.value.hint)
    assert tuple(sql(database, ROWS)[0]) == (0, 0, 0)
    request = BulkRequest(verb=BulkVerb.CANCEL, job_ids=(new_id(),), reason="")
    assert store(jobs.submit, [request.submission(job_id := new_id())]).new == {job_id}
    assert job_row(database, job_id)["queue_name"] == BULK


def test_repeated_submission_of_an_id_changes_nothing(database: str, store: Session) -> None:
    given = Submission(id=new_id(), type="work", payload='{"x": 1}', job_key="k")
    assert store(jobs.submit, [given]).new == {given.id}
    assert store(jobs.submit, [given]).new == set()
    assert tuple(sql(database, ROWS)[0]) == (1, 1, 1)


@pytest.mark.parametrize("known", [1, 25, 30])
def test_batch_submits_only_its_new_jobs(database: str, store: Session, known: int) -> None:
    batch = [Submission(id=new_id(), type="work", payload=f'{{"n": {n}}}') for n in range(30)]
    before = {each.id for each in batch[-known:]}
    assert store(jobs.submit, batch[-known:]).new == before
    assert store(jobs.submit, batch).new == {each.id for each in batch} - before
    assert tuple(sql(database, ROWS)[0]) == (30, 30, 30)


@pytest.mark.parametrize("size", [1, 30], ids=["alone", "in a batch"])
def test_an_id_of_another_job_is_refused(database: str, store: Session, size: int) -> None:
    ids = [new_id() for _ in range(size)]
    first = [Submission(id=each, type="work", payload='{"x": 1}', tags=("a",)) for each in ids]
    store(jobs.submit, first)
    others: dict[str, Any] = {
        "type": "other",
        "payload": '{"x": 2}',
        "tenant": "t",
        "queue_name": "q",
        "priority": 5,
        "worker_attempts": 9,
        "max_retries": 9,
        "timeout_s": 9,
        "job_key": "k",
        "tags": ("a", "b"),
    }
    for field, value in others.items():
        other = [*first[:-1], attrs.evolve(first[-1], **{field: value})]
        with pytest.raises(ConflictError, match=f"{ids[-1]} was submitted .* another {field}\\n"):
            store(jobs.submit, other)
    # What a repetition computes anew is no difference.
    again = [attrs.evolve(each, delay_s=60.0, traceparent=TRACEPARENT) for each in first]
    assert store(jobs.submit, again).new == set()
    assert tuple(sql(database, ROWS)[0]) == (size, size, size)


def test_sql_refuses_an_id_of_another_job(database: str) -> None:
    job_id = submit_by_sql(database, "work", {"x": 1}, id=new_id(), job_key="k")
    assert submit_by_sql(database, "work", {"x": 1}, id=job_id, job_key="k") == job_id
    with pytest.raises(asyncpg.UniqueViolationError, match="another type, payload") as refused:
        submit_by_sql(database, "other", {"x": 2}, id=job_id, job_key="k")
    assert refused.value.hint == "an id names one job: give this one another id"
    assert job_row(database, job_id)["payload"] == '{"x": 1}'


def test_first_of_two_equal_ids_in_a_batch_is_submitted(database: str, store: Session) -> None:
    batch = [Submission(id=new_id(), type="work") for _ in range(30)]
    again = [attrs.evolve(batch[0], priority=7), *batch]
    assert store(jobs.submit, again).new == {each.id for each in batch}
    assert tuple(sql(database, ROWS)[0]) == (30, 30, 30)
    assert job_row(database, batch[0].id)["priority"] == 7


@pytest.mark.parametrize("commits", [True, False])
def test_a_batch_waits_for_another_with_its_ids(database: str, commits: bool) -> None:
    batch = [Submission(id=new_id(), type="work") for _ in range(30)]
    shared = batch[10:20]

    async def race() -> set[UUID]:
        one, two = [
            await open_database(Profile(dsn=database), rng=seeded_random()) for _ in range(2)
        ]
        connection = await asyncpg.connect(database)
        try:
            transaction = connection.transaction()
            await transaction.start()
            await jobs.submit(one.bound(connection), shared)
            second = asyncio.create_task(jobs.submit(two, batch))
            waits = partial(sql, database, WAITS)
            await asyncio.to_thread(eventually, waits, what="the second batch to wait")
            await (transaction.commit() if commits else transaction.rollback())
            return set((await second).new)
        finally:
            for opened in (one, two, connection):
                await opened.close()

    everything = {each.id for each in batch}
    earlier = {each.id for each in shared} if commits else set()
    assert run_asyncio(race) == everything - earlier
    assert tuple(sql(database, ROWS)[0]) == (30, 30, 30)


def test_batch_without_payloads_stores_empty_objects(database: str, store: Session) -> None:
    batch = [Submission(id=new_id(), type="work") for _ in range(2)]
    store(jobs.submit, [*batch, mixed := Submission(id=new_id(), type="work", payload="7")])
    store(jobs.submit, [bare := Submission(id=new_id(), type="work")])
    payloads = {each.id: job_row(database, each.id)["payload"] for each in (*batch, mixed, bare)}
    assert payloads == {batch[0].id: "{}", batch[1].id: "{}", mixed.id: "7", bare.id: "{}"}


def test_an_unknown_agent_and_a_huge_payload_are_refused_in_words(
    database: str, store: Session
) -> None:
    with pytest.raises(NotFoundError, match='agent "nobody" does not exist') as unknown:
        store(jobs.submit, [Submission(id=new_id(), type="work", agent="nobody")])
    assert "agents apply" in str(unknown.value.hint)
    huge = '{"x": "%s"}' % ("y" * 262_144)
    with pytest.raises(InvalidValueError, match="262153 bytes is larger than 262144"):
        store(jobs.submit, [Submission(id=new_id(), type="work", payload=huge)])
    assert tuple(sql(database, ROWS)[0]) == (0, 0, 0)


def test_one_bad_submission_refuses_its_whole_batch(database: str, store: Session) -> None:
    batch = [
        Submission(id=new_id(), type="work"),
        Submission(id=new_id(), type="work", payload='{"x": "\\u0000"}'),
    ]
    with pytest.raises(InvalidValueError):
        store(jobs.submit, batch)
    assert tuple(sql(database, ROWS)[0]) == (0, 0, 0)


# --- job keys


def test_a_key_replaces_the_job_that_waits(database: str, submit: Callable[..., UUID]) -> None:
    first = submit(job_key="k")
    second = submit(job_key="k")
    replaced = job_row(database, first)
    assert (replaced["status"], replaced["task_state"]) == ("CANCELLED", None)
    assert str(second) in replaced["cancel_reason"]
    assert history(database, first)[-1] == ("PENDING", "CANCELLED", 0)
    assert job_row(database, second)["task_state"] == "READY"


def test_a_key_replaces_a_delayed_and_a_retried_job(
    database: str,
    store: Session,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
) -> None:
    delayed = submit(job_key="k", delay_s=60.0)
    between_attempts = submit(job_key="k")
    assert job_row(database, delayed)["status"] == "CANCELLED"
    pod_id = new_id()
    (claimed,) = claim(pod_id)
    assert claimed.lease.job_id == between_attempts
    sql(
        database,
        "UPDATE cortex_worker.task SET state = 'LATER', locked_by = NULL, "
        "run_at = cortex.now() + interval '1 hour'",
    )
    last = submit(job_key="k")
    assert job_row(database, between_attempts)["status"] == "CANCELLED"
    assert [c.lease.job_id for c in claim(pod_id)] == [last]
    assert store(tasks.promote) == 0


def test_a_running_job_runs_on_and_its_key_passes_on(
    database: str, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    running = submit(job_key="k")
    claim(new_id())
    second, third = submit(job_key="k"), submit(job_key="k")
    assert job_row(database, running)["status"] == "RUNNING"
    assert job_row(database, second)["status"] == "CANCELLED"
    assert job_row(database, third)["status"] == "PENDING"
    holders = sql(database, "SELECT job_id FROM cortex_worker.task WHERE job_key = '7:default:k'")
    assert [row["job_id"] for row in holders] == [third]


def test_one_of_many_concurrent_submissions_holds_the_key(database: str) -> None:
    rng = seeded_random()

    async def submit_at_once() -> None:
        stores = [await open_database(Profile(dsn=database), rng=rng) for _ in range(8)]

        async def submit_some(number: int) -> None:
            for _ in range(5):
                given = Submission(id=new_id(), type="work", job_key="k")
                assert (await jobs.submit(stores[number], [given])).new == {given.id}

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(submit_some(number))
        for each in stores:
            await each.close()

    run_asyncio(submit_at_once)
    counts = sql(database, "SELECT status, count(*) AS n FROM cortex.job GROUP BY status")
    assert {row["status"]: row["n"] for row in counts} == {"PENDING": 1, "CANCELLED": 39}
    assert len(sql(database, "SELECT FROM cortex_worker.task WHERE job_key = '7:default:k'")) == 1


def test_last_job_of_a_batch_holds_the_key(database: str, store: Session) -> None:
    batch = [Submission(id=new_id(), type="work", job_key="k") for _ in range(3)]
    store(jobs.submit, batch)
    statuses = [job_row(database, each.id)["status"] for each in batch]
    assert statuses == ["CANCELLED", "CANCELLED", "PENDING"]


def test_a_delay_is_counted_by_the_clock_of_the_database(
    database: str, store: Session, submit: Callable[..., UUID], claim: Callable[..., list[Claim]]
) -> None:
    job_id = submit(delay_s=3600.0)
    assert job_row(database, job_id)["task_state"] == "LATER"
    assert claim(new_id()) == []
    move_clock(database, 3599)
    assert claim(new_id()) == []
    move_clock(database, 3601)
    assert store(tasks.promote) == 1
    assert [c.lease.job_id for c in claim(new_id())] == [job_id]


# --- traces

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


def test_a_job_belongs_to_the_trace_it_was_submitted_in_or_to_its_own(
    database: str, store: Session
) -> None:
    ((part, own),) = sql(
        database,
        "SELECT cortex.submit_job('work', traceparent => $1), cortex.submit_job('work')",
        GIVEN,
    )
    for job_id, submitted in ((part, GIVEN), (own, None)):
        span = TraceParent.of_job(job_id, submitted)
        assert (
            store(jobs.show, job_id).trace_id,
            sql(
                database,
                "SELECT cortex.traceparent(id, traceparent) FROM cortex.job WHERE id = $1",
                job_id,
            )[0][0],
        ) == (span.trace_id.hex(), str(span))
        store(facts.append, [Fact(type="error", subtype="x", job_id=job_id)])
        assert [each.trace_id for each in store(facts.of_job, job_id)] == [span.trace_id.hex()]


@pytest.mark.parametrize("far", ["infinity", "-infinity", "4713-01-01 BC", "10000-01-01"])
def test_an_instant_that_no_list_can_show_is_refused(database: str, far: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="is not an instant of the years 1"):
        sql(database, "SELECT cortex.submit_job('work', run_at => $1::text::timestamptz)", far)


@pytest.mark.parametrize(
    "wrong", ["x", "", GIVEN.upper(), f"ff{GIVEN[2:]}", f"00-{'0' * 32}-{'1' * 16}-01", f"{GIVEN} "]
)
def test_a_broken_traceparent_is_refused_by_name(database: str, wrong: str) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match=f'traceparent "{wrong}" is not valid'):
        sql(database, "SELECT cortex.submit_job('work', traceparent => $1)", wrong)
