"""What a pod may believe about itself, by its own clock."""

import pytest
import trio
from trio.testing import MockClock

from cortex.services.standing import Standing


def a_standing() -> Standing:
    return Standing(fence_s=180.0, settle_s=5.0)


async def test_it_is_sure_only_with_its_lock_and_a_fresh_heartbeat(mock_clock: MockClock) -> None:
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


async def test_a_fresh_pod_may_judge_at_once_and_a_reconnected_one_must_settle(
    mock_clock: MockClock,
) -> None:
    standing = a_standing()
    standing.locked()
    assert standing.may_judge
    standing.lost()
    assert not standing.may_judge
    standing.locked()
    mock_clock.jump(4.9)
    assert not standing.may_judge
    mock_clock.jump(0.2)
    assert standing.may_judge
