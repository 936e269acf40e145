"""Simultaneous decisions: one wins, the others learn which; no job sleeps over one."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from cortex.domain.approvals.vote import Vote
from cortex.domain.canonical import canonical
from cortex.domain.errors import ConflictError
from cortex.domain.queueing.submit_rules import Submitted
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.session import Session
from cortex.store import approvals, jobs, tasks
from tests.support.at_once import at_once
from tests.support.eventually import eventually
from tests.support.people import enrolled, user
from tests.support.records.approvals import Askers, a_request, a_verdict, facts, suspension
from tests.support.records.factories import a_submission
from tests.support.records.rows import assert_one_truth, job_row, move_clock, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

DECIDERS = 50
ROUNDS = 30


@pytest.fixture
def askers(store: Session, database: str) -> Askers:
    return Askers(store, database)


REFUSALS = {
    "was already": "already",
    " is void": "already",
    "have changed since": "changed",
    "you have agreed": "agreed_before",
    "asked for by you": "own_request",
    " expired at ": "expired",
}


def decider(request: Any, **fields: Any) -> Callable[[Database], Coroutine[Any, Any, str]]:
    """Decide, and return the outcome as one word."""
    return partial(outcome_of, vote=a_verdict(request, **fields))


async def outcome_of(db: Database, *, vote: Vote) -> str:
    try:
        (result,) = await approvals.decide(db, [vote])
    except ConflictError as error:
        return next(word for text, word in REFUSALS.items() if text in error.message)
    return result.outcome


def rulings(found: list[Any]) -> Counter[str]:
    assert all(isinstance(each, str) for each in found), found
    return Counter(found)


def test_one_of_fifty_deciders_wins_and_the_others_learn_who(askers: Askers) -> None:
    request = askers.asked()
    people = [f"person-{n}" for n in range(DECIDERS)]
    found = at_once(
        askers.dsn,
        *(
            decider(request, by=user(name), is_approved=n % 2 == 0, reason=f"said {name}")
            for n, name in enumerate(people)
        ),
    )
    shown = askers.row(request)
    (winner,) = (n for n, each in enumerate(found) if each != "already")
    outcome = "approved" if winner % 2 == 0 else "denied"
    assert rulings(found) == {outcome: 1, "already": DECIDERS - 1}
    assert (shown.decided_by, shown.status) == (people[winner], outcome.upper())
    output = askers.refused(request).message
    assert f"already {outcome} by {people[winner]} at" in output
    assert output.endswith(f"said {people[winner]}")
    assert len(facts(askers.dsn, request.id)) == 1
    votes = sql(askers.dsn, "SELECT person FROM cortex.approval_vote")
    assert len(votes) == (1 if outcome == "approved" else 0)
    assert job_row(askers.dsn, shown.job_id)["task_state"] == "READY"
    assert_one_truth(askers.dsn)


def test_two_of_fifty_people_approve_a_critical_request(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL", submitted_by="person-0")
    people = [f"person-{n % 25}" for n in range(DECIDERS)]
    found = at_once(
        askers.dsn, *(decider(request, by=enrolled(askers.dsn, name)) for name in people)
    )
    counts = rulings(found)
    assert (counts["agreed"], counts["approved"]) == (1, 1)
    votes = [row["person"] for row in sql(askers.dsn, "SELECT person FROM cortex.approval_vote")]
    assert len(set(votes)) == 2
    assert "person-0" not in votes
    assert job_row(askers.dsn, askers.row(request).job_id)["task_state"] == "READY"


def test_simultaneous_edits_do_not_approve_each_other(askers: Askers) -> None:
    request = askers.asked(risk="CRITICAL")
    edits = [canonical({"customer": "cus_88", "amount": n}) for n in range(10)]
    found = at_once(
        askers.dsn,
        *(
            decider(request, by=enrolled(askers.dsn, f"p{n}"), edited=text)
            for n, text in enumerate(edits)
        ),
    )
    assert rulings(found) == {"agreed": 1, "changed": 9}
    shown = askers.row(request)
    assert (shown.status, shown.agreed, shown.version) == ("PENDING", 1, 2)


def test_many_approve_and_deny_races_have_one_decision_each(askers: Askers) -> None:
    requests = [askers.asked() for _ in range(ROUNDS)]
    calls = [
        decider(request, by=user(by), is_approved=by == "ana", reason=by)
        for request in requests
        for by in ("ana", "li")
    ]
    counts = rulings(at_once(askers.dsn, *calls))
    assert counts["already"] == ROUNDS
    assert counts["approved"] + counts["denied"] == ROUNDS
    decided = (
        "SELECT source, count(*) AS n FROM cortex.fact WHERE source LIKE 'approval:%' GROUP BY 1"
    )
    assert {row["n"] for row in sql(askers.dsn, decided)} == {1}


def test_a_decision_and_the_expiry_never_both_count(askers: Askers) -> None:
    """At its last instant: the one that comes second finds it decided."""
    requests = [askers.asked(on_expiry="tell") for _ in range(ROUNDS)]

    async def expired(db: Database) -> int:
        return sum([(await approvals.expire(db, limit=7)).count for _ in range(12)])

    async def decided(db: Database) -> list[str]:
        return [await outcome_of(db, vote=a_verdict(each)) for each in requests]

    async def moved(_: Database) -> None:
        await asyncio.to_thread(move_clock, askers.dsn, 3601)

    outcomes, _, _ = at_once(askers.dsn, decided, expired, moved)
    assert isinstance(outcomes, list)
    assert not askers.call(approvals.expire).is_skipped
    for request, outcome in zip(requests, outcomes, strict=True):
        shown = askers.row(request)
        assert shown.status == ("APPROVED" if outcome == "approved" else "EXPIRED"), outcome
        assert len(facts(askers.dsn, request.id)) == 1
        assert job_row(askers.dsn, shown.job_id)["task_state"] == "READY"
    assert_one_truth(askers.dsn)


def test_a_decision_and_a_cancel_leave_no_running_job_behind(askers: Askers) -> None:
    requests = [askers.asked() for _ in range(ROUNDS)]
    owners = [askers.row(each).job_id for each in requests]

    def cancelling(job_id: UUID) -> Callable[[Database], Coroutine[Any, Any, Any]]:
        return lambda db: jobs.cancel(db, job_id, by="li", reason="stop")

    found: list[Any] = at_once(
        askers.dsn, *map(decider, requests), *(cancelling(each) for each in owners)
    )
    assert not [each for each in found if isinstance(each, BaseException)]
    for request, job_id, ruling in zip(requests, owners, found[:ROUNDS], strict=True):
        assert job_row(askers.dsn, job_id)["status"] == "CANCELLED"
        status = askers.row(request).status
        assert status == ("APPROVED" if ruling == "approved" else "CANCELLED")
    assert_one_truth(askers.dsn)


def test_decision_during_suspension_always_resumes_the_job(askers: Askers) -> None:
    """It awaits one of two; that decision comes before, amid or after its suspension."""
    sleepers = []
    for _ in range(ROUNDS):
        first, second = a_request(key="a"), a_request(key="b")
        job_id = askers.ask(first, second)
        askers.decide(first)
        sleepers.append((askers.claim(job_id), second))

    def sleeping(claim: Any, request: Any) -> Callable[[Database], Coroutine[Any, Any, Any]]:
        operation = suspension(claim, awaited=(request.id,))
        return lambda db: tasks.suspend(db, pod_id=askers.pod_id, operations=[operation])

    pairs = [(sleeping(claim, second), decider(second)) for claim, second in sleepers]
    found: list[Any] = at_once(askers.dsn, *(call for pair in pairs for call in pair))
    assert not [each for each in found if isinstance(each, BaseException)]
    for claim, second in sleepers:
        assert askers.row(second).status == "APPROVED"
        row = job_row(askers.dsn, claim.lease.job_id)
        goes_on = row["task_state"] == "READY" or row["status"] == "RETRY"
        assert goes_on, f"{row['status']} with task {row['task_state']}"


def locks_waited_for(dsn: str) -> int:
    """How many sessions of this database wait for a lock."""
    query = """
        SELECT count(*) AS n FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'
    """
    return int(sql(dsn, query)[0]["n"])


async def until_waiting(dsn: str, count: int) -> None:
    """Wait until a number of sessions wait for a lock."""
    what = f"{count} sessions that wait for a lock"
    await asyncio.to_thread(eventually, lambda: locks_waited_for(dsn) == count, what=what)


def behind_a_lock(
    dsn: str, lock: str, first: Callable[[Database], Any], second: Callable[[Database], Any]
) -> list[Any]:
    """Hold a lock until the first call waits for it and the second one is under way, too."""

    async def run() -> list[Any]:
        profile = Profile(dsn=dsn, hot_path=True, connections_max=1)
        opened = [await open_database(profile, rng=seeded_random()) for _ in range(2)]
        holder = await asyncpg.connect(dsn)
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute(lock)
        begun = [asyncio.ensure_future(first(opened[0]))]
        await until_waiting(dsn, 1)
        begun.append(asyncio.ensure_future(second(opened[1])))
        await until_waiting(dsn, 2)
        await transaction.rollback()
        ended = await asyncio.gather(*begun, return_exceptions=True)
        for db in opened:
            await db.close()
        holder.terminate()
        return ended

    return run_asyncio(run)


@pytest.mark.parametrize("is_suspension_first", [True, False])
def test_decision_during_a_suspension_is_not_missed(
    askers: Askers,
    is_suspension_first: bool,
) -> None:
    """Both are held up at the job's row, in either order; neither may miss the other."""
    first, second = a_request(key="a"), a_request(key="b")
    job_id = askers.ask(first, second)
    askers.decide(first)
    claim = askers.claim(job_id)
    operation = suspension(claim, awaited=(second.id,))

    async def sleep(db: Database) -> set[UUID]:
        return await tasks.suspend(db, pod_id=askers.pod_id, operations=[operation])

    calls = (sleep, decider(second)) if is_suspension_first else (decider(second), sleep)
    lock = f"SELECT FROM cortex.job_record WHERE id = '{job_id}' FOR UPDATE"
    found = behind_a_lock(askers.dsn, lock, *calls)
    assert not [each for each in found if isinstance(each, BaseException)], found
    row = job_row(askers.dsn, job_id)
    assert row["task_state"] == "READY" or row["status"] == "RETRY", row["status"]


def test_successor_replaces_a_job_that_is_being_released(askers: Askers) -> None:
    """A cancelled job that kept its task would stop every claim."""
    request = a_request()
    job_id = askers.ask(request, job_key="k")
    successor = a_submission(job_key="k")
    lock = f"SELECT FROM cortex.job_record WHERE id = '{job_id}' FOR UPDATE"
    found = behind_a_lock(
        askers.dsn, lock, decider(request), lambda db: jobs.submit(db, [successor])
    )
    assert found == ["approved", Submitted(new=frozenset({successor.id}))], found
    row = job_row(askers.dsn, job_id)
    assert (row["status"], row["task_state"]) == ("CANCELLED", None)
    assert askers.claim(successor.id).lease.attempt == 1


def test_successor_replaces_a_job_that_is_being_suspended(
    askers: Askers,
) -> None:
    """A waiting job whose key belongs to another could never be resumed."""
    claim, request = askers.claimed(job_key="k"), a_request()
    job_id = claim.lease.job_id
    operation = suspension(claim, request)
    successor = a_submission(job_key="k")

    async def sleep(db: Database) -> set[UUID]:
        return await tasks.suspend(db, pod_id=askers.pod_id, operations=[operation])

    lock = f"SELECT FROM cortex.job_record WHERE id = '{job_id}' FOR UPDATE"
    found = behind_a_lock(askers.dsn, lock, sleep, lambda db: jobs.submit(db, [successor]))
    assert found == [{job_id}, Submitted(new=frozenset({successor.id}))]
    row = job_row(askers.dsn, job_id)
    assert (row["status"], row["task_state"]) == ("CANCELLED", None)
    assert "is void" in askers.refused(request).message
    assert askers.claim(successor.id).lease.attempt == 1


def test_expiry_skips_locked_jobs_and_returns_to_them(askers: Askers) -> None:
    """A locked job does not hold up the others, and is not forgotten."""
    held, other = askers.asked(), askers.asked()
    job_id = askers.row(held).job_id
    move_clock(askers.dsn, 3601)

    async def run() -> None:
        holder = await asyncpg.connect(askers.dsn)
        async with holder.transaction():
            await holder.execute("SELECT FROM cortex.job_record WHERE id = $1 FOR UPDATE", job_id)
            assert (await asyncio.to_thread(askers.call, approvals.expire)).count == 1
        await holder.close()

    run_asyncio(run)
    assert askers.row(held).status == "PENDING"
    assert askers.row(other).status == "EXPIRED"
    assert askers.call(approvals.expire).count == 1


def test_the_expiry_does_not_meddle_with_a_suspension_under_way(askers: Askers) -> None:
    first, second = a_request(key="a"), a_request(key="b", on_expiry="tell")
    job_id = askers.ask(first, second)
    askers.decide(first)
    claim = askers.claim(job_id)
    move_clock(askers.dsn, 3601)

    async def run() -> None:
        holder = await asyncpg.connect(askers.dsn)
        async with holder.transaction():  # as a suspension does first
            await holder.execute(
                "SELECT FROM cortex_worker.task WHERE job_id = $1 FOR UPDATE", job_id
            )
            assert (await asyncio.to_thread(askers.call, approvals.expire)).count == 0
        await holder.close()

    run_asyncio(run)
    askers.suspend(claim, awaited=(second.id,))
    assert job_row(askers.dsn, job_id)["status"] == "WAITING_FOR_APPROVAL"
    assert askers.call(approvals.expire).count == 1
    assert job_row(askers.dsn, job_id)["task_state"] == "READY"


def test_batches_that_overlap_are_decided_by_one_person_each(askers: Askers) -> None:
    """In opposite orders, with jobs that asked for two: no deadlock outlasts the retries."""
    pairs = [(a_request(key="a"), a_request(key="b")) for _ in range(10)]
    for pair in pairs:
        askers.ask(*pair)
    one = [a_verdict(first, by=user("ana")) for first, _ in pairs]
    other = [a_verdict(second, by=user("li")) for _, second in reversed(pairs)]
    rival = [a_verdict(first, by=user("kim")) for first, _ in reversed(pairs)]

    def deciding(verdicts: Any) -> Callable[[Database], Coroutine[Any, Any, Any]]:
        return lambda db: approvals.decide(db, verdicts)

    found: list[Any] = at_once(askers.dsn, *map(deciding, (one, other, rival)))
    assert isinstance(found[1], list), found[1]
    winners = [each for each in (found[0], found[2]) if isinstance(each, list)]
    losers = [each for each in (found[0], found[2]) if isinstance(each, ConflictError)]
    assert (len(winners), len(losers)) == (1, 1), found
    by = {askers.row(first).decided_by for first, _ in pairs}
    assert len(by) == 1
