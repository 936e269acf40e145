"""The cancel scope shared by the steps of a task, exceptions to it, and time-outs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from attrs import define

from cortex.domain.errors import TimedOutError
from cortex.domain.job import Claim
from cortex.domain.prices import LIST_PRICES
from cortex.durable.attempt import Attempt, JobLimits
from cortex.durable.context import Context
from cortex.durable.journal import Journal
from cortex.durable.step_scope import StepScope
from cortex.runtime.jobs.deadlines import COARSE_S, JobDeadlines
from cortex.runtime.running import RunningJobs
from tests.support.records.factories import (
    DefaultPolicies,
    Record,
    a_claim,
    services,
)

STEP_S = 600.0


class KnownLimits(DefaultPolicies):
    """Finds the limits without a database, as a pod does for jobs that began on it."""

    def known_limits(self, claim: Claim) -> JobLimits | None:  # noqa: ARG002
        return JobLimits(
            prices=LIST_PRICES, call_s=300.0, idle_s=60.0, connect_s=30.0, step_s=STEP_S
        )


@define
class Counted:
    """Counts the steps that share a scope."""

    running: RunningJobs
    count: int = 0

    def expect(self, deadline: float) -> None:
        self.count += 1
        self.running.expect(deadline)


@define
class Life:
    """A handler's task with a shared scope, watched as in a pod."""

    context: Context
    scope: StepScope
    record: Record
    _counted: Counted

    @property
    def shares(self) -> int:
        """How many steps had no scope of their own."""
        return self._counted.count


@asynccontextmanager
async def a_life() -> AsyncIterator[Life]:
    running, record, claim = RunningJobs(slots=1), Record(), a_claim(left_s=7200.0)
    counted = Counted(running)
    async with trio.open_nursery() as nursery:
        deadlines = JobDeadlines(running)
        running.observers.append(deadlines)
        await nursery.start(deadlines.run)
        scope = StepScope(trio.lowlevel.current_task(), counted)
        running.add(claim).step_scope = scope
        journal = Journal(claim.lease, record, step_scope=scope)
        context = Context(Attempt(claim, journal, services(policies=KnownLimits())))
        try:
            yield Life(context, scope, record, counted)
            assert scope.is_innermost
        finally:
            scope.close()
        nursery.cancel_scope.cancel()


async def pass_by(seconds: float) -> None:
    """Let time pass on the test's clock."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()


async def one() -> int:
    return 1


async def times_out(context: Context, name: str) -> float:
    """Return how late a step is ended."""
    began = trio.current_time()
    with pytest.raises(TimedOutError, match="took longer than 600 seconds"):
        await context.step(name, trio.sleep_forever)
    return trio.current_time() - began - STEP_S


async def test_handler_continues_after_a_timed_out_step(autojump_clock: object) -> None:
    async with a_life() as life:
        for name in ("slow", "as slow"):
            late_s = await times_out(life.context, name)
            assert 0.0 <= late_s <= COARSE_S + 0.001
            assert await life.context.step("quick", one) == 1
        assert life.shares == 4
    assert life.record.keys == ["quick", "quick#2"]


async def test_a_time_is_over_only_for_the_step_that_took_it(autojump_clock: object) -> None:
    async with a_life() as life:
        for number in range(3):
            await life.context.step("long", pass_by, STEP_S - 1.0)
            await pass_by(10.0 * number)  # the handler's own time is not limited by a step
    assert life.record.keys == ["long", "long#2", "long#3"]


async def test_a_scope_of_the_handler_keeps_its_place(autojump_clock: object) -> None:
    async with a_life() as life:
        with trio.move_on_after(5.0) as outer:
            # Entered in here, a shared scope would outlive the one around it.
            assert await life.context.step("inside", one) == 1
            await life.context.step("cut", trio.sleep_forever)
        assert outer.cancelled_caught
        assert life.shares == 0
        assert await life.context.step("after", one) == 1
        with trio.move_on_after(5.0) as inner:
            await life.context.step("cut too", trio.sleep_forever)
        assert inner.cancelled_caught
        assert await life.context.step("last", one) == 1
        assert life.shares == 2


async def test_steps_inside_steps_and_beside_others_have_their_own(autojump_clock: object) -> None:
    async with a_life() as life:

        async def outer() -> int:
            inner: int = await life.context.step("inner", one)
            return inner + 1

        assert await life.context.step("outer", outer) == 2
        both = [life.context.step("left", one), life.context.step("right", one)]
        assert await life.context.gather(*both) == [1, 1]
        assert life.shares == 1


async def test_outer_of_two_steps_begun_together_times_out(
    autojump_clock: object,
) -> None:
    """Its scope is cancelled a little late: the step inside it must not fail before."""
    went_on = False
    async with a_life() as life:

        async def outer() -> None:
            nonlocal went_on
            with suppress(TimedOutError):
                await life.context.step("inner", trio.sleep_forever)
            went_on = True

        with pytest.raises(TimedOutError, match="step 'outer' took longer"):
            await life.context.step("outer", outer)
        assert await life.context.step("next", one) == 1
    assert not went_on
    assert life.record.keys == ["next"]


async def test_a_limit_of_its_own_ends_a_step_on_time(autojump_clock: object) -> None:
    async with a_life() as life:
        began = trio.current_time()
        with pytest.raises(TimedOutError, match=r"longer than 2\.5 seconds"):
            await life.context.step("slow", trio.sleep_forever, timeout=2.5)
        assert trio.current_time() - began == 2.5
        assert life.shares == 0


async def test_result_at_the_moment_of_the_timeout_counts(autojump_clock: object) -> None:
    async with a_life() as life:

        async def last_moment() -> int:
            life.scope.cancel_overdue(life.scope.due_at)
            return 1

        assert await life.context.step("a", last_moment) == 1
        await pass_by(1.0)  # not cancelled any more
        assert await life.context.step("b", one) == 1
        assert life.shares == 2


async def test_stopped_job_ends_its_step_without_a_timeout(
    autojump_clock: object,
) -> None:
    with trio.CancelScope() as job:
        async with a_life() as life:

            async def stopped() -> None:
                job.cancel()
                life.scope.cancel_overdue(life.scope.due_at)  # at the same moment
                await trio.sleep_forever()

            await life.context.step("a", stopped)
    assert job.cancelled_caught


async def test_errors_beside_the_cancellation_are_raised(autojump_clock: object) -> None:
    async def fails_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it ended")

    async def several() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fails_when_cancelled)

    async with a_life() as life:
        with pytest.RaisesGroup(ValueError):
            await life.context.step("a", several)
        assert await life.context.step("b", one) == 1


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_step_that_leaves_a_scope_open_fails_itself(autojump_clock: object) -> None:
    left = trio.CancelScope()

    async def careless() -> None:
        left.__enter__()

    async with a_life() as life:
        with pytest.raises(RuntimeError, match="Cancel scope stack corrupted"):
            await life.context.step("a", careless)
        assert await life.context.step("b", one) == 1
        assert life.shares == 2
