"""Cuts off the connections whose calls take too long: one timer for all calls of a database.

A timer a call would cost more than all else that a call does outside of the driver.
"""

import asyncio

import asyncpg


class Watchdog:
    """Watches calls that have the same bound; only in asyncio."""

    def __init__(self, bound_s: float) -> None:
        self._bound_s = bound_s
        self._due: dict[asyncpg.Connection[asyncpg.Record], float] = {}
        """In the order of their deadlines."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: "asyncpg.Connection[asyncpg.Record]") -> float:
        """Terminate the connection at the bound from now; returns that instant of the loop."""
        loop = asyncio.get_running_loop()
        due = self._due[connection] = loop.time() + self._bound_s
        if self._timer is None:
            self._timer = loop.call_at(due, self._cut)
        return due

    def forget(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        """End the watch of a call."""
        self._due.pop(connection, None)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for connection, due in list(self._due.items()):
            if due > loop.time():
                self._timer = loop.call_at(due, self._cut)
                break
            del self._due[connection]
            connection.terminate()
