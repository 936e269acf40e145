"""The answer to one request: the sender waits for it, the actor that took the request sets it.

Owns: one slot, empty or answered, and the trio task that waits for it.

On failure: the actor that took a request owes it an answer on every way out of its code, crashes
included, or the sender waits for ever. `answered` shows which ones are still owed::

    batch = await mailbox.receive_batch(500)
    try:
        await commit(batch)  # answers those that it settles
    finally:
        for request in batch:
            if not request.reply.answered:
                request.reply.fail(OutcomeUnknownError(...))

On stop: a cancelled sender just goes away; the answer may still be given and is dropped.
"""

from typing import Generic, TypeVar

import trio
from trio.lowlevel import Abort, RaiseCancelT, Task

T = TypeVar("T")


class Reply(Generic[T]):
    """A one-shot slot for a value or an error, with at most one waiter at a time.

    Not thread-safe: to be used from the trio thread only.
    """

    __slots__ = ("_error", "_value", "_waiter", "answered")

    def __init__(self) -> None:
        self.answered = False
        self._value: T  # unset until answered, and for ever when the answer is an error
        self._error: BaseException | None = None
        self._waiter: Task | None = None

    def set(self, value: T) -> None:
        """Answer with a value. Raises `RuntimeError` if it is answered already."""
        self._settle()
        self._value = value

    def fail(self, error: BaseException) -> None:
        """Answer with an error, which `wait` raises. `RuntimeError` if answered already.

        Give each reply an error object of its own: raising one object in several places piles
        their tracebacks onto it.
        """
        self._settle()
        self._error = error

    async def wait(self) -> T:
        """Wait for the answer; return its value or raise its error.

        Always a Trio checkpoint. After `trio.Cancelled` the slot is as it was: an answer that comes
        later is kept, so that shielded cleanup may `wait` again, and is dropped if nobody does.
        Raises `trio.BusyResourceError` if another trio task waits already.
        """
        if self.answered:
            await trio.lowlevel.checkpoint()
        else:
            if self._waiter is not None:
                raise trio.BusyResourceError("this reply has a waiter already")
            self._waiter = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._stop_waiting)
        if self._error is not None:
            raise self._error
        return self._value

    def _settle(self) -> None:
        if self.answered:
            raise RuntimeError("this reply is answered already")
        self.answered = True
        if self._waiter is not None:
            trio.lowlevel.reschedule(self._waiter)
            self._waiter = None

    def _stop_waiting(self, _: RaiseCancelT) -> Abort:
        self._waiter = None
        return Abort.SUCCEEDED
