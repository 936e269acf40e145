"""The reply's contract: one answer, one waiter, nothing lost by cancellation."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cortex.actors.reply import Reply


async def test_reply_delivers_its_value_before_or_after_the_wait() -> None:
    early = Reply[str]()
    early.set("before the wait")
    assert early.answered
    assert await early.wait() == "before the wait"

    late = Reply[str | None]()
    got: list[str | None] = []

    async def ask() -> None:
        got.append(await late.wait())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        assert got == []
        late.set(None)
    assert got == [None]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt("no")])
async def test_wait_raises_the_error(error: BaseException) -> None:
    reply = Reply[str]()
    reply.fail(error)
    with pytest.raises(type(error)) as caught:
        await reply.wait()
    assert caught.value is error


async def test_a_waiting_asker_is_woken_by_an_error() -> None:
    reply = Reply[str]()

    async def ask() -> None:
        with pytest.raises(ValueError, match="no"):
            await reply.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        reply.fail(ValueError("no"))


async def test_an_answer_after_the_asker_was_cancelled_is_kept() -> None:
    reply = Reply[int]()
    with trio.move_on_after(0) as scope:
        await reply.wait()
    assert scope.cancelled_caught
    assert not reply.answered
    reply.set(7)
    assert await reply.wait() == 7


async def test_wait_on_an_answered_reply_is_a_point_of_cancellation() -> None:
    reply = Reply[int]()
    reply.set(7)
    with trio.CancelScope() as scope:
        scope.cancel()
        await reply.wait()
    assert scope.cancelled_caught


async def test_an_answer_cannot_be_changed() -> None:
    reply = Reply[int]()
    reply.set(7)
    with pytest.raises(RuntimeError, match="answered already"):
        reply.set(8)
    with pytest.raises(RuntimeError, match="answered already"):
        reply.fail(ValueError("late"))
    assert await reply.wait() == 7


async def test_only_one_waiter_at_a_time() -> None:
    reply = Reply[int]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reply.wait)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await reply.wait()
        reply.set(1)
