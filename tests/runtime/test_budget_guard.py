"""The budget guard: calls wait for room, stop at a spent budget, and are booked once."""

from collections.abc import Awaitable, Callable, MutableMapping
from decimal import Decimal
from typing import Any

import pytest
import trio

from cortex.actors.runner import TickBudget
from cortex.domain.budget import Budget, Estimate, Period, Scope, Unit
from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.errors import RejectedError, UnavailableError
from cortex.domain.failure import Failure, FailureClass
from cortex.domain.job import Claim, Suspend
from cortex.domain.prices import LIST_PRICES
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller, Reservation
from cortex.runtime.calls import budget_guard as module
from cortex.runtime.calls import pending_settlements as unsettled_module
from cortex.runtime.calls.budget_guard import StoreBudgetGuard
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.maintenance.reconciler import Reconciler
from cortex.store import budgets, facts, pods, retries, tasks
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.people import user
from tests.support.records.factories import JOB_TYPE, Bench, a_pod
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import NoPause, job_row, new_id
from tests.support.servers.postgres import sql

Lines = list[MutableMapping[str, Any]]
RUN = Budget(scope=Scope.TENANT, subject="default", unit=Unit.USD, period=Period.RUN)
DAY = Budget(scope=Scope.TENANT, subject="default", unit=Unit.USD, period=Period.DAY)
USAGE = Usage(input_tokens=100, output_tokens=20)


class CountingPort(FaultyPort):
    """Counts the calls that are asked for."""

    asked = 0

    async def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.asked += method is budgets.reserve
        return await super().__call__(method, *args, **kwargs)


def a_purse(bench: Bench, unsettled: PendingSettlements | None = None) -> StoreBudgetGuard:
    return StoreBudgetGuard(
        bench.port,
        pod_id=bench.pod.id,
        new_id=new_id,
        unsettled=unsettled or PendingSettlements(bench.port),
        rng=bench.rng,
    )


def a_caller(claim: Claim) -> Caller:
    return Caller(
        lease=claim.lease,
        lineage_id=claim.lineage_id or claim.lease.job_id,
        tenant=claim.tenant,
        agent_id=None,
        agent_version=None,
        config_id=None,
        key="turn-1",
        prices=LIST_PRICES,
        call_s=60.0,
        idle_s=60.0,
        connect_s=10.0,
    )


async def limit(bench: Bench, budget: Budget, usd: str) -> None:
    await bench.port(budgets.put, budget, limit=Decimal(usd), by=user("ana"), reason="test")


async def reserve(
    budget_guard: StoreBudgetGuard, claim: Claim, usd: str | None = "1"
) -> Reservation:
    cost = None if usd is None else Decimal(usd)
    estimate = Estimate(tokens=100, cost_usd=cost, input_tokens=50, input_usd=cost)
    return await budget_guard.reserve(a_caller(claim), model="scripted", estimate=estimate)


async def settle(
    budget_guard: StoreBudgetGuard, reservation: Reservation, usd: str = "1", **fields: Any
) -> None:
    booked: dict[str, Any] = {"outcome": "kept", "took_s": 1.5, **fields}
    await budget_guard.settle(reservation, usage=USAGE, cost_usd=Decimal(usd), **booked)


def uses(dsn: str) -> list[tuple[Any, Any]]:
    query = "SELECT spent, reserved FROM cortex.budget_use ORDER BY budget_id, window_key"
    return [(row["spent"], row["reserved"]) for row in sql(dsn, query)]


async def test_failed_call_is_booked_with_its_failure(bench: Bench) -> None:
    (claim,) = await bench.claimed()
    budget_guard = a_purse(bench)
    failure = Failure(cls=FailureClass.TRANSIENT_APP, code="overloaded", message="busy")
    await settle(
        budget_guard, await reserve(budget_guard, claim), "0.25", outcome="failed", failure=failure
    )
    (fact,) = await bench.port(facts.of_job, claim.lease.job_id)
    assert (fact.amount, fact.currency) == (Decimal("0.25"), "USD")
    assert fact.data == {
        "model": "scripted",
        "outcome": "failed",
        "took_s": 1.5,
        "usage": USAGE.to_json(),
        "estimated": False,
        "code": "overloaded",
        "class": "TRANSIENT_APP",
    }


async def test_a_call_waits_while_another_one_holds_the_room(
    bench: Bench, database: str, nursery: trio.Nursery
) -> None:
    await limit(bench, DAY, "1.5")
    first, second = await bench.claimed(2)
    bench.port = port = CountingPort(bench.port)
    budget_guard = a_purse(bench)
    held = await reserve(budget_guard, first)
    got: list[Reservation] = []

    async def ask() -> None:
        got.append(await reserve(budget_guard, second))

    nursery.start_soon(ask)
    await eventually_async(lambda: port.asked > 3, what="it asks again")
    assert got == []
    await settle(budget_guard, held, "0.1")
    await eventually_async(lambda: got, what="it is let through")
    assert uses(database) == [(Decimal("0.1"), 1)]


async def test_a_spent_budget_per_run_waits_for_a_person(bench: Bench) -> None:
    await limit(bench, RUN, "1")
    (claim,) = await bench.claimed()
    budget_guard = a_purse(bench)
    await settle(budget_guard, await reserve(budget_guard, claim), "1.02")
    with pytest.raises(Suspended) as suspended:
        await reserve(budget_guard, claim)
    assert suspended.value.waiting_on == "budget:tenant:default:usd:run"
    assert suspended.value.reason == ("budget tenant:default:usd:run is spent: $1.02 of $1.00")
    assert suspended.value.delay_s is None


async def test_a_spent_day_waits_for_the_next_one(bench: Bench) -> None:
    await limit(bench, DAY, "0")
    (claim,) = await bench.claimed()
    with pytest.raises(Suspended) as suspended:
        await reserve(a_purse(bench), claim)
    assert suspended.value.delay_s is not None
    assert 0 < suspended.value.delay_s <= 86_400


async def test_a_model_without_a_price_is_refused_where_money_counts(bench: Bench) -> None:
    (claim,) = await bench.claimed()
    budget_guard = a_purse(bench)
    await reserve(budget_guard, claim, None)
    await limit(bench, DAY, "100")
    with pytest.raises(RejectedError, match="the price of model 'scripted' is unknown") as found:
        await reserve(budget_guard, claim, None)
    assert "set the price of 'scripted'" in str(found.value.hint)


async def test_a_stale_attempt_makes_no_call(bench: Bench) -> None:
    (claim,) = await bench.claimed()
    await bench.port(tasks.sweep, silent_s=-1.0, limit=1, rng=NoPause())
    with pytest.raises(LeaseLost):
        await reserve(a_purse(bench), claim)


@pytest.mark.parametrize("fault", ["refuse", "lose_request", "lose_reply"])
async def test_reservation_and_settlement_survive_an_outage_once(
    bench: Bench, database: str, fault: str
) -> None:
    await limit(bench, DAY, "10")
    (claim,) = await bench.claimed()
    budget_guard = a_purse(bench)
    getattr(bench.port, fault)(budgets.reserve)
    reservation = await reserve(budget_guard, claim)
    assert uses(database) == [(0, 1)]
    getattr(bench.port, fault)(budgets.settle)
    await settle(budget_guard, reservation, "0.5")
    assert uses(database) == [(Decimal("0.5"), 0)]
    assert len(await bench.port(facts.of_job, claim.lease.job_id)) == 1


async def test_a_cancelled_call_is_booked_all_the_same(bench: Bench, database: str) -> None:
    await limit(bench, DAY, "10")
    (claim,) = await bench.claimed()
    budget_guard = a_purse(bench)
    reservation = await reserve(budget_guard, claim)
    bench.port.refuse(budgets.settle)
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        finally:
            with trio.CancelScope(shield=True):
                await settle(budget_guard, reservation, "0.5", outcome="cancelled")
    assert uses(database) == [(Decimal("0.5"), 0)]


async def a_known_cost_that_waits(
    bench: Bench, unsettled: PendingSettlements, monkeypatch: pytest.MonkeyPatch
) -> Claim:
    """Make a call of $2 at most that took $0.5, and during whose end the database goes away."""
    monkeypatch.setattr(module, "SETTLE_WITHIN_S", 0.2)
    await limit(bench, DAY, "10")
    await bench.port(pods.register, bench.pod)
    (claim,) = await bench.claimed()
    budget_guard = a_purse(bench, unsettled)
    reservation = await reserve(budget_guard, claim, "2")
    refuse_long(bench)
    await settle(budget_guard, reservation, "0.5")
    assert unsettled.count == 1
    return claim


def refuse_long(bench: Bench) -> None:
    for _ in range(20):
        bench.port.refuse(budgets.settle)


async def until_it_is_back(bench: Bench, tick: Callable[[], Awaitable[Any]]) -> None:
    while bench.port.faults_left:
        with pytest.raises(UnavailableError):
            await tick()


async def test_a_known_cost_is_booked_once_the_database_is_back(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsettled = PendingSettlements(bench.port)
    claim = await a_known_cost_that_waits(bench, unsettled, monkeypatch)
    bookkeeper = Reconciler(bench.port, unsettled=unsettled, rng=bench.rng)
    await until_it_is_back(bench, lambda: bookkeeper.tick(TickBudget()))
    assert uses(database) == [(0, 2)]
    await bookkeeper.tick(TickBudget())
    assert uses(database) == [(Decimal("0.5"), 0)]
    (fact,) = await bench.port(facts.of_job, claim.lease.job_id)
    assert (fact.amount, fact.data["outcome"]) == (Decimal("0.5"), "kept")
    assert unsettled.count == 0


async def test_no_sweep_is_faster_than_the_pod_that_knows_the_cost(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsettled = PendingSettlements(bench.port)
    await a_known_cost_that_waits(bench, unsettled, monkeypatch)
    await until_it_is_back(bench, unsettled.settle)
    other = Reconciler(bench.port, unsettled=PendingSettlements(bench.port), rng=bench.rng)
    await other.tick(TickBudget())  # its attempt still runs
    await bench.port(tasks.sweep, silent_s=-1.0, limit=1, rng=NoPause())
    await other.tick(TickBudget())  # it is over
    assert uses(database) == [(0, 2)]
    await bench.port(retries.due)
    (again,) = await bench.claim()
    await reserve(a_purse(bench, unsettled), again, "1")  # nor is the next attempt
    assert uses(database) == [(Decimal("0.5"), 1)]


async def test_a_settlement_that_is_cut_off_is_booked_later(bench: Bench, database: str) -> None:
    await limit(bench, DAY, "10")
    (claim,) = await bench.claimed()
    unsettled = PendingSettlements(bench.port)
    budget_guard = a_purse(bench, unsettled)
    reservation = await reserve(budget_guard, claim, "2")
    refuse_long(bench)
    with trio.move_on_after(0.1):
        await settle(budget_guard, reservation, "0.5")
    await until_it_is_back(bench, unsettled.settle)
    assert await unsettled.settle() == 1
    assert uses(database) == [(Decimal("0.5"), 0)]


async def test_reservation_with_a_lost_reply_is_released(bench: Bench, database: str) -> None:
    await limit(bench, DAY, "10")
    (claim,) = await bench.claimed()
    unsettled = PendingSettlements(bench.port)
    bench.port.lose_reply(budgets.reserve)
    for _ in range(50):
        bench.port.refuse(budgets.reserve)
    async with trio.open_nursery() as attempt:
        attempt.start_soon(reserve, a_purse(bench, unsettled), claim, "2")
        await eventually_async(lambda: bench.port.faults_left < 50, what="it asks again")
        attempt.cancel_scope.cancel()
    assert uses(database) == [(0, 2)]
    assert await unsettled.settle() == 1
    assert uses(database) == [(0, 0)]


async def test_unsettled_costs_over_the_limit_are_logged_and_swept(
    bench: Bench, database: str, log_lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SETTLE_WITHIN_S", 0.0)
    monkeypatch.setattr(unsettled_module, "UNSETTLED_MAX", 1)
    await limit(bench, DAY, "10")
    (claim,) = await bench.claimed()
    unsettled = PendingSettlements(bench.port)
    budget_guard = a_purse(bench, unsettled)
    reservations = [await reserve(budget_guard, claim, "2") for _ in range(2)]
    for reservation, usd in zip(reservations, ("0.5", "0.25"), strict=True):
        bench.port.refuse(budgets.settle)
        await settle(budget_guard, reservation, usd)
    assert [line["cost_usd"] for line in log_lines if line["log_level"] == "error"] == ["0.25"]


async def test_a_bill_that_is_refused_does_not_hold_up_the_others(
    bench: Bench, database: str, log_lines: Lines
) -> None:
    await limit(bench, DAY, "10")
    (claim,) = await bench.claimed()
    unsettled = PendingSettlements(bench.port)
    for usd in ("1e30", "0.5"):  # the first is more than a column holds
        reservation = await reserve(a_purse(bench), claim, "2")
        unsettled.keep(
            budgets.Bill(
                call_id=reservation.id,
                job_id=claim.lease.job_id,
                tokens=1,
                cost_usd=Decimal(usd),
                data={"outcome": "kept"},
            )
        )
    assert await unsettled.settle() == 1
    assert unsettled.count == 0
    assert uses(database) == [(Decimal("0.5"), 2)]
    assert log_lines[-1]["event"] == "cost not booked, swept later"


async def test_calls_of_one_job_wait_for_each_other_but_suspend_behind_others(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    await limit(bench, DAY, "10")
    claim, other = await bench.claimed(2)
    bench.port = port = CountingPort(bench.port)
    budget_guard = a_purse(bench)
    held = await reserve(budget_guard, claim, "6")
    with pytest.raises(Suspended):
        await reserve(budget_guard, other, "6")
    got: list[Reservation] = []

    async def sibling() -> None:
        got.append(await reserve(budget_guard, claim, "6"))

    asked = port.asked
    nursery.start_soon(sibling)
    await eventually_async(lambda: port.asked > asked + 3, what="it asks again and again")
    await settle(budget_guard, held, "1")
    await eventually_async(lambda: got, what="it is let through")
    assert uses(database) == [(1, 6)]


async def test_call_of_a_killed_pod_is_booked_as_lost(bench: Bench, database: str) -> None:
    """A kill leaves a reservation that its owner will not settle, and a job to take over."""
    await limit(bench, DAY, "3")
    dead = a_pod()
    await bench.submit()
    await bench.port(tasks.promote)
    (claim,) = await bench.port(tasks.claim, pod_id=dead.id, types=[JOB_TYPE], limit=1)
    killed = StoreBudgetGuard(
        bench.port,
        pod_id=dead.id,
        new_id=new_id,
        unsettled=PendingSettlements(bench.port),
        rng=bench.rng,
    )
    await reserve(killed, claim, "2")
    await bench.port(tasks.sweep, silent_s=-1.0, limit=1, rng=NoPause())
    await bench.port(retries.due)
    (again,) = await bench.claim()
    budget_guard = a_purse(bench)
    await settle(budget_guard, await reserve(budget_guard, again, "1"), "0.5")
    assert uses(database) == [(Decimal("2.5"), 0)]
    found = await bench.port(facts.of_job, claim.lease.job_id)
    costs = [fact.data["outcome"] for fact in found if fact.type == "cost"]
    assert costs == ["lost", "kept"]


async def test_reconciler_resumes_a_job_that_missed_the_raise(bench: Bench, database: str) -> None:
    """The raise came after the budget was found spent, and before the job began to wait."""
    await limit(bench, RUN, "0")
    (claim,) = await bench.claimed()
    with pytest.raises(Suspended) as suspended:
        await reserve(a_purse(bench), claim)
    await bench.port(budgets.raise_limit, RUN.name, to=Decimal(5), by=user("ana"), reason="more")
    waits = Suspend(
        lease=claim.lease,
        delay_s=None,
        is_counted=False,
        waiting_on=suspended.value.waiting_on,
    )
    await bench.port(tasks.suspend, pod_id=bench.pod.id, operations=[waits])
    bench.port.refuse(budgets.sweep)
    await bench.start(
        Reconciler(bench.port, unsettled=PendingSettlements(bench.port), rng=bench.rng)
    )
    await eventually_async(
        lambda: job_row(database, claim.lease.job_id)["task_state"] == "READY",
        what="the job goes on",
    )
    (again,) = await bench.claim()
    assert again.lease.attempt == 2
    await reserve(a_purse(bench), again)


async def test_many_sessions_at_once_spend_all_and_no_more_than_one_call_over(
    bench: Bench, database: str
) -> None:
    await limit(bench, DAY, "3")
    claims = await bench.claimed(10)
    budget_guard = a_purse(bench)
    largest = Decimal(0)
    stopped = 0

    async def session(claim: Claim) -> None:
        nonlocal largest, stopped
        while True:
            most = Decimal(bench.rng.randint(1, 500)) / 1000
            try:
                reservation = await reserve(budget_guard, claim, str(most))
            except Suspended:
                stopped += 1
                return
            used = round(most * Decimal(bench.rng.random()), 8)
            largest = max(largest, used)
            await settle(budget_guard, reservation, str(used))

    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as sessions:
            for claim in claims:
                sessions.start_soon(session, claim)
    ((spent, reserved),) = uses(database)
    assert stopped == len(claims)
    assert reserved == 0
    assert Decimal(3) <= spent <= Decimal(3) + largest
