"""The recorded steps a replay must pass before a new effect leaves the job."""

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from cortex.domain.errors import DivergedError
from cortex.domain.job import OpenEffect
from cortex.durable.attempt import Attempt
from cortex.durable.context import Context
from cortex.durable.journal import Journal, Recorded
from cortex.durable.replay import PATIENCE_S
from tests.support.eventually import WITHIN_S
from tests.support.records.factories import EchoModel, Record, a_claim, services

Handler = Callable[[Context], Awaitable[Any]]


@attrs.define
class World:
    """A job's attempts, one after the other, and its effects outside."""

    record: Record = attrs.field(factory=Record)
    open: list[OpenEffect] = attrs.field(factory=list)
    done: list[str] = attrs.field(factory=list)
    model: EchoModel = attrs.field(factory=EchoModel)
    fails: set[str] = attrs.field(factory=set)

    async def attempt(self, handler: Handler) -> Any:
        claim = a_claim()
        recorded = Recorded(steps=list(self.record.steps), effects=self.open)
        journal = Journal(claim.lease, self.record, recorded)
        result = await handler(Context(Attempt(claim, journal, services(models=self.model))))
        journal.check_end()
        return result

    async def act(self, what: str) -> str:
        await trio.lowlevel.checkpoint()
        if what in self.fails:
            raise ConnectionRefusedError(111, what)
        self.done.append(what)
        return what


async def passing(seconds: float) -> None:
    """Something of the handler's own, by a clock that jumps."""
    with trio.move_on_after(seconds):
        await trio.Event().wait()


class Killed(BaseException):
    """The pod is gone."""


async def send_renamed(world: World, *, kill: bool) -> None:
    async def old(ctx: Context) -> None:
        await ctx.effect("send", world.act, "mail")
        if kill:
            raise Killed

    async def new(ctx: Context) -> None:
        await ctx.effect("send_mail", world.act, "mail")

    with pytest.raises(Killed):
        await world.attempt(old)
    await world.attempt(new)


async def test_a_renamed_effect_is_not_applied_twice() -> None:
    world = World()
    with pytest.raises(DivergedError, match=r"new step 'send_mail' must not .* effect 'send'"):
        await send_renamed(world, kill=True)
    assert world.done == ["mail"]


async def test_open_effect_binds_the_replay() -> None:
    world = World(open=[OpenEffect("send", "PENDING")])

    async def new(ctx: Context) -> None:
        await ctx.effect("send_mail", world.act, "mail")

    with pytest.raises(DivergedError, match=r"effect 'send' \(pending\)"):
        await world.attempt(new)
    assert world.done == []


async def test_replay_continues_the_open_effect_itself() -> None:
    world = World(open=[OpenEffect("send", "PENDING")])

    async def same(ctx: Context) -> None:
        await ctx.effect("send", world.act, "mail")

    await world.attempt(same)
    assert world.done == ["mail"]


async def test_a_model_is_not_paid_for_twice_under_another_name() -> None:
    world = World()

    async def ask(ctx: Context, name: str) -> None:
        await ctx.llm(name, model="m", messages=[{"role": "user", "content": "hi"}])

    await world.attempt(lambda ctx: ask(ctx, "summary"))
    with pytest.raises(DivergedError, match="model 'summary'"):
        await world.attempt(lambda ctx: ask(ctx, "summarise"))
    assert len(world.model.asked) == 1


@pytest.mark.parametrize("plain", [False, True], ids=["gather", "nursery"])
async def test_a_renamed_effect_among_branches_stops_the_job_at_once(
    plain: bool,
) -> None:
    world = World()

    async def pay(ctx: Context, name: str, whom: str) -> None:
        await ctx.step(f"look up {whom}", world.act, whom)
        await ctx.effect(f"{name} {whom}", world.act, f"pay {whom}")

    async def handler(ctx: Context, name: str) -> None:
        if not plain:
            await ctx.gather(*(pay(ctx, name, whom) for whom in "abc"))
            return
        async with trio.open_nursery() as nursery:
            for whom in "abc":
                nursery.start_soon(pay, ctx, name, whom)

    await world.attempt(lambda ctx: handler(ctx, "pay"))
    with trio.fail_after(WITHIN_S), pytest.raises((DivergedError, ExceptionGroup)):  # noqa: ASYNC401 -- or a lone one
        await world.attempt(lambda ctx: handler(ctx, "send"))
    assert sorted(world.done) == ["a", "b", "c", "pay a", "pay b", "pay c"]


async def test_a_branch_that_takes_its_time_is_waited_for(autojump_clock: MockClock) -> None:
    """What it does between its steps the journal cannot see."""
    world = World()

    async def slow(ctx: Context) -> None:
        for number in range(3):
            await passing(PATIENCE_S / 2)
            await ctx.step(f"poll {number}", world.act, f"poll {number}")

    async def pay() -> None:
        world.done.append(f"pay after {trio.current_time() - began:.0f} s")

    async def pays(ctx: Context) -> None:
        await ctx.gather(slow(ctx), ctx.effect("pay", pay))

    await world.attempt(slow)
    world.done.clear()
    began = trio.current_time()
    await world.attempt(pays)
    assert world.done == [f"pay after {1.5 * PATIENCE_S:.0f} s"]


async def test_replay_waits_a_bounded_time_for_a_recorded_effect(autojump_clock: MockClock) -> None:
    world = World()

    async def ticks() -> None:
        while True:
            await passing(60)

    async def new(ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticks)
            await ctx.effect("send_mail", world.act, "mail")

    async def old(ctx: Context) -> None:
        await ctx.effect("send", world.act, "mail")

    await world.attempt(old)
    began = trio.current_time()
    with pytest.RaisesGroup(DivergedError):
        await world.attempt(new)
    assert PATIENCE_S <= trio.current_time() - began <= PATIENCE_S + 10
    assert world.done == ["mail"]


async def test_first_attempt_waits_for_nothing() -> None:
    world = World()

    async def handler(ctx: Context) -> None:
        await ctx.gather(*(ctx.effect(f"pay {n}", world.act, f"{n}") for n in range(3)))

    began = trio.current_time()
    await world.attempt(handler)
    assert len(world.done) == 3
    assert trio.current_time() - began < 1


async def look(ctx: Context) -> None:
    await ctx.step("look", passing, 0)


@pytest.mark.parametrize("is_last", [True, False])
async def test_a_message_is_not_lost_while_a_removed_step_is_on_record(is_last: bool) -> None:
    world = World()

    async def new(ctx: Context) -> None:
        await ctx.publish("orders.paid", {})
        if not is_last:
            await look(ctx)

    await world.attempt(look)
    with trio.fail_after(WITHIN_S), pytest.raises(DivergedError, match="step 'look'") as caught:
        await world.attempt(new)
    assert caught.value.is_clean
    assert world.record.keys == ["look"]


async def test_the_end_is_not_reached_with_other_steps_than_on_record() -> None:
    world = World()

    async def renamed(ctx: Context) -> None:
        await ctx.step("look again", passing, 0)

    async def removed(_: Context) -> None:
        pass

    await world.attempt(look)
    with pytest.raises(DivergedError, match=r"the handler has returned.*step 'look'") as caught:
        await world.attempt(renamed)
    assert caught.value.is_clean
    await world.attempt(removed)
    assert world.record.keys == ["look"]


async def test_the_end_of_an_open_effect_does_not_keep_other_code_from_the_job() -> None:
    world = World()

    async def old(ctx: Context) -> None:
        await look(ctx)
        await ctx.effect("send", world.act, "mail")

    async def new(ctx: Context) -> None:
        await ctx.step("look again", passing, 0)
        await ctx.effect("send", world.act, "mail")

    await world.attempt(look)
    world.open = [OpenEffect("send", "PENDING")]
    with pytest.raises(DivergedError, match=r"the handler has returned.*step 'look'") as caught:
        await world.attempt(new)
    assert caught.value.is_clean
    world.open = []
    await world.attempt(old)
    assert world.done == ["mail"]
    assert world.record.keys == ["look", "send"]


# --- ways that a replay need not take


async def falls_back(world: World, ctx: Context) -> None:
    try:
        await ctx.step("fetch", world.act, "fetch")
    except OSError:
        await ctx.step("fetch from mirror", world.act, "mirror")
    await ctx.effect("publish", world.act, "publish")


async def test_a_step_that_stood_in_for_a_failed_one_does_not_bind() -> None:
    world = World(fails={"fetch", "publish"})
    with pytest.raises(OSError, match="publish"):
        await world.attempt(lambda ctx: falls_back(world, ctx))
    world.fails.clear()
    await world.attempt(lambda ctx: falls_back(world, ctx))
    assert world.done == ["mirror", "fetch", "publish"]


async def test_step_of_a_failed_branch_binds_a_replay_with_the_same_failure() -> None:
    world = World(fails={"fetch"})

    async def handler(ctx: Context, name: str) -> None:
        try:
            await ctx.step("fetch", world.act, "fetch")
        except OSError:
            await ctx.effect(name, world.act, "alarm")

    await world.attempt(lambda ctx: handler(ctx, "alarm"))
    with pytest.raises(DivergedError, match="effect 'alarm'"):
        await world.attempt(lambda ctx: handler(ctx, "sound the alarm"))
    assert world.done == ["alarm"]


async def test_a_second_try_of_a_failed_step_does_not_bind() -> None:
    world = World(fails={"fetch"})

    async def handler(ctx: Context) -> None:
        for _ in range(2):
            try:
                await ctx.step("fetch", world.act, "fetch")
                break
            except OSError:
                world.fails.clear()
        await ctx.effect("publish", world.act, "publish")

    await world.attempt(handler)
    world.record.steps.pop()  # killed before it was written
    await world.attempt(handler)
    assert world.done == ["fetch", "publish", "fetch", "publish"]


async def test_cleanup_step_does_not_bind_a_successful_attempt() -> None:
    world = World()
    is_down = True

    async def handler(ctx: Context) -> None:
        try:
            if is_down:
                raise ConnectionResetError(104, "its own")
            await ctx.effect("pay", world.act, "pay")
        finally:
            await ctx.step("clean up", world.act, "clean up")  # noqa: ASYNC102 -- as users write it

    with pytest.raises(ConnectionResetError):
        await world.attempt(handler)
    is_down = False
    await world.attempt(handler)
    assert world.done == ["clean up", "pay"]


# --- steps inside steps


async def fetches_in_parts(world: World, ctx: Context) -> None:
    async def fetch() -> str:
        await ctx.gather(*(ctx.step(f"part {n}", part, n) for n in range(2)))
        return await world.act("joined")

    async def part(number: int) -> None:
        await ctx.effect(f"count {number}", world.act, f"count {number}")

    await ctx.step("fetch", fetch)


async def test_inner_steps_of_a_recorded_step_do_not_bind() -> None:
    world = World(fails={"publish"})

    async def handler(ctx: Context) -> None:
        await fetches_in_parts(world, ctx)
        await ctx.effect("publish", world.act, "publish")

    with pytest.raises(OSError, match="publish"):
        await world.attempt(handler)
    assert len(world.record.steps) == 5
    world.fails.clear()
    await world.attempt(handler)
    assert sorted(world.done) == ["count 0", "count 1", "joined", "publish"]


async def test_branch_with_recorded_inner_steps_binds_no_other() -> None:
    world = World(fails={"joined"})

    async def handler(ctx: Context) -> None:
        try:
            await fetches_in_parts(world, ctx)
        except OSError:
            await ctx.effect("alarm", world.act, "alarm")

    for _ in range(2):
        await world.attempt(handler)
    assert sorted(world.done) == ["alarm", "count 0", "count 1"]
    world.record.steps = [each for each in world.record.steps if each.key != "alarm"]
    await world.attempt(handler)
    assert world.done.count("alarm") == 2


async def test_an_effect_renamed_inside_a_step_that_runs_again_is_not_applied_twice() -> None:
    world = World()

    async def handler(ctx: Context, name: str) -> None:
        async def tell() -> None:
            await ctx.effect(name, world.act, "mail")

        await ctx.step("tell", tell)

    await world.attempt(lambda ctx: handler(ctx, "send"))
    world.record.steps.pop()  # killed before the outer one was written
    with pytest.raises(DivergedError, match=r"new step 'send_mail' must not .* effect 'send'"):
        await world.attempt(lambda ctx: handler(ctx, "send_mail"))
    assert world.done == ["mail"]


async def test_an_effect_dropped_from_a_step_that_runs_again_is_missed() -> None:
    world = World(fails={"publish"})

    async def handler(ctx: Context, *, sends: bool) -> None:
        async def tell() -> None:
            if sends:
                await ctx.effect("send", world.act, "mail")

        await ctx.step("tell", tell)
        await ctx.effect("publish", world.act, "publish")

    with pytest.raises(OSError, match="publish"):
        await world.attempt(lambda ctx: handler(ctx, sends=True))
    world.record.steps.pop()  # killed before the outer one was written
    world.fails.clear()
    with pytest.raises(DivergedError, match=r"new step 'publish' must not .* effect 'send'"):
        await world.attempt(lambda ctx: handler(ctx, sends=False))
    assert world.done == ["mail"]


# --- once diverged, always


async def test_handler_that_swallows_a_divergence_goes_no_further() -> None:
    world = World()

    async def old(ctx: Context) -> None:
        await ctx.step("look", world.act, "old input")

    async def new(ctx: Context) -> None:
        try:
            await ctx.step("look", world.act, "new input")
        except Exception:  # noqa: BLE001
            await ctx.effect("pay", world.act, "pay")

    await world.attempt(old)
    with pytest.raises(DivergedError, match="step 'look'"):
        await world.attempt(new)
    assert world.done == ["old input"]


async def test_the_end_is_not_reached_without_an_effect_on_record() -> None:
    world = World()

    async def old(ctx: Context) -> None:
        await ctx.step("note", world.act, "note")
        await ctx.effect("pay", world.act, "pay")

    async def without_step(ctx: Context) -> None:
        await ctx.effect("pay", world.act, "pay")

    async def without_effect(ctx: Context) -> None:
        await ctx.step("note", world.act, "note")

    await world.attempt(old)
    await world.attempt(without_step)
    with pytest.raises(DivergedError, match=r"the handler has returned.*effect 'pay'"):
        await world.attempt(without_effect)


async def test_divergence_shows_the_changed_values() -> None:
    world = World()
    kept: dict[str, str | None] = {}

    async def recall(key: str) -> str | None:
        return kept[key]

    async def handler(ctx: Context, amount: Decimal, to: str) -> None:
        await ctx.step("pay", pay, to, amount=str(amount), notes=["same"])

    async def pay(to: str, **more: Any) -> str:
        return f"{to} {more}"

    async def attempt(to: str, amount: Decimal) -> None:
        claim = a_claim()
        recorded = Recorded(steps=list(world.record.steps), recall=recall)
        journal = Journal(claim.lease, world.record, recorded)
        await handler(Context(Attempt(claim, journal, services())), amount, to)

    await attempt("ann", Decimal(5))
    kept["pay"] = world.record.inputs["pay"]
    with pytest.raises(DivergedError) as caught:
        await attempt("bob", Decimal(5))
    assert '"ann" → "bob"' in caught.value.message
    assert "same" not in caught.value.message
