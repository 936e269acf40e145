"""Leftovers of calls and budgets: calls that never end, runs and days long past."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

from cortex.domain.job import Claim, Release
from cortex.postgres.database import Profile, open_database
from cortex.postgres.session import Session
from cortex.store import budgets, facts, pods, retries, tasks
from cortex.store.budgets import BudgetUse, WaitingJob
from cortex.store.passes import PartPass
from tests.store.test_budgets import (
    DAY_S,
    TENANT_DAY,
    TENANT_RUN,
    a_call,
    costs,
    limit,
    settle,
    spend,
    uses,
    wait_for,
)
from tests.support.records.factories import a_pod
from tests.support.records.rows import NoPause, hold_turns, move_clock, new_id, seeded_random
from tests.support.servers.postgres import run_asyncio, sql

# --- calls that never end


def test_a_call_that_died_with_its_pod_is_booked_when_the_job_runs_again(
    store: Session,
    database: str,
    running: Callable[..., Claim],
    claim: Callable[..., list[Claim]],
    pod_id: UUID,
) -> None:
    limit(store, TENANT_RUN, 1)
    first = running()
    killed = a_call(first, pod_id, "0.8")
    assert store(budgets.reserve, killed).word == "granted"
    assert store(tasks.sweep, silent_s=-1.0, limit=10, rng=NoPause()).retried_count == 1
    assert store(retries.due).count == 1
    (second,) = claim(pod_id)
    call = a_call(second, pod_id, "0.6")
    assert store(budgets.reserve, call).word == "granted"  # 0.4 for the lost prompt, 0.6 for it
    assert not settle(store, killed, "0.8")  # the pod was not dead, only silent
    assert settle(store, call, "0.1")
    assert uses(database) == [(Decimal("0.5"), 0)]
    assert costs(database) == [("lost", Decimal("0.4")), ("kept", Decimal("0.1"))]
    output = store(facts.of_job, killed.lease.job_id)
    lost = next(fact for fact in output if fact.type == "cost")
    assert (lost.attempt, lost.data["estimated"]) == (1, True)
    assert lost.data["usage"] == {"input_tokens": 30}


def test_a_pod_that_lost_the_job_makes_no_more_calls(
    store: Session, running: Callable[..., Claim], pod_id: UUID
) -> None:
    claim = running()
    assert store(budgets.reserve, a_call(claim, new_id())).word == "lease_lost"
    store(tasks.sweep, silent_s=-1.0, limit=10, rng=NoPause())
    assert store(budgets.reserve, a_call(claim, pod_id)).word == "lease_lost"


def sweep_all(store: Session, *, limit: int) -> int:
    """Look at all calls under way, page by page; return how many were booked."""
    part = store(budgets.sweep, limit=limit)
    total = part.count
    while part.after is not None:
        part = store(budgets.sweep, limit=limit, after=part.after)
        total += part.count
    return total


def test_calls_of_attempts_that_are_over_are_swept(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_DAY, 10)
    over, alive = a_call(running(), pod_id), a_call(running(), pod_id)
    unpriced = a_call(running(tenant="other"), pod_id, None, tenant="other")
    for call in (over, alive, unpriced):
        assert store(budgets.reserve, call).word == "granted"
    ends = [Release(lease=call.lease, outcome="failed") for call in (over, unpriced)]
    store(tasks.release, pod_id=pod_id, operations=ends)
    assert sweep_all(store, limit=1) == 2
    assert store(budgets.sweep, limit=10).count == 0
    assert sorted(costs(database), key=str) == [("lost", Decimal("0.5")), ("lost", None)]
    assert uses(database) == [(Decimal("0.5"), 1)]
    assert settle(store, alive, "1")


def test_live_pod_has_a_minute_to_settle_the_cost_of_a_call(
    store: Session,
    database: str,
    submit: Callable[..., UUID],
    claim: Callable[..., list[Claim]],
) -> None:
    limit(store, TENANT_DAY, 10)
    pod = a_pod()
    store(pods.register, pod)
    submit()
    submit()
    known, unknown = (a_call(each, pod.id) for each in claim(pod.id))
    for call in (known, unknown):
        assert store(budgets.reserve, call).word == "granted"
    ends = [Release(lease=call.lease, outcome="failed") for call in (known, unknown)]
    store(tasks.release, pod_id=pod.id, operations=ends)
    other = new_id()
    (again, *_) = claim(other)
    assert store(budgets.sweep, limit=10).count == 0
    assert store(budgets.reserve, a_call(again, other)).word == "granted"
    assert settle(store, known, "1")
    move_clock(database, 61)
    assert store(budgets.sweep, limit=10).count == 1
    assert costs(database) == [("kept", Decimal(1)), ("lost", Decimal("0.5"))]


def test_one_pod_sweeps_at_a_time_and_the_others_keep_their_place(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    over, waiting = running(), running()
    assert store(budgets.reserve, a_call(over, pod_id)).word == "granted"
    store(tasks.release, pod_id=pod_id, operations=[Release(lease=over.lease, outcome="failed")])
    wait_for(store, pod_id, waiting, "tenant:gone:usd:run", None)
    call_id, job = UUID(int=1), WaitingJob("budget:a", UUID(int=1))

    async def while_another_looks() -> None:
        db = await open_database(Profile(dsn=database), rng=seeded_random())
        other = await Profile(dsn=database).connect()
        try:
            async with other.transaction():
                await other.execute(hold_turns("budgets.sweep", "budgets.wake_next"))
                swept = await budgets.sweep(db, limit=9, after=call_id)
                assert swept == PartPass(count=0, is_skipped=True, after=call_id)
                woken = await budgets.wake_next(db, limit=9, after=job)
                assert woken == PartPass(count=0, is_skipped=True, after=job)
        finally:
            other.terminate()
            await db.close()  # noqa: ASYNC102 -- bounded by itself

    run_asyncio(while_another_looks)
    done: PartPass[Any] = PartPass(count=1, is_skipped=False, after=None)
    assert store(budgets.sweep, limit=9, after=call_id) == done
    assert store(budgets.wake_next, limit=9, after=job) == done


# --- what was counted long ago


def forget_all(store: Session, *, limit: int) -> int:
    """Forget as a pod does, page by page; return how many are gone."""
    total = 0
    after: BudgetUse | None = None
    while True:
        gone, after = store(
            budgets.forget, day_s=35 * DAY_S, run_s=7 * DAY_S, limit=limit, after=after
        )
        total += gone
        if after is None:
            return total


def test_runs_that_are_over_and_days_long_past_are_forgotten(
    store: Session, database: str, running: Callable[..., Claim], pod_id: UUID
) -> None:
    limit(store, TENANT_RUN, 10)
    limit(store, TENANT_DAY, 100)
    over, gone_on, held, alive, next_of_line = (running() for _ in range(5))
    for each in (over, gone_on, alive):
        spend(store, a_call(each, pod_id), "1")
    assert store(budgets.reserve, a_call(held, pod_id)).word == "granted"
    line = "UPDATE cortex.job_record SET origin_id = $2, lineage_id = $2 WHERE id = $1"
    sql(database, line, next_of_line.lease.job_id, gone_on.lease.job_id)
    end = (
        "UPDATE cortex.job_record SET status = 'COMPLETED', attempt = attempt + 1, "
        "worker_job_id = NULL WHERE id = $1"
    )
    for each in (over, gone_on, held):
        sql(database, end, each.lease.job_id)

    def runs() -> set[str]:
        query = "SELECT window_key FROM cortex.budget_use WHERE run_spent IS NOT NULL"
        return {row["window_key"] for row in sql(database, query)}

    move_clock(database, 6 * DAY_S)
    assert forget_all(store, limit=2) == 0
    move_clock(database, 8 * DAY_S)
    assert forget_all(store, limit=2) == 1
    assert runs() == {str(each.lease.job_id) for each in (gone_on, held, alive)}
    sql(database, end, next_of_line.lease.job_id)
    move_clock(database, 16 * DAY_S)
    assert forget_all(store, limit=2) == 1
    assert runs() == {str(each.lease.job_id) for each in (held, alive)}
    move_clock(database, 36 * DAY_S)
    assert forget_all(store, limit=2) == 1
    assert len(uses(database)) == 2
