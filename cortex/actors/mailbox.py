"""A bounded queue in front of one actor, made for taking many items at once.

Owns: the items that were sent and not yet received, in the order in which they were sent, and the
senders that wait for room. Nothing else holds an accepted item.

On failure: an actor that crashes leaves its mailbox as it is; the restarted actor goes on with
the next item. A batch that the crashed actor had taken is its own to answer for (see `reply.py`).

On stop: `close()` refuses further items; what was accepted is still received, then
`trio.EndOfChannel` signals the actor that it may return.

When full: `send` waits, in order of arrival. That is the backpressure; nothing is ever dropped.

This is the hot path, hence the departure from `trio.open_memory_channel`: items are drained by the
batch, and a send that finds room does not give way to other trio tasks. It cannot starve them,
since `bound` sends in a row fill the mailbox.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

import outcome
import trio
from trio.lowlevel import Abort, RaiseCancelT, Task

T = TypeVar("T")


class MailboxClosed(Exception):
    """The mailbox takes no more items: its actor has stopped or is about to."""

    def __init__(self, name: str) -> None:
        super().__init__(f"mailbox {name!r} is closed")
        self.name = name


class Mailbox(Generic[T]):
    """At most `bound` items from any number of senders to one receiver, first in, first out.

    `len(mailbox)` is the number of items accepted and not yet received; waiting senders are not
    counted. Not thread-safe: to be used from the trio thread only.
    """

    __slots__ = ("_closed", "_items", "_receiver", "_senders", "bound", "name")

    def __init__(self, name: str, *, bound: int) -> None:
        """`bound` is at least 1, or `ValueError` is raised."""
        if bound < 1:
            raise ValueError(f"mailbox {name!r}: bound must be at least 1, not {bound}")
        self.name = name
        self.bound = bound
        self._items: deque[T] = deque()
        # Invariant: a sender waits only while `bound` items are queued.
        self._senders: OrderedDict[Task, T] = OrderedDict()
        self._receiver: Task | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def send_nowait(self, item: T) -> None:
        """Queue an item at once.

        Raises `trio.WouldBlock` when full and `MailboxClosed` when closed; the item is not sent.
        """
        if self._closed:
            raise MailboxClosed(self.name)
        if len(self._items) >= self.bound:
            raise trio.WouldBlock
        self._put(item)

    async def send(self, item: T) -> None:
        """Queue an item, waiting while the mailbox is full.

        Raises `MailboxClosed` when it is closed already or while waiting; the item is not sent.
        After `trio.Cancelled` the item is not sent; after a normal return it is, exactly once.
        Always a point of cancellation; gives way to other trio tasks only when it has to wait.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise MailboxClosed(self.name)
        if len(self._items) < self.bound:
            self._put(item)
        else:
            await self._wait_for_room(item)

    async def receive_batch(self, max_items: int) -> list[T]:
        """Wait for at least one item, then take up to `max_items` of those queued, in order.

        Always a Trio checkpoint. After `trio.Cancelled` nothing was taken.
        Raises `trio.EndOfChannel` once closed and drained, `trio.BusyResourceError` if another
        trio task is receiving already, `ValueError` if `max_items` is less than 1.
        """
        self._check(max_items)
        await self.wait_for_item()
        return self.take(max_items)

    def take(self, max_items: int) -> list[T]:
        """Take up to `max_items` of the queued items at once, in order; none if none is queued.

        Raises as `receive_batch`.
        """
        self._check(max_items)
        if self._closed and not self._items:
            raise trio.EndOfChannel
        batch = self._take(max_items)
        self._admit_waiting_senders()
        return batch

    async def wait_for_item(self) -> None:
        """Wait until an item is queued, or the mailbox is closed; take nothing.

        Always a Trio checkpoint. Raises `trio.BusyResourceError` if another trio task waits or
        receives already.
        """
        if self._receiver is not None:
            raise trio.BusyResourceError(f"mailbox {self.name!r} has a receiver already")
        if self._items or self._closed:
            await trio.lowlevel.checkpoint()
        else:
            self._receiver = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_receiving)

    def close(self) -> None:
        """Refuse all further items, those of waiting senders too; may be called again.

        What was accepted before remains to be received.
        """
        self._closed = True
        for task in self._senders:
            trio.lowlevel.reschedule(task, outcome.Error(MailboxClosed(self.name)))
        self._senders.clear()
        self._wake_receiver()

    def _check(self, max_items: int) -> None:
        if max_items < 1:
            raise ValueError(
                f"mailbox {self.name!r}: max_items must be at least 1, not {max_items}"
            )

    def _put(self, item: T) -> None:
        self._items.append(item)
        if self._receiver is not None:
            self._wake_receiver()

    def _wake_receiver(self) -> None:
        if self._receiver is not None:
            trio.lowlevel.reschedule(self._receiver)
            self._receiver = None

    def _stop_receiving(self, _: RaiseCancelT) -> Abort:
        self._receiver = None
        return Abort.SUCCEEDED

    async def _wait_for_room(self, item: T) -> None:
        task = trio.lowlevel.current_task()
        self._senders[task] = item

        def stop_waiting(_: RaiseCancelT) -> Abort:
            del self._senders[task]
            return Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(stop_waiting)

    def _take(self, max_items: int) -> list[T]:
        items = self._items
        if len(items) <= max_items:
            batch = list(items)
            items.clear()
            return batch
        return [items.popleft() for _ in range(max_items)]

    def _admit_waiting_senders(self) -> None:
        while self._senders and len(self._items) < self.bound:
            task, item = self._senders.popitem(last=False)
            self._items.append(item)
            trio.lowlevel.reschedule(task)
