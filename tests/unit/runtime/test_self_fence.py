"""What a pod may believe about itself, by its own clock."""

import pytest
import trio
from trio.testing import MockClock

from cortex.runtime.self_fence import SelfFence


def a_standing() -> SelfFence:
    """That of a pod with the settings of production."""
    return SelfFence(fence_s=180.0, settle_s=5.0, lease_s=270.0, fresh_s=60.0)


def beating() -> SelfFence:
    standing = a_standing()
    standing.locked()
    standing.beaten(trio.current_time())
    return standing


async def test_it_is_sure_only_with_its_lock_and_a_heartbeat_since(mock_clock: MockClock) -> None:
    standing = a_standing()
    assert not standing.is_sure
    assert not standing.may_judge
    standing.locked()
    assert not standing.is_sure
    standing.beaten(trio.current_time())
    assert standing.is_sure
    standing.lost()
    assert not standing.is_sure
    standing.locked()
    assert not standing.is_sure, "what became of its jobs meanwhile is not known yet"
    standing.beaten(trio.current_time())
    assert standing.is_sure


async def test_silence_counts_from_when_the_last_good_beat_was_sent(mock_clock: MockClock) -> None:
    """Not from its reply: what the others see is the instant at which it was written."""
    standing = a_standing()
    standing.locked()
    sent_at = trio.current_time()
    mock_clock.jump(60)
    standing.beaten(sent_at)
    assert standing.fence_in_s == pytest.approx(120)
    mock_clock.jump(119)
    assert standing.is_sure
    mock_clock.jump(2)
    assert standing.is_fenced
    assert not standing.is_sure
    standing.beaten(trio.current_time())
    assert standing.is_sure


async def test_it_judges_others_from_its_first_heartbeat_on(mock_clock: MockClock) -> None:
    """A pod that is killed and started again is the only one to find its jobs."""
    standing = beating()
    assert standing.may_judge
    assert not standing.is_steady_for(5.0)


@pytest.mark.parametrize("trouble", ["lost", "missed", "fenced"])
async def test_after_trouble_it_judges_others_when_its_own_link_has_been_well_for_a_while(
    mock_clock: MockClock, trouble: str
) -> None:
    standing = beating()
    if trouble == "lost":
        mock_clock.jump(1000)
        standing.lost()
        standing.locked()
    elif trouble == "missed":
        mock_clock.jump(30)
        standing.missed()
    elif trouble == "fenced":
        mock_clock.jump(181)
    assert not standing.may_judge
    mock_clock.jump(6)
    assert not standing.may_judge
    standing.beaten(trio.current_time())
    mock_clock.jump(4.9)
    assert not standing.may_judge
    mock_clock.jump(0.2)
    assert standing.may_judge
    assert not standing.is_steady_for(300.0)
    for _ in range(10):
        mock_clock.jump(30)
        standing.beaten(trio.current_time())
    assert standing.is_steady_for(300.0)


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
    standing = beating()
    mock_clock.jump(silent_s)
    assert standing.may_begin(call_s) is may_begin


async def test_a_call_waits_until_the_pod_is_sure_again(mock_clock: MockClock) -> None:
    standing = beating()
    standing.lost()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(standing.until_it_may_begin, 90.0)
        await trio.testing.wait_all_tasks_blocked()
        standing.locked()
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1, "its jobs are not checked yet"
        standing.beaten(trio.current_time())
    with trio.fail_after(1):
        await standing.until_it_may_begin(90.0)
