"""A pod's certainty about its own liveness, by its own clock."""

import pytest
import trio
from trio.testing import MockClock

from cortex.runtime.self_fence import SelfFence


def a_standing() -> SelfFence:
    """The self-fence of a pod with production settings."""
    return SelfFence(fence_s=180.0, settle_s=5.0, lease_s=270.0, fresh_s=60.0)


def beating() -> SelfFence:
    self_fence = a_standing()
    self_fence.locked()
    self_fence.beaten(trio.current_time())
    return self_fence


async def test_pod_is_sure_only_with_its_lock_and_a_later_heartbeat(mock_clock: MockClock) -> None:
    self_fence = a_standing()
    assert not self_fence.is_sure
    assert not self_fence.may_judge
    self_fence.locked()
    assert not self_fence.is_sure
    self_fence.beaten(trio.current_time())
    assert self_fence.is_sure
    self_fence.lost()
    assert not self_fence.is_sure
    self_fence.locked()
    assert not self_fence.is_sure, "what became of its jobs meanwhile is not known yet"
    self_fence.beaten(trio.current_time())
    assert self_fence.is_sure


async def test_silence_counts_from_when_the_last_good_beat_was_sent(mock_clock: MockClock) -> None:
    """Not from its reply: what the others see is the instant at which it was written."""
    self_fence = a_standing()
    self_fence.locked()
    sent_at = trio.current_time()
    mock_clock.jump(60)
    self_fence.beaten(sent_at)
    assert self_fence.fence_in_s == pytest.approx(120)
    mock_clock.jump(119)
    assert self_fence.is_sure
    mock_clock.jump(2)
    assert self_fence.is_fenced
    assert not self_fence.is_sure
    self_fence.beaten(trio.current_time())
    assert self_fence.is_sure


async def test_pod_may_judge_from_its_first_heartbeat(mock_clock: MockClock) -> None:
    """A pod that is killed and started again is the only one to find its jobs."""
    self_fence = beating()
    assert self_fence.may_judge
    assert not self_fence.is_steady_for(5.0)


@pytest.mark.parametrize("trouble", ["lost", "missed", "fenced"])
async def test_pod_judges_again_a_while_after_its_own_trouble(
    mock_clock: MockClock, trouble: str
) -> None:
    self_fence = beating()
    if trouble == "lost":
        mock_clock.jump(1000)
        self_fence.lost()
        self_fence.locked()
    elif trouble == "missed":
        mock_clock.jump(30)
        self_fence.missed()
    elif trouble == "fenced":
        mock_clock.jump(181)
    assert not self_fence.may_judge
    mock_clock.jump(6)
    assert not self_fence.may_judge
    self_fence.beaten(trio.current_time())
    mock_clock.jump(4.9)
    assert not self_fence.may_judge
    mock_clock.jump(0.2)
    assert self_fence.may_judge
    assert not self_fence.is_steady_for(300.0)
    for _ in range(10):
        mock_clock.jump(30)
        self_fence.beaten(trio.current_time())
    assert self_fence.is_steady_for(300.0)


@pytest.mark.parametrize(
    "call_s, silent_s, may_begin",
    [
        (90, 179, True),
        (90, 181, False),  # fenced
        (91, 179, True),
        (91, 179.5, False),  # it would end after the lease
        (200, 69, True),
        (200, 71, False),
        (600, 59, True),  # no lease is that long: while heartbeats succeed
        (600, 61, False),
    ],
)
async def test_a_call_begins_only_if_it_ends_before_others_take_its_job(
    mock_clock: MockClock, call_s: float, silent_s: float, may_begin: bool
) -> None:
    self_fence = beating()
    mock_clock.jump(silent_s)
    assert self_fence.may_begin(call_s) is may_begin


async def test_a_call_waits_until_the_pod_is_sure_again(mock_clock: MockClock) -> None:
    self_fence = beating()
    self_fence.lost()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(self_fence.until_it_may_begin, 90.0)
        await trio.testing.wait_all_tasks_blocked()
        self_fence.locked()
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1, "its jobs are not checked yet"
        self_fence.beaten(trio.current_time())
    with trio.fail_after(1):
        await self_fence.until_it_may_begin(90.0)
