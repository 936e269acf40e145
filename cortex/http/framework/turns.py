"""Turns on the event loop: client work runs while the jobs have none.

Requests and jobs share one loop. Without turns, a thousand connections that become readable at once
would all be served in one round, and a job that needs a dozen rounds would wait for each.

Owns: the queues of waiting tasks.
Invariants: a round of the loop grants at most one turn, when nothing else can run, or after
`PATIENCE_S` of a loop that is never idle; after `SLICE_S` of client work, clients rest for as long
as it took. Each kind has a queue of its own, and the kinds alternate.
"""

from enum import Enum
from typing import Final

import trio

# public in trio.testing, which is slow to import
from trio._core._run import wait_all_tasks_blocked

PATIENCE_S: Final = 0.005
SLICE_S: Final = 0.001
REST: Final = 1.0
"""Rest, as a multiple of a slice's duration."""


class Kind(Enum):
    """The kind of work."""

    PROBE = "probe"
    """A health check, which must not wait behind a thousand other requests."""
    REQUEST = "request"
    """Bytes from a client."""
    STREAM = "stream"
    """A piece of a stream."""


class Turns:
    """Gives turns; `await turns(kind)` returns when it is the caller's turn."""

    def __init__(self) -> None:
        self._queues = {kind: trio.Lock() for kind in Kind}
        self._next = trio.Lock()
        self._began = 0.0
        self._worked_s = 0.0

    async def __call__(self, kind: Kind) -> None:
        """Wait for a turn, which lasts until the caller's next wait."""
        is_behind = self._queues[kind].locked() or self._next.locked()
        async with self._queues[kind], self._next:
            with trio.move_on_after(PATIENCE_S):
                await wait_all_tasks_blocked()
            if is_behind:  # the previous turn has reached its first wait by now, or takes long
                self._worked_s += trio.current_time() - self._began
            if self._worked_s >= SLICE_S:
                await trio.sleep(REST * self._worked_s)
                self._worked_s = 0.0
            self._began = trio.current_time()
