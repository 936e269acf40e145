"""The socket between `cortex up --tui` and its pod: reports readiness, and the end of either side.

Only the pod sends. A killed process closes its end as well: a pod whose terminal UI is gone drains
and ends, so it never keeps running unnoticed.
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

    def fileno(self) -> int:
        """Readable once the process that started the pod is gone."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def report(self, ready: dict[str, Any]) -> None:
        """Send one line that the pod is ready."""
        with suppress(OSError):  # `_watch` notices the closed socket
            self._socket.sendall(json.dumps(ready).encode() + b"\n")

    async def around(self, pod: Callable[[], Awaitable[int]], shutdown: Shutdown) -> int:
        """Run the pod; drain it when the process that started it is gone. Return its exit code.

        After an error the socket stays open: the error may still be reported.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, shutdown)
            exit_code = await pod()
            nursery.cancel_scope.cancel(reason="the pod has ended")
        self.close()
        return exit_code

    async def _watch(self, shutdown: Shutdown) -> None:
        await trio.lowlevel.wait_readable(self._socket)
        if not shutdown.stop.is_set():
            _log.warning("terminal UI gone: pod drains")
            signal.raise_signal(signal.SIGTERM)
