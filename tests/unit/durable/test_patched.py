"""`ctx.patched`: the branch of a job is decided once, and recorded before later steps."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from cortex.domain.control_flow import Suspended
from cortex.domain.errors import DivergedError, InvalidValueError, UsageError
from cortex.domain.job import OpenEffect, Past, StepKind
from cortex.durable.attempt import Attempt
from cortex.durable.context import Context
from cortex.durable.journal import Journal, Recorded
from tests.support.records.factories import (
    EchoModel,
    LedgerDesk,
    Record,
    TrioClock,
    a_claim,
    a_context,
    services,
)

MESSAGES = [{"role": "user", "content": "hello"}]
SAME_CODE = Past(is_same_code=True)


def resumed(record: Record, past: Past, effects: Sequence[OpenEffect] = ()) -> Context:
    """The context of an attempt after others with this past."""
    claim = a_claim()
    recorded = Recorded(steps=list(record.steps), effects=effects, past=past)
    journal = Journal(claim.lease, record, recorded)
    return Context(Attempt(claim, journal, services(gateway=LedgerDesk())))


async def work(number: int) -> int:
    return number


async def old(ctx: Context) -> None:
    await ctx.step("load", work, 1)
    await ctx.step("old", work, 2)


async def new(ctx: Context) -> bool:
    await ctx.step("load", work, 1)
    is_new = ctx.patched("new way")
    await ctx.step("new" if is_new else "old", work, 2)
    return is_new


async def test_a_job_that_begins_under_this_code_takes_the_new_branch() -> None:
    record = Record()
    assert await new(a_context(record)) is True
    assert record.keys == ["load", "patched: new way", "new"]
    assert record.steps[1].kind is StepKind.PATCH
    for _ in range(2):
        assert await new(a_context(record)) is True
    assert len(record.keys) == 3


@pytest.mark.parametrize("count, expected", [(0, True), (1, True), (2, False)])
async def test_a_job_that_passed_the_place_under_older_code_keeps_its_branch(
    count: int, expected: bool
) -> None:
    record = Record()
    await old(a_context(record))
    del record.steps[count:]
    assert await new(a_context(record)) is expected
    assert await new(a_context(record)) is expected
    if not expected:
        assert record.keys == ["load", "old"], "nothing has been recorded after the decision"


async def test_an_old_jobs_decision_is_recorded_with_its_next_step() -> None:
    record = Record()
    await old(a_context(record))

    async def longer(ctx: Context) -> bool:
        is_new = await new(ctx)
        await ctx.step("more", work, 3)
        return is_new

    assert await longer(a_context(record)) is False
    assert record.keys == ["load", "old", "patched: new way", "more"]
    assert await longer(a_context(record)) is False


@pytest.mark.parametrize(
    "effects, past",
    [
        ((OpenEffect("pay", "PENDING"),), Past()),
        ((), Past(questions=("publish",))),
    ],
)
async def test_an_open_effect_or_question_shows_that_the_place_was_passed(
    effects: Any, past: Past
) -> None:
    record = Record()
    await a_context(record).step("load", work, 1)
    ctx = resumed(record, past, effects)
    await ctx.step("load", work, 1)
    assert ctx.patched("new way") is False


async def test_repeated_question_before_the_place_takes_the_new_branch() -> None:
    ctx = resumed(Record(), Past(questions=("publish",)))
    with pytest.raises(Suspended):
        await ctx.approve("publish")
    assert ctx.patched("new way") is True


async def test_a_record_of_the_same_code_never_means_that_the_place_was_passed() -> None:
    """Another branch of a job may be ahead of this one: then not all is requested."""
    record = Record()
    await a_context(record).step("beside", work, 1)
    assert resumed(record, SAME_CODE).patched("new way") is True
    assert a_context(record).patched("new way") is False


async def test_concurrent_branches_and_loops_have_one_decision() -> None:
    record = Record()
    results: list[bool] = []

    async def branch(ctx: Context, name: str) -> None:
        for number in range(2):
            results.append(ctx.patched("new way"))
            await ctx.step(f"{name} {number}", work, number)

    for _ in range(2):
        ctx = a_context(record)
        await ctx.gather(branch(ctx, "a"), branch(ctx, "b"))
    assert results == [True] * 8
    assert record.keys.count("patched: new way") == 1
    assert record.keys[0] == "patched: new way"


async def test_a_decision_inside_a_step_belongs_to_the_job() -> None:
    record = Record()

    async def asks() -> bool:
        return ctx.patched("new way")

    ctx = a_context(record)
    assert await ctx.step("ask", asks) is True
    assert record.keys == ["patched: new way", "ask"]
    assert a_context(record).patched("new way") is True


async def outside_call(ctx: Context, kind: str) -> None:
    ctx.patched("new way")
    match kind:
        case "model":
            await ctx.llm("ask", model="m", messages=MESSAGES)
        case "effect":
            await ctx.effect("pay", work, 1)
        case "question":
            await ctx.approve("publish")
        case "sleep":
            await ctx.sleep("rest", days=1)
        case _:
            await ctx.publish("orders.paid", {})


@pytest.mark.parametrize("kind", ["model", "effect", "question", "sleep", "publish"])
async def test_a_decision_is_on_record_before_later_operations(kind: str) -> None:
    record = Record()
    ctx = a_context(record, gateway=LedgerDesk(), models=EchoModel(), clock=TrioClock())
    with trio.move_on_after(5):
        try:
            await outside_call(ctx, kind)
        except Suspended:
            assert kind in {"question", "sleep"}
    assert record.keys[0] == "patched: new way"


async def test_a_patch_may_be_removed_once_no_job_needs_the_old_branch() -> None:
    record = Record()
    await new(a_context(record))
    ctx = a_context(record, models=EchoModel())
    await ctx.step("load", work, 1)
    await ctx.step("new", work, 2)
    await ctx.llm("ask", model="m", messages=MESSAGES)
    ctx._journal.check_end()


async def test_a_removed_old_branch_that_a_job_needs_diverges() -> None:
    record = Record()
    await old(a_context(record))
    await new(a_context(record))
    ctx = a_context(record, models=EchoModel())
    await ctx.step("load", work, 1)
    await ctx.step("new", work, 2)
    with pytest.raises(DivergedError, match="step 'old'"):
        await ctx.llm("ask", model="m", messages=MESSAGES)


async def test_a_step_cannot_have_the_name_of_a_patch() -> None:
    record = Record()
    ctx = a_context(record)
    await ctx.step("patched: new way", work, 1)
    with pytest.raises(UsageError, match="patch 'new way' has the name of a step"):
        ctx.patched("new way")
    with pytest.raises(UsageError, match="patch 'new way' has the name of a step"):
        a_context(record).patched("new way")
    later = a_context(Record())
    assert later.patched("new way") is True
    await later.step("patched: new way", work, 1)
    assert later.patched("new way") is True


@pytest.mark.parametrize("patch", ["", "x" * 201, "a\0b"])
async def test_an_id_that_cannot_be_recorded_is_refused(patch: str) -> None:
    with pytest.raises(InvalidValueError):
        a_context().patched(patch)
