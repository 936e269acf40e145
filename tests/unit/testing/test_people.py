"""Decisions of people in a test: approvals, edits and denials, by name or for all."""

from typing import Any

import pytest

from cortex import Context, DeniedError, job, tool
from cortex.testing import Cortex, StuckError

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}},
    "required": ["amount"],
    "additionalProperties": False,
}


@tool(effect=True, approve=True, idempotent=True)
async def pay(amount: int) -> int:
    """Pay an amount."""
    return amount


@job
async def ask_first(ctx: Context) -> dict[str, Any]:
    decision = await ctx.approve("ready", detail={"amount": 3}, schema=SCHEMA)
    return {"by": decision.by, **decision.arguments}


@job
async def pay_twice(ctx: Context) -> list[int]:
    await ctx.approve("ready")
    return [await ctx.tool("pay", pay, {"amount": amount}) for amount in (1, 2)]


def test_approve_all_answers_every_question(harness: Cortex) -> None:
    harness.approve_all(by="ana")
    run = harness.run_sync(pay_twice)
    assert run.result == [1, 2]
    assert run.steps == ["ready", "pay", "pay approval", "pay#2", "pay approval#2"]
    run.replays()


def test_named_decision_wins_over_the_one_for_all(harness: Cortex) -> None:
    harness.approve_all()
    harness.deny("pay", reason="too much", by="ben")
    error = harness.run_sync(pay_twice).error
    assert isinstance(error, DeniedError)
    assert str(error) == "pay was denied by ben: too much"
    harness.approve("pay")
    assert harness.run_sync(pay_twice).result == [1, 2]


def test_person_edits_arguments(harness: Cortex) -> None:
    harness.approve("ready", arguments={"amount": 5}, by="ana")
    assert harness.run_sync(ask_first).result == {"by": "ana", "amount": 5}


def test_edit_that_does_not_fit_is_named(harness: Cortex) -> None:
    harness.approve("ready", arguments={"amount": "five"})
    with pytest.raises(
        StuckError,
        match=r"impossible decision: question 'ready' does not take {.*}: amount must be",
    ):
        harness.run_sync(ask_first)


def test_missing_decision_is_named(harness: Cortex) -> None:
    harness.approve("ready")
    with pytest.raises(
        StuckError,
        match=r"^job 'pay_twice' waits for approval 'pay approval', and nobody decides: call "
        r"cortex.approve_all\(\), cortex.approve\('pay'\)",
    ):
        harness.run_sync(pay_twice)
