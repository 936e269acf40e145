"""The mailbox's contract: order, bound, backpressure, cancellation, closing."""

import random
from collections import defaultdict

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cortex.actors.mailbox import Mailbox, MailboxClosed


async def test_a_batch_is_all_that_is_queued_up_to_its_maximum_in_order() -> None:
    mailbox = Mailbox[int]("m", bound=10)
    for item in range(7):
        await mailbox.send(item)
    assert len(mailbox) == 7
    assert await mailbox.receive_batch(3) == [0, 1, 2]
    assert await mailbox.receive_batch(4) == [3, 4, 5, 6]
    assert len(mailbox) == 0


async def test_receive_waits_for_the_first_item_and_for_no_more() -> None:
    mailbox = Mailbox[int]("m", bound=10)
    batches: list[list[int]] = []

    async def receive() -> None:
        batches.append(await mailbox.receive_batch(5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        assert batches == []
        mailbox.send_nowait(1)
        mailbox.send_nowait(2)
    assert batches == [[1, 2]]


async def test_full_mailbox_refuses_an_item_and_keeps_its_own() -> None:
    mailbox = Mailbox[str]("m", bound=1)
    mailbox.send_nowait("kept")
    with pytest.raises(trio.WouldBlock):
        mailbox.send_nowait("refused")
    assert await mailbox.receive_batch(5) == ["kept"]


async def test_senders_wait_while_it_is_full_and_are_served_in_turn() -> None:
    mailbox = Mailbox[int]("m", bound=2)
    done: list[int] = []

    async def send(item: int) -> None:
        await mailbox.send(item)
        done.append(item)

    async with trio.open_nursery() as nursery:
        for item in range(5):
            nursery.start_soon(send, item)
            await wait_all_tasks_blocked()
        assert done == [0, 1]
        assert len(mailbox) == 2
        assert await mailbox.receive_batch(1) == [0]
        await wait_all_tasks_blocked()
        assert done == [0, 1, 2]
        with pytest.raises(trio.WouldBlock):  # no message overtakes those that wait
            mailbox.send_nowait(99)
        assert await mailbox.receive_batch(9) == [1, 2]
        assert await mailbox.receive_batch(9) == [3, 4]


async def test_a_cancelled_sender_has_not_sent() -> None:
    mailbox = Mailbox[str]("m", bound=1)
    await mailbox.send("first")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mailbox.send, "waiting")
            await wait_all_tasks_blocked()
            scope.cancel()
    with trio.CancelScope() as scope:
        scope.cancel()
        await mailbox.send("cancelled before")
    assert scope.cancelled_caught
    assert await mailbox.receive_batch(5) == ["first"]
    assert len(mailbox) == 0


async def test_send_is_a_point_of_cancellation_even_when_there_is_room() -> None:
    mailbox = Mailbox[str]("m", bound=5)
    with trio.CancelScope() as scope:
        scope.cancel()
        await mailbox.send("never")
    assert scope.cancelled_caught
    assert len(mailbox) == 0


@pytest.mark.parametrize("queued", [[], [1, 2]])
async def test_cancelled_receiver_leaves_items_in_the_mailbox(queued: list[int]) -> None:
    mailbox = Mailbox[int]("m", bound=5)
    for item in queued:
        await mailbox.send(item)
    with trio.move_on_after(0) as scope:
        await mailbox.receive_batch(5)
    assert scope.cancelled_caught
    await mailbox.send(3)
    assert await mailbox.receive_batch(5) == [*queued, 3]


async def test_only_one_receiver_at_a_time() -> None:
    mailbox = Mailbox[int]("m", bound=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mailbox.receive_batch, 5)
        await wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError, match="'m'"):
            await mailbox.receive_batch(5)
        await mailbox.send(1)


async def test_closed_mailbox_delivers_accepted_items_then_ends() -> None:
    mailbox = Mailbox[int]("m", bound=5)
    await mailbox.send(1)
    await mailbox.send(2)
    mailbox.close()
    mailbox.close()
    with pytest.raises(MailboxClosed, match="'m'"):
        await mailbox.send(3)
    with pytest.raises(MailboxClosed):
        mailbox.send_nowait(3)
    assert await mailbox.receive_batch(1) == [1]
    assert await mailbox.receive_batch(1) == [2]
    for _ in range(2):
        with pytest.raises(trio.EndOfChannel):
            await mailbox.receive_batch(1)


async def test_close_refuses_the_senders_that_wait() -> None:
    mailbox = Mailbox[int]("m", bound=1)
    await mailbox.send(1)
    refused: list[int] = []

    async def send(item: int) -> None:
        with pytest.raises(MailboxClosed):
            await mailbox.send(item)
        refused.append(item)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send, 2)
        nursery.start_soon(send, 3)
        await wait_all_tasks_blocked()
        mailbox.close()
    assert sorted(refused) == [2, 3]
    assert await mailbox.receive_batch(9) == [1]


async def test_close_wakes_a_waiting_receiver() -> None:
    mailbox = Mailbox[int]("m", bound=1)

    async def receive() -> None:
        with pytest.raises(trio.EndOfChannel):
            await mailbox.receive_batch(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        mailbox.close()


async def test_silly_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="bound"):
        Mailbox[int]("m", bound=0)
    with pytest.raises(ValueError, match="max_items"):
        await Mailbox[int]("m", bound=1).receive_batch(0)


@pytest.mark.parametrize("seed", range(20))
async def test_each_item_sent_arrives_once_and_no_other_does(seed: int) -> None:
    """Senders and receiver are cancelled at random, again and again."""
    trio._core._run._r.seed(seed)
    rng = random.Random(seed)
    mailbox = Mailbox[tuple[int, int]]("m", bound=rng.randint(1, 5))
    sent: dict[int, list[int]] = defaultdict(list)
    received: dict[int, list[int]] = defaultdict(list)

    async def cancel_after(checkpoint_count: int, scope: trio.CancelScope) -> None:
        for _ in range(checkpoint_count):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    async def send(sender: int) -> None:
        for number in range(40):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel_after, rng.randint(0, 6), nursery.cancel_scope)
                await mailbox.send((sender, number))
                sent[sender].append(number)
                nursery.cancel_scope.cancel()

    async def receive_some() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_after, rng.randint(0, 3), nursery.cancel_scope)
            batch = await mailbox.receive_batch(rng.randint(1, 7))
            assert 1 <= len(batch) <= mailbox.bound
            for sender, number in batch:
                received[sender].append(number)
            nursery.cancel_scope.cancel()

    async def receive() -> None:
        with pytest.RaisesGroup(trio.EndOfChannel):
            while True:
                await receive_some()

    async with trio.open_nursery() as receiving:
        receiving.start_soon(receive)
        async with trio.open_nursery() as sending:
            for sender in range(8):
                sending.start_soon(send, sender)
        mailbox.close()
    assert received == sent
    assert 0 < sum(map(len, sent.values())) < 8 * 40, "the cancellations must hit some, not all"
