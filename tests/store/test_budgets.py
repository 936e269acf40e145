"""Budgets: no call begins past a limit, however many ask at once, and none is booked twice."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.budget import Budget, Estimate, Period, Scope, Unit
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import Claim, Release, Suspend
from cortex.postgres.database import Database, Profile, open_database
from cortex.postgres.session import Session
from cortex.store import budgets, facts, specs, tasks
from cortex.store.budgets import FIRST, Bill, BudgetCall, BudgetChange, BudgetVerdict
from cortex.store.specs import SpecKind
from tests.support.eventually import eventually
from tests.support.people import user
from tests.support.records.messages import announced, subscribe
from tests.support.records.rows import job_row, move_clock, new_id, seeded_random
from tests.support.servers.postgres import database_of, run_asyncio, sql

TENANT_DAY = Budget(scope=Scope.TENANT, subject="default", unit=Unit.USD, period=Period.DAY)
TENANT_RUN = Budget(scope=Scope.TENANT, subject="default", unit=Unit.USD, period=Period.RUN)
TOKENS_DAY = Budget(scope=Scope.TENANT, subject="default", unit=Unit.TOKENS, period=Period.DAY)
DAY_S = 86_400.0


def an_estimate(usd: str | None = "1", tokens: int = 100, **fields: Any) -> Estimate:
    cost = None if usd is None else Decimal(usd)
    half = None if cost is None else cost / 2
    defaults = {"tokens": tokens, "cost_usd": cost, "input_tokens": 30, "input_usd": half}
    return Estimate(**defaults | fields)


def a_call(claim: Claim, pod_id: UUID, usd: str | None = "1", **fields: Any) -> BudgetCall:
    defaults: dict[str, Any] = {
        "id": new_id(),
        "lease": claim.lease,
        "pod_id": pod_id,
        "lineage_id": claim.lease.job_id,
        "tenant": "default",
        "agent_id": claim.agent_id,
        "agent_version": claim.agent_version,
        "step": "turn-1",
        "model": "scripted",
        "estimate": an_estimate(usd),
    }
    return BudgetCall(**defaults | fields)


def limit(store: Session, budget: Budget, amount: str | int) -> None:
    store(budgets.put, budget, limit=Decimal(amount), by=user("ana"), reason="test")


def a_bill(call: BudgetCall, usd: Decimal | str | None, tokens: int = 10) -> Bill:
    return Bill(
        call_id=call.id,
        job_id=call.lease.job_id,
        tokens=tokens,
        cost_usd=None if usd is None else Decimal(usd),
        data={"outcome": "kept", "usage": {"input_tokens": tokens}},
    )


def settle(store: Session, call: BudgetCall, usd: str | None, tokens: int = 10) -> bool:
    return store(budgets.settle, [a_bill(call, usd, tokens)]) == 1


def spend(store: Session, call: BudgetCall, usd: str) -> None:
    assert store(budgets.reserve, call).word == "granted"
    assert settle(store, call, usd)


def figures(change: BudgetChange) -> tuple[Any, Any, int]:
    return change.before, change.after, change.woken_count


def uses(dsn: str) -> list[tuple[Any, Any]]:
    """(spent, reserved) of each window, in order."""
    query = "SELECT spent, reserved FROM cortex.budget_use ORDER BY budget_id, window_key"
    return [(row["spent"], row["reserved"]) for row in sql(dsn, query)]


def costs(dsn: str) -> list[tuple[str, Any]]:
    query = "SELECT data, amount FROM cortex.fact WHERE type = 'cost' ORDER BY id"
    return [(json.loads(row["data"])["outcome"], row["amount"]) for row in sql(dsn, query)]


# --- one call


def test_without_budgets_a_call_is_only_recorded(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    call = a_call(running(), pod_id, None)
    assert store(budgets.reserve, call).word == "granted"
    assert settle(store, call, None)
    (fact,) = store(facts.of_job, call.lease.job_id)
    assert (fact.source, fact.step, fact.attempt) == ("llm:scripted", "turn-1", 1)
    assert (fact.amount, fact.currency, fact.pod_id) == (None, None, pod_id)
    assert fact.data["model"] == "scripted"
    assert uses(database) == []


def test_room_is_taken_before_the_call_and_trued_up_after_it(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_DAY, 10)
    limit(store, TOKENS_DAY, 1000)
    call = a_call(running(), pod_id, "2.5")
    assert store(budgets.reserve, call).word == "granted"
    assert store(budgets.reserve, call).word == "granted"  # its reply was lost
    assert uses(database) == [(0, Decimal("2.5")), (0, 100)]
    assert settle(store, call, "0.75", tokens=40)
    assert not settle(store, call, "0.75", tokens=40)
    assert uses(database) == [(Decimal("0.75"), 0), (40, 0)]
    assert costs(database) == [("kept", Decimal("0.75"))]


def test_each_budget_counts_only_its_own_scope(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    spec = {"name": "researcher", "model": "m", "system": "s"}
    store(specs.apply, SpecKind.AGENT, new_id=new_id(), name="researcher", spec=spec, by="ana")
    claim = running(agent="researcher", tenant="acme:eu")
    job = str(claim.lease.job_id)
    for scope, subject in (
        (Scope.AGENT, "researcher"),
        (Scope.TENANT, "acme:eu"),
        (Scope.JOB, job),
        (Scope.AGENT, "writer"),
        (Scope.TENANT, "researcher"),
        (Scope.JOB, str(new_id())),
    ):
        limit(store, Budget(scope=scope, subject=subject, unit=Unit.USD, period=Period.RUN), 5)
    call = a_call(claim, pod_id, tenant="acme:eu")
    assert store(budgets.reserve, call).word == "granted"
    found = {row.name: row.reserved for row in store(budgets.page)}
    touched = {name for name, reserved in found.items() if reserved}
    assert touched == {"agent:researcher:usd:run", "tenant:acme:eu:usd:run", f"job:{job}:usd:run"}


def test_a_spent_budget_stops_the_next_call(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_RUN, 1)
    limit(store, TOKENS_DAY, 1000)
    subscribe(database, "budget.*")
    claim = running()
    spend(store, a_call(claim, pod_id), "0.99")
    # Nearly spent: one more may begin, alone, although its estimate is larger than what is left.
    last, other = a_call(claim, pod_id), a_call(claim, pod_id, "0.001")
    assert store(budgets.reserve, last).word == "granted"
    assert store(budgets.reserve, other) == BudgetVerdict(
        word="busy",
        budget="tenant:default:usd:run",
        unit=Unit.USD,
        spent=Decimal("0.99"),
        limit=Decimal(1),
        wait_s=None,
        is_own=True,
    )
    settle(store, last, "0.03")
    answer = store(budgets.reserve, other)
    assert (answer.word, answer.spent, answer.limit) == ("spent", Decimal("1.02"), Decimal(1))
    assert uses(database)[1] == (20, 0)  # a refused call holds nothing anywhere
    # Another run has the limit to itself.
    spend(store, a_call(running(), pod_id), "0.5")
    ((topic, key, payload),) = announced(database)
    assert (topic, key, payload["limit"]) == ("budget.spent", "tenant:default:usd:run", 1)


def test_a_day_ends_at_midnight_in_utc(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_DAY, 1)
    claim = running()
    spend(store, a_call(claim, pod_id), "1")
    answer = store(budgets.reserve, a_call(claim, pod_id))
    now = sql(database, "SELECT extract(epoch FROM cortex.now()) AS s")[0]["s"]
    assert answer.word == "spent"
    assert answer.wait_s is not None
    assert answer.wait_s == pytest.approx(DAY_S - float(now) % DAY_S, abs=30)
    move_clock(database, answer.wait_s - 60)
    assert store(budgets.reserve, a_call(claim, pod_id)).word == "spent"
    move_clock(database, answer.wait_s + 60)
    spend(store, a_call(claim, pod_id), "0.5")


def test_a_budget_in_money_needs_a_price(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_RUN, 100)
    call = a_call(running(), pod_id, None)
    answer = store(budgets.reserve, call)
    assert (answer.word, answer.budget) == ("unpriced", "tenant:default:usd:run")
    store(budgets.remove, "tenant:default:usd:run", by=user("ana"), reason="")
    limit(store, TOKENS_DAY, 100)
    assert store(budgets.reserve, call).word == "granted"


# --- many calls


class Fleet:
    """Calls that start, end or die at random; keeps its own books, apart from the system's."""

    def __init__(self, db: Database, claims: list[Claim], pod_id: UUID, rng: Random) -> None:
        self.db, self.claims, self.pod_id, self.rng = db, claims, pod_id, rng
        self.words: Counter[str] = Counter()
        self.spent: dict[UUID, Decimal] = dict.fromkeys((c.lease.job_id for c in claims), Decimal())
        self.largest = Decimal(0)

    async def session(self, number: int) -> None:
        claim = self.claims[number % len(self.claims)]
        for _ in range(12):
            most = Decimal(self.rng.randint(1, 900)) / 1000
            call = a_call(claim, self.pod_id, estimate=an_estimate(str(most)))
            self.words[word := (await budgets.reserve(self.db, call)).word] += 1
            if word == "granted":
                await self.end(call, most)

    async def end(self, call: BudgetCall, most: Decimal) -> None:
        for _ in range(self.rng.randrange(4)):  # the others continue meanwhile
            await budgets.page(self.db)
        if is_killed := self.rng.random() < 0.1:
            used = most / 2  # what `an_estimate` takes for the prompt
        else:
            used = round(most * Decimal(self.rng.random()), 8)
        self.largest = max(self.largest, used)
        self.spent[call.lease.job_id] += used
        if not is_killed:
            pays = [
                budgets.settle(self.db, [a_bill(call, used)])
                for _ in range(self.rng.choice((1, 1, 1, 2)))
            ]
            assert sum(await asyncio.gather(*pays)) == 1


@pytest.mark.parametrize("day, run", [("5", "100"), ("5", "1.5"), ("100", "1"), ("0.5", "0.4")])
def test_calls_at_once_cannot_overspend_by_more_than_one(  # noqa: PLR0917 -- pytest passes them by name
    store: Session,
    database: str,
    running: Callable[..., Claim],
    pod_id: UUID,
    day: str,
    run: str,
) -> None:
    limit(store, TENANT_RUN, run)
    limit(store, TENANT_DAY, day)
    claims = [running() for _ in range(5)]
    rng = seeded_random()

    async def storm() -> Fleet:
        profile = Profile(dsn=database, hot_path=True, connections_max=8)
        db = await open_database(profile, rng=rng)
        fleet = Fleet(db, claims, pod_id, rng)
        try:
            await asyncio.gather(*(fleet.session(n) for n in range(24)))
        finally:
            await db.close()
        return fleet

    fleet = run_asyncio(storm)
    ends = [Release(lease=claim.lease, outcome="failed") for claim in claims]
    store(tasks.release, pod_id=pod_id, operations=ends)
    store(budgets.sweep, limit=1000)
    assert fleet.words["granted"], fleet.words
    assert fleet.words["spent"] + fleet.words["busy"] > 1, fleet.words
    *runs, (spent, reserved) = uses(database)
    assert reserved == 0
    assert spent == sum(fleet.spent.values()) == sum(cost or 0 for _, cost in costs(database))
    assert spent <= Decimal(day) + fleet.largest
    assert {reserved for _, reserved in runs} <= {0}
    assert sorted(s for s, _ in runs if s) == sorted(s for s in fleet.spent.values() if s)
    assert max(spent for spent, _ in runs) <= Decimal(run) + fleet.largest
    assert sql(database, "SELECT FROM cortex.reservation") == []


def test_one_of_many_waiting_calls_gets_the_last_room(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_DAY, 1)
    claim = running()
    spend(store, a_call(claim, pod_id), "0")  # the day has begun: its row is there to be locked

    async def race() -> Counter[str]:
        profile = Profile(dsn=database, hot_path=True, connections_max=8)
        db = await open_database(profile, rng=seeded_random())
        first = await profile.connect()
        try:
            async with first.transaction():
                mine = await budgets.reserve(db.bound(first), a_call(claim, pod_id, "0.1"))
                assert mine.word == "granted"
                calls = [a_call(claim, pod_id, "0.6") for _ in range(8)]
                asking = [asyncio.create_task(budgets.reserve(db, call)) for call in calls]
                await asyncio.to_thread(until_waiting_for_locks, database, len(calls))
            return Counter([(await each).word for each in asking])
        finally:
            await first.close()
            await db.close()

    assert run_asyncio(race) == {"granted": 1, "busy": 7}


def until_waiting_for_locks(dsn: str, count: int) -> None:
    query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = $1"
    eventually(lambda: len(sql(dsn, query, database_of(dsn))) == count, what="all wait for a lock")


# --- limits and who waits for them


def wake_all(store: Session, *, limit: int) -> list[int]:
    """Look at all jobs that wait, page by page; return how many each page resumed."""
    part = store(budgets.wake_next, limit=limit, after=FIRST)
    counts = [part.count]
    while part.after is not None:
        part = store(budgets.wake_next, limit=limit, after=part.after)
        counts.append(part.count)
    return counts


def wait_for(store: Session, pod_id: UUID, claim: Claim, name: str, delay_s: float | None) -> UUID:
    """Let a job wait for a budget, as a pod does when it is spent."""
    suspend = Suspend(
        lease=claim.lease, delay_s=delay_s, is_counted=False, waiting_on=f"budget:{name}"
    )
    assert store(tasks.suspend, pod_id=pod_id, operations=[suspend])
    return claim.lease.job_id


@pytest.mark.parametrize("delay_s, queue", [(None, None), (None, "q"), (3600.0, None)])
def test_raise_resumes_only_jobs_that_have_room(  # noqa: PLR0917 -- pytest passes them by name
    store: Session,
    database: str,
    running: Callable[..., Claim],
    claim: Callable[..., list[Claim]],
    pod_id: UUID,
    delay_s: float | None,
    queue: str | None,
) -> None:
    limit(store, TENANT_RUN, 1)
    waiting, far, other = running(queue_name=queue), running(), running()
    spend(store, a_call(waiting, pod_id), "1.2")
    spend(store, a_call(far, pod_id), "7")
    first = wait_for(store, pod_id, waiting, TENANT_RUN.name, delay_s)
    wait_for(store, pod_id, far, TENANT_RUN.name, delay_s)
    wait_for(store, pod_id, other, "tenant:other:usd:run", delay_s)
    (row,) = store(budgets.page)
    assert (row.waiting_jobs, row.spent, row.limit_amount) == (2, Decimal(7), Decimal(1))
    change = store(
        budgets.raise_limit, TENANT_RUN.name, to=Decimal(5), by=user("bo"), reason="go on"
    )
    assert figures(change) == (1, 5, 1)
    assert store(budgets.wake, [TENANT_RUN.name]) == 0
    job = job_row(database, first)
    assert job["task_state"] == ("QUEUED" if queue else "READY")
    assert job["worker_job_id"] is not None
    (again,) = claim(pod_id)
    assert (again.lease.job_id, again.lease.attempt, again.attempts_spent) == (first, 2, 1)
    assert store(budgets.reserve, a_call(again, pod_id)).word == "granted"
    (fact,) = store(facts.page, types=["lifecycle"], since_s=60, limit=1)
    assert (fact.subtype, fact.source) == ("budget_raised", f"budget:{TENANT_RUN.name}")
    assert fact.data == {"by": "bo", "reason": "go on", "before": 1, "after": 5}


def test_job_woken_from_a_budget_keeps_its_spent_attempts(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    for _ in range(2):
        wait_for(store, pod_id, running(), "tenant:gone:usd:run", None)
    sql(database, "UPDATE cortex.job_record SET attempts_kept = 2")
    assert store(budgets.wake_next, limit=1, after=FIRST).count == 1
    assert store(budgets.wake, ["tenant:gone:usd:run"]) == 1
    tasks_made = sql(database, "SELECT attempts_spent FROM cortex_worker.task")
    assert [row["attempts_spent"] for row in tasks_made] == [2, 2]


def test_raise_must_exceed_the_limit_of_an_existing_budget(store: Session) -> None:
    limit(store, TENANT_RUN, 5)
    for to in ("5", "4"):
        with pytest.raises(ConflictError, match=r"is \$5.00 already"):
            store(budgets.raise_limit, TENANT_RUN.name, to=Decimal(to), by=user("ana"), reason="")
    with pytest.raises(NotFoundError, match="job:x:usd:run"):
        store(budgets.raise_limit, "job:x:usd:run", to=Decimal(1), by=user("ana"), reason="")
    with pytest.raises(NotFoundError, match="job:x:usd:run"):
        store(budgets.remove, "job:x:usd:run", by=user("ana"), reason="")


def test_removed_budget_resumes_all_its_jobs(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_RUN, 0)
    claims = [running() for _ in range(3)]
    call = a_call(claims[0], pod_id)
    assert store(budgets.reserve, call).word == "spent"
    for each in claims[1:]:
        wait_for(store, pod_id, each, TENANT_RUN.name, None)
    change = store(budgets.remove, TENANT_RUN.name, by=user("ana"), reason="enough of it")
    assert figures(change) == (0, None, 2)
    assert store(budgets.reserve, call).word == "granted"
    assert uses(database) == []
    (fact, *_) = store(facts.page, types=["lifecycle"], since_s=60)
    assert fact.subtype == "budget_removed"


def test_a_budget_removed_during_a_call_does_not_disturb_it(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_DAY, 5)
    limit(store, TENANT_RUN, 5)
    call = a_call(running(), pod_id)
    assert store(budgets.reserve, call).word == "granted"
    store(budgets.remove, TENANT_DAY.name, by=user("ana"), reason="")
    limit(store, TENANT_DAY, 5)
    assert settle(store, call, "2")
    assert {row.name: row.spent for row in store(budgets.page)} == {
        TENANT_DAY.name: 0,
        TENANT_RUN.name: 2,
    }


def test_jobs_that_began_waiting_during_a_raise_are_woken(
    store: Session, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_RUN, 1)
    for name in (TENANT_RUN.name, "tenant:gone:usd:day", "tenant:gone:usd:run"):
        wait_for(store, pod_id, running(), name, 60.0 if name.endswith("day") else None)
    blocked = Suspend(
        lease=running().lease, delay_s=9.0, is_counted=False, waiting_on="llm:scripted"
    )
    store(tasks.suspend, pod_id=pod_id, operations=[blocked])
    assert wake_all(store, limit=1) == [1, 1, 1, 0]
    assert wake_all(store, limit=1) == [0]


def test_many_jobs_resume_in_batches(
    store: Session,
    database: str,
    running: Callable[..., Claim],
    pod_id: UUID,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "WAKE_BATCH", 4)
    limit(store, TENANT_DAY, 0)
    for _ in range(10):
        wait_for(store, pod_id, running(), TENANT_DAY.name, None)
    change = store(budgets.put, TENANT_DAY, limit=Decimal(1), by=user("ana"), reason="")
    assert figures(change) == (0, 1, 4)
    assert store(budgets.wake, [TENANT_DAY.name]) == 4
    assert wake_all(store, limit=1) == [1, 1, 0]
    assert len(sql(database, "SELECT FROM cortex_worker.task")) == 10


def test_declared_limit_does_not_undo_a_persons_change(store: Session) -> None:
    agent = Budget(scope=Scope.AGENT, subject="a", unit=Unit.TOKENS, period=Period.RUN)

    def declare(amount: int) -> bool:
        limit = Decimal(amount)
        change = store(budgets.ensure, agent, limit=limit, by=user("ana"), reason="agent a")
        return change is not None

    def now() -> Decimal:
        return Decimal(store(budgets.show, agent.name).limit_amount)

    assert declare(100)
    assert not declare(100)
    assert now() == Decimal(100)
    store(budgets.raise_limit, agent.name, to=Decimal(500), by=user("bo"), reason="")
    assert not declare(100)
    assert now() == Decimal(500)
    assert declare(200)
    assert now() == Decimal(200)


def test_budgets_are_listed_by_name(store: Session) -> None:
    for subject in "cab":
        limit(store, Budget.parse(f"tenant:{subject}:usd:day"), 1)
    names = [row.name for row in store(budgets.page, limit=2)]
    assert names == ["tenant:a:usd:day", "tenant:b:usd:day"]
    assert [r.name for r in store(budgets.page, after=names[-1])] == ["tenant:c:usd:day"]


def test_the_run_that_spent_most_is_listed(
    store: Session, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_RUN, 10)
    limit(store, TENANT_DAY, 100)
    for usd in ("2", "7", "3"):
        spend(store, a_call(running(), pod_id), usd)
    found = {row.name: row.spent for row in store(budgets.page)}
    assert found == {TENANT_RUN.name: 7, TENANT_DAY.name: 12}
