"""A dry run replays a record against other code, and does nothing that is not on record."""

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import pytest
import trio
from trio.testing import MockClock

from cortex.domain.errors import ApprovalExpiredError, DeniedError, RejectedError
from cortex.domain.job import OpenEffect
from cortex.durable.context import Context
from cortex.durable.dry_run import Absent, DryJournal, Finding, Problem, dry_run
from cortex.durable.journal import Recorded
from cortex.durable.registry import Registry, job
from tests.support.records.factories import (
    EchoModel,
    LedgerDesk,
    Record,
    TrioClock,
    a_claim,
    a_context,
    services,
)

Handler = Callable[..., Awaitable[Any]]
MESSAGES = [{"role": "user", "content": "hello"}]
FAR = TrioClock(ahead_s=10**9)


async def load(number: int) -> int:
    return number


async def never(number: int = 0) -> int:
    raise AssertionError(f"a dry run has called a step's function with {number}")


async def recorded(handler: Handler) -> Record:
    record = Record()
    await handler(a_context(record, models=EchoModel(), gateway=LedgerDesk(), clock=TrioClock()))
    return record


def checked(
    record: Record, handler: Handler, *, effects: dict[str, str] | None = None
) -> Finding | None:
    """Run the handler dry, in a trio program of its own."""
    clock, claim = MockClock(), a_claim(type="work")
    registry = Registry([job("work")(handler)])

    def journal() -> DryJournal:
        return DryJournal(
            claim,
            Recorded(
                steps=record.steps,
                effects=[OpenEffect(key, "PENDING") for key in effects or {}],
                recall=record.recall,
            ),
            arguments=effects or {},
            misfit=lambda *_: None,
            has_stored_calls=False,
        )

    def lent(made: DryJournal) -> Any:
        return services(clock=FAR, models=Absent("models", made), gateway=Absent("gateway", made))

    def give_up() -> NoReturn:
        raise AssertionError("the handler does not stop")

    async def main() -> Finding | None:
        return await dry_run(
            registry, claim, journal, lent, clock=clock, is_builtin=False, give_up=give_up
        )

    return trio.run(main, clock=clock)


def made(handler: Handler) -> Record:
    return trio.run(recorded, handler)


async def before(ctx: Context) -> None:
    await ctx.step("load", load, 1)
    await ctx.sleep("rest", seconds=1)
    await ctx.effect("pay", load, 2)
    await ctx.llm("ask", model="m", messages=MESSAGES)


async def unchanged(ctx: Context) -> None:
    await ctx.step("load", never, 1)
    await ctx.sleep("rest", days=3)
    await ctx.effect("pay", never, 2)
    await ctx.llm("ask", model="m", messages=MESSAGES)


async def longer(ctx: Context) -> None:
    await unchanged(ctx)
    await ctx.step("new", never)
    raise AssertionError


async def other_value(ctx: Context) -> None:
    await ctx.step("load", never, 3)


async def renamed_parameter(ctx: Context) -> None:
    async def load_order(order_number: int) -> int:
        return await never(order_number)

    await ctx.step("load", load_order, 1)
    await ctx.sleep("rest", seconds=1)
    await ctx.effect("pay", load_order, 2)
    await ctx.llm("ask", model="m", messages=MESSAGES)


async def renamed_effect(ctx: Context) -> None:
    await ctx.step("load", never, 1)
    await ctx.effect("pay customer", never, 2)


async def renamed_step_and_ended(ctx: Context) -> None:
    await ctx.step("load order", never, 1)
    await ctx.sleep("rest", seconds=1)
    await ctx.effect("pay", never, 2)


async def renamed_step(ctx: Context) -> None:
    await renamed_step_and_ended(ctx)
    await ctx.llm("ask", model="m", messages=MESSAGES)


async def alike_step_before(ctx: Context) -> None:
    await ctx.step("check", never, 1)
    await unchanged(ctx)


async def returns_early(ctx: Context) -> None:
    await ctx.step("load", never, 1)


async def new_step_before(ctx: Context) -> None:
    await ctx.step("check", never)
    await unchanged(ctx)


async def raises(ctx: Context) -> None:
    loaded: Any = await ctx.step("load", never, 1)
    raise AssertionError(loaded["number"])


async def changed_but_patched(ctx: Context) -> None:
    if ctx.patched("new way"):
        await ctx.effect("pay first", never, 2)
    await unchanged(ctx)


async def concurrent(ctx: Context) -> None:
    async def later() -> None:
        with trio.move_on_after(5):
            await trio.sleep_forever()
        await ctx.effect("pay", never, 2)

    await ctx.step("load", never, 1)
    await ctx.gather(ctx.llm("ask", model="m", messages=MESSAGES), later())
    await ctx.sleep("rest", seconds=1)
    await ctx.llm("more", model="m", messages=MESSAGES)


async def swallows(ctx: Context) -> None:
    try:
        await longer(ctx)
    except BaseException:  # noqa: BLE001, ASYNC103 -- as bad code does
        with trio.CancelScope(shield=True):
            await ctx.step("clean up", never)


CASES: list[tuple[Handler, Problem | None, str | None, str]] = [
    (unchanged, None, None, ""),
    (longer, None, None, ""),
    (renamed_parameter, None, None, ""),
    (changed_but_patched, None, None, ""),
    (concurrent, None, None, ""),
    (alike_step_before, None, None, ""),
    (swallows, None, None, ""),
    (other_value, Problem.DIVERGES, "load", "number: 1 → 3"),
    (renamed_effect, Problem.DIVERGES, "rest", "new step 'pay customer' must not begin"),
    (renamed_step, Problem.DIVERGES, "load order", "but 'load' with the same input"),
    (renamed_step_and_ended, Problem.DIVERGES, "load order", "was it renamed?"),
    (returns_early, Problem.DIVERGES, "rest", "the handler has returned"),
    (new_step_before, Problem.UNSURE, "check", "not on record: 'check'"),
    (raises, Problem.RAISES, None, "TypeError"),
]


@pytest.mark.parametrize("handler, problem, where, message", CASES)
def test_a_record_is_replayed_against_other_code(
    handler: Handler, problem: Problem | None, where: str | None, message: str
) -> None:
    record = made(before)
    finding = checked(record, handler)
    if problem is None:
        assert finding is None
        return
    assert finding is not None
    assert (finding.problem, finding.where) == (problem, where)
    assert message in finding.message
    assert len(record.steps) == 4


def test_an_open_effect_with_other_arguments_diverges() -> None:
    async def pays(ctx: Context) -> None:
        await ctx.effect("pay", never, 2)

    assert checked(Record(), pays, effects={"pay": '{"number":2}'}) is None
    finding = checked(Record(), pays, effects={"pay": '{"number":1}'})
    assert finding is not None
    assert (finding.problem, finding.where) == (Problem.DIVERGES, "pay")
    assert "number: 1 → 2" in finding.message


@pytest.mark.parametrize("decision", [DeniedError, ApprovalExpiredError])
def test_a_job_that_people_end_fits(decision: type[RejectedError]) -> None:
    async def denied(ctx: Context) -> None:
        await ctx.step("load", never, 1)
        raise decision("send was not approved")

    assert checked(made(before), denied) is None


def test_a_type_or_arguments_that_do_not_fit_are_named() -> None:
    async def wants(ctx: Context, urls: list[str]) -> None:
        raise AssertionError((ctx, urls))

    finding = checked(Record(), wants)
    assert finding is not None
    assert finding.problem is Problem.ARGUMENTS
    assert "urls" in finding.message


def test_a_group_is_replayed_into() -> None:
    async def grouped(ctx: Context) -> None:
        async def inner() -> int:
            await ctx.step("inner", load, 1)
            raise RejectedError("not yet")

        try:
            await ctx.group("outer", inner, given={})
        except RejectedError:
            return

    async def again(ctx: Context) -> None:
        async def inner() -> int:
            await ctx.step("inner", never, 2)
            return 1

        await ctx.group("outer", inner, given={})

    finding = checked(made(grouped), again)
    assert finding is not None
    assert (finding.problem, finding.where) == (Problem.DIVERGES, "inner")
