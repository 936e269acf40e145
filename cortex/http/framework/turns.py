"""Turns on the event loop: work for clients begins while the jobs have none.

Requests and the jobs share one loop. A thousand connections that become readable at once would
otherwise all be served in one round of it, and a job that needs a dozen rounds would wait for each.

Owns: who waits for a turn.
Invariants: at most one turn is given in a round of the loop; it is given when nothing else can run,
or after `PATIENCE_S` of a loop that is never idle; after `SLICE_S` of work for clients they rest
for as long as it took. Each kind has a queue of its own, and the kinds alternate.
"""

from enum import Enum
from typing import Final

import trio
from trio._core._run import wait_all_tasks_blocked  # public in trio.testing: slow to import

PATIENCE_S: Final = 0.005
SLICE_S: Final = 0.001
REST: Final = 1.0
"""Times what the work of a slice took."""


class Kind(Enum):
    """What a turn is for."""

    PROBE = "probe"
    """A question for the pod's health, which must not wait behind a thousand others."""
    REQUEST = "request"
    """Bytes that a client sent."""
    STREAM = "stream"
    """A piece of an answer that goes on."""


class Turns:
    """Gives turns; `await turns(kind)` returns when it is one's own."""

    def __init__(self) -> None:
        self._queues = {kind: trio.Lock() for kind in Kind}
        self._next = trio.Lock()
        self._began = 0.0
        self._worked_s = 0.0

    async def __call__(self, kind: Kind) -> None:
        """Wait for a turn: what is done next, up to the first wait, is the work of it."""
        is_behind = self._queues[kind].locked() or self._next.locked()
        async with self._queues[kind], self._next:
            with trio.move_on_after(PATIENCE_S):
                await wait_all_tasks_blocked()
            if is_behind:  # the one before has come to its first wait by now, or takes long
                self._worked_s += trio.current_time() - self._began
            if self._worked_s >= SLICE_S:
                await trio.sleep(REST * self._worked_s)
                self._worked_s = 0.0
            self._began = trio.current_time()
