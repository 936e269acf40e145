"""Shares of children: what one of them may spend of the budgets of its parent."""

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cortex import Context, job
from cortex.domain.budget import Budget, Estimate, Period, Scope, Unit, checked_share
from cortex.domain.control_flow import Suspended
from cortex.domain.errors import RejectedError
from cortex.domain.job import Claim
from cortex.domain.usage import Usage
from cortex.store import budgets, children, jobs
from cortex.store import why as why_store
from cortex.testing import Cortex, StuckError
from cortex.testing.budgets import MemoryShare
from cortex.view.why import why
from tests.children.conftest import Parents
from tests.store.test_budgets import a_call, limit, spend
from tests.support.people import user
from tests.support.records.factories import JOB_TYPE
from tests.support.servers.postgres import sql

HALF = checked_share({"usd": 0.5})


def budget_of(job_id: UUID) -> Budget:
    return Budget(scope=Scope.JOB, subject=str(job_id), unit=Unit.USD, period=Period.RUN)


def child_of(parents: Parents, claim: Claim, **terms: Any) -> Claim:
    (job_id,) = parents.spawn(claim, 1, kind=JOB_TYPE, **terms)
    return parents.stage.claim(job_id)


def use(parents: Parents, claim: Claim, usd: str) -> None:
    spend(parents.store, a_call(claim, parents.stage.pod_id, usd), usd)


def test_child_stops_at_its_share_and_its_calls_count_for_its_parent(parents: Parents) -> None:
    parent = parents.running()
    limit(parents.store, budget_of(parent.lease.job_id), 1)
    first = child_of(parents, parent, budget=HALF)
    use(parents, first, "0.4")
    call = a_call(first, parents.stage.pod_id, "0.4")
    assert parents.store(budgets.reserve, call).word == "granted"  # one call has what is left
    beside = a_call(first, parents.stage.pod_id, "0.1")
    assert parents.store(budgets.reserve, beside).word == "busy"
    spend(parents.store, call, "0.3")
    share = budget_of(first.lease.job_id).name
    stopped = parents.store(budgets.reserve, beside)
    assert (stopped.word, stopped.budget, stopped.spent) == ("spent", share, Decimal("0.7"))

    second = child_of(parents, parent, step="others", budget=HALF)
    use(parents, second, "0.3")  # its parent has no more
    above = budget_of(parent.lease.job_id).name
    after = parents.store(budgets.reserve, a_call(second, parents.stage.pod_id, "0.1"))
    assert (after.word, after.budget) == ("spent", above)

    on = f"budget:{above}"
    parents.stage.suspend(second.lease, on=on)
    names = [above, share]
    assert parents.store(budgets.wake, names) == 0
    assert parents.store(budgets.wake_next, limit=10).count == 0
    parents.stage.suspend(first.lease, on=f"budget:{share}")
    found = why(parents.store(why_store.facts_of, first.lease.job_id))
    assert f"{share}, the share that job" in found.sentence
    assert "is spent: $0.70 of $0.50" in found.sentence
    assert found.ways_out == (f"cortex budgets raise {share} --to AMOUNT --reason TEXT",)
    raised = parents.store(
        budgets.raise_limit, share, to=Decimal(1), by=user("ana"), reason="goes on"
    )
    assert raised.woken_count == 1


def test_share_above_the_budget_of_its_parent_is_refused(parents: Parents) -> None:
    parent = parents.running()
    above = budget_of(parent.lease.job_id)
    limit(parents.store, above, "0.3")
    with pytest.raises(RejectedError) as refused:
        parents.spawn(parent, 2, budget=HALF)
    told = 'step "pages" gives a child 0.5 usd, more than the 0.3 usd that its parent may spend'
    assert refused.value.message == told
    assert above.name in (refused.value.hint or "")
    assert not parents.ids(parent)
    parents.spawn(parent, 1, budget=HALF, is_detached=True)  # spends nothing of its parent's
    child = child_of(parents, parent, step="own", budget=checked_share({"usd": 0.2}))
    with pytest.raises(RejectedError, match="that its parent may spend"):
        parents.spawn(child, 1, budget=checked_share({"usd": 0.25}))


def test_share_on_record_holds_when_the_step_is_repeated(parents: Parents) -> None:
    parent = parents.running()
    ids = parents.spawn(parent, 3, let_go=1, budget=HALF)
    assert parents.spawn(parent, 3, let_go=1, budget=checked_share({"usd": 9})) == ids
    parents.end(ids[0])
    again = parents.retried(parent)
    assert parents.adopt(again, let_go=3) == "done"
    for each in ids:
        (own,) = parents.store(jobs.show, each).budgets
        assert (own.limit_amount, own.share_of is not None) == (Decimal("0.5"), True)


def test_share_is_shown_while_its_child_runs_and_deleted_with_it(parents: Parents) -> None:
    parent = parents.running()
    (child,) = parents.spawn(parent, 1, budget=checked_share({"usd": 0.5, "tokens": 900}))
    names = [f"job:{child}:{unit}:run" for unit in ("tokens", "usd")]
    tree = parents.store(children.tree, parent.lease.job_id)
    assert [each.name for each in tree.children[0].job.budgets] == names
    listed = parents.store(budgets.page, after=f"job:{child}", limit=2)
    assert [each.name for each in listed] == names
    parents.end(child)
    assert not [each for each in parents.store(budgets.page) if each.subject == str(child)]
    delete = "SELECT cortex.delete_jobs(ARRAY[$1::uuid])"
    sql(parents.stage.dsn, delete, child)
    assert not sql(parents.stage.dsn, "SELECT FROM cortex.budget WHERE subject = $1", str(child))


@job
async def write(ctx: Context, topic: str) -> str:
    ask = [{"role": "user", "content": topic}]
    parts = [ctx.llm("part", model="claude-haiku-4-5", messages=ask) for _ in range(3)]
    return "".join([(await each).text for each in parts])


@job
async def outline(ctx: Context, tokens: int) -> list[str]:
    return [each async for each in ctx.map(write, ["a", "b"], budget={"tokens": tokens})]


@job
async def edit(ctx: Context, tokens: int, given: int = 5_000_000) -> list[str]:
    return await ctx.call(outline, budget={"tokens": given}, tokens=tokens)


def test_share_stops_a_child_in_memory(cortex: Cortex) -> None:
    cortex.model.says("text")
    run = cortex.run_sync(edit, tokens=40)  # each call takes 15, and the third begins with 10 left
    assert run.result == ["texttexttext"] * 2
    run.replays()
    assert cortex.crash_everywhere_sync(edit, tokens=40) > 5
    with pytest.raises(StuckError, match=r"budget job:\S+:tokens:run is spent: 30 tokens of 30"):
        cortex.run_sync(edit, tokens=30)
    with pytest.raises(StuckError, match="is spent: 75 tokens of 70"):
        cortex.run_sync(edit, tokens=50, given=70)
    error = cortex.run_sync(edit, tokens=50, given=40).error
    assert "50 tokens, more than the 40 tokens that its parent may spend" in str(error)


def test_call_that_is_made_again_after_a_crash_is_booked_once_in_memory() -> None:
    share = MemoryShare(UUID(int=1), Unit.TOKENS, Decimal(10))
    most = Estimate(tokens=20, cost_usd=None, input_tokens=5, input_usd=None)
    first, other = (UUID(int=1), "part"), (UUID(int=1), "part#2")
    share.hold(first, most)
    assert not share.has_room(other, "m", most)
    for _ in range(2):
        share.book(first, Usage(input_tokens=15), None)
        assert share.has_room(first, "m", most)
    with pytest.raises(Suspended, match="is spent: 15 tokens of 10 tokens"):
        share.has_room(other, "m", most)
