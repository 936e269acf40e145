"""Where a job stops on a pod that leaves: between steps, and never while one is under way."""

from contextlib import suppress

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from cortex.domain.control_flow import LeaseLost, Suspended
from cortex.domain.job import StepKind
from cortex.durable.codec import StepInput
from cortex.durable.journal import Journal, LeaveRequest, Recorded
from cortex.durable.step_outcome import StepOutcome
from tests.support.records.factories import Record, a_lease

NOTHING = StepInput(b"", b"[]")


class Pod:
    """The state of a pod that a journal reads."""

    def __init__(self) -> None:
        self.record = Record()
        self.is_leaving = False
        self.scope = trio.CancelScope()
        self.journal = self.attempt()

    def attempt(self) -> Journal:
        leave = LeaveRequest(is_asked=lambda: self.is_leaving, hand_back=self.scope.cancel)
        recorded = Recorded(steps=list(self.record.steps))
        return Journal(a_lease(), self.record, recorded, leave=leave)

    async def step(self, name: str, opened: trio.Event | None = None) -> None:
        async def run() -> StepOutcome:
            if opened is not None:
                await opened.wait()
            return StepOutcome(value=name)

        journal = self.journal
        await journal.once(StepKind.STEP, journal.key(name), given=NOTHING, run=run)


async def test_leaving_pod_begins_no_further_step() -> None:
    pod = Pod()
    with pod.scope:
        await pod.step("a")
        pod.is_leaving = True
        await pod.step("b")
    assert pod.scope.cancelled_caught
    assert pod.record.keys == ["a"]


async def test_recorded_step_is_replayed_on_a_leaving_pod() -> None:
    pod = Pod()
    await pod.step("a")
    pod.is_leaving = True
    pod.journal = pod.attempt()
    with pod.scope:
        await pod.step("a")
    assert not pod.scope.cancelled_caught


async def test_deferred_steps_are_recorded_first() -> None:
    pod = Pod()
    await pod.step("a")
    pod.journal = pod.attempt()
    with pod.scope:
        await pod.step("new")
        await pod.step("a")
        pod.is_leaving = True
        await pod.step("next")
    assert pod.scope.cancelled_caught
    assert pod.record.keys == ["a", "new"]


async def test_a_step_under_way_is_recorded_first() -> None:
    pod, opened = Pod(), trio.Event()
    with pod.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pod.step, "slow", opened)
            await wait_all_tasks_blocked()
            pod.is_leaving = True
            nursery.start_soon(pod.step, "next")
            await wait_all_tasks_blocked()
            assert not pod.scope.cancel_called
            opened.set()
    assert pod.scope.cancelled_caught
    assert pod.record.keys == ["slow"]


async def test_a_step_inside_a_step_is_part_of_it() -> None:
    pod = Pod()

    async def outer() -> StepOutcome:
        pod.is_leaving = True
        async with trio.open_nursery() as nursery:  # noqa: ASYNC112 -- in a task of its own
            nursery.start_soon(pod.step, "inner")
        return StepOutcome(value=1)

    with pod.scope:
        await pod.journal.once(StepKind.STEP, pod.journal.key("outer"), given=NOTHING, run=outer)
    assert not pod.scope.cancelled_caught
    assert pod.record.keys == ["inner", "outer"]


async def test_failing_step_on_a_leaving_pod_does_not_stop_the_job() -> None:
    pod, opened = Pod(), trio.Event()

    async def fails() -> None:
        async def run() -> StepOutcome:
            await opened.wait()
            raise KeyError("broken")

        await pod.journal.once(StepKind.STEP, pod.journal.key("fails"), given=NOTHING, run=run)

    with pytest.RaisesGroup(KeyError), pod.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            await wait_all_tasks_blocked()
            pod.is_leaving = True
            nursery.start_soon(pod.step, "next")
            await wait_all_tasks_blocked()
            opened.set()
    assert not pod.scope.cancel_called


async def broken_off(pod: Pod, opened: trio.Event, error: BaseException) -> None:
    """A step that breaks off; its code makes nothing of that."""

    async def run() -> StepOutcome:
        await opened.wait()
        raise error

    with suppress(type(error)):
        await pod.journal.once(StepKind.STEP, pod.journal.key("fails"), given=NOTHING, run=run)


WISH = Suspended("llm:x", "to be asked later", delay_s=1.0)


@pytest.mark.parametrize("error", [KeyError("broken"), WISH], ids=["error", "wish"])
async def test_leaving_job_stops_when_its_last_running_step_breaks_off(
    autojump_clock: trio.testing.MockClock,
    error: BaseException,
) -> None:
    pod, opened = Pod(), trio.Event()
    with trio.fail_after(60), pod.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broken_off, pod, opened, error)
            await wait_all_tasks_blocked()
            pod.is_leaving = True
            nursery.start_soon(pod.step, "next")
            await wait_all_tasks_blocked()
            opened.set()
    assert pod.scope.cancelled_caught
    assert pod.record.keys == []


async def test_cut_step_no_longer_delays_a_leaving_job(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pod, cut = Pod(), trio.CancelScope()

    async def is_cut() -> None:
        with cut:
            await pod.step("cut", trio.Event())
        await trio.sleep_forever()

    with trio.fail_after(60), pod.scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(is_cut)
            await wait_all_tasks_blocked()
            pod.is_leaving = True
            nursery.start_soon(pod.step, "next")
            await wait_all_tasks_blocked()
            cut.cancel()
    assert pod.scope.cancelled_caught


async def test_a_step_that_is_shielded_does_not_begin_either() -> None:
    pod = Pod()

    async def cleans_up() -> None:
        try:
            pod.is_leaving = True
            await pod.step("a")
        finally:
            with trio.CancelScope(shield=True):
                await pod.step("clean up")

    with trio.fail_after(5), pytest.raises(LeaseLost), pod.scope:
        await cleans_up()
    assert pod.scope.cancel_called
    assert pod.record.keys == []
