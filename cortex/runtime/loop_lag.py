"""Measures the lag of the event loop: how a busy loop delays heartbeats and streams."""

from collections.abc import Callable
from typing import Final

import trio

EVERY_S: Final = 0.1


class LoopLag:
    name = "loop lag"

    def __init__(self, on_lag: Callable[[float], None] = lambda _: None) -> None:
        """`on_lag` gets each delay in seconds."""
        self._worst_s = 0.0
        self._on_lag = on_lag

    def take_ms(self) -> float:
        """Return the worst delay in milliseconds since the last call."""
        worst_s, self._worst_s = self._worst_s, 0.0
        return 1000 * worst_s

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure until cancelled."""
        task_status.started()
        while True:
            due = trio.current_time() + EVERY_S
            await trio.sleep_until(due)
            late_s = trio.current_time() - due
            self._worst_s = max(self._worst_s, late_s)
            self._on_lag(late_s)
