"""The socket between `cortex up --tui` and its pod: what is ready goes up; an end shows at both.

Nothing goes down. A process that is killed without a word closes its end all the same: a pod whose
terminal UI is gone drains and ends, and is never one that nobody knows of.
"""

import json
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import structlog
import trio

from cortex.runtime.liveness.drain import Shutdown

_log = structlog.get_logger()


class Lifeline:
    """The pod's end."""

    def __init__(self, own: socket.socket) -> None:
        self._socket = own

    def tell(self, ready: dict[str, Any]) -> None:
        """Say that the pod is ready; one line."""
        with suppress(OSError):  # `_watch` finds out that nobody is there
            self._socket.sendall(json.dumps(ready).encode() + b"\n")

    async def around(self, pod: Callable[[], Awaitable[int]], shutdown: Shutdown) -> int:
        """Run the pod; drain it when whoever started it has gone. Returns its exit code."""
        with self._socket:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, shutdown)
                exit_code = await pod()
                nursery.cancel_scope.cancel(reason="the pod has ended")
        return exit_code

    async def _watch(self, shutdown: Shutdown) -> None:
        await trio.lowlevel.wait_readable(self._socket)
        if not shutdown.stop.is_set():
            _log.warning("the terminal UI that started this pod is gone: it drains")
            signal.raise_signal(signal.SIGTERM)
