"""A worker's link to its supervisor: reports readiness, exchanges metrics.

Each line is a JSON object. The worker sends `ready` once, `want` for a page of all workers, and
`page`, its own, when it is asked for it; it gets `ask`, and `joined` after a `want`.
"""

import json
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Final
from uuid import UUID

import trio
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from cortex.cli.run.ready_board import ReadyBoard
from cortex.cli.run.serve import SIGNALS, Place, let_go_of_outputs
from cortex.config import Settings
from cortex.domain.drain import ReadyChecks
from cortex.runtime.metrics.metrics_page import MetricsPage
from cortex.runtime.pod_ready import Worker

DRAIN: Final = signal.SIGUSR2
HURRY: Final = signal.SIGURG
"""The first and the second signal to a pod, as its supervisor passes them on. Not the pod's own
signals: terminals and service managers send those to every process of a group. Two numbers, since
two equal signals may arrive as one."""


class WorkerLink:
    """What a forked worker knows of its place, and its socket."""

    def __init__(
        self,
        own: socket.socket,
        *,
        name: str,
        group_id: UUID,
        number: int,
        is_first: bool,
        settings: Settings,
        board: ReadyBoard,
        http: socket.socket | None,
    ) -> None:
        """`settings`: this worker's share; `is_first`: no worker with its number died before.

        `http`: the socket on which it serves the API, if it need not open its own.
        """
        self.is_first = is_first
        self.settings = settings
        self._number = number
        self._board = board
        worker = Worker(
            group_id=group_id,
            number=number,
            exposition=self._exposition,
            are_all_ready=board.are_all_ready,
        )
        self.place = Place(signals=(DRAIN, HURRY), name=name, worker=worker, http=http)
        self._socket = own
        self._stream: trio.SocketStream | None = None
        self._sending = trio.Lock()
        self._is_open = trio.Event()
        self._joined = ""
        self._answered = trio.Event()

    def hear_only_supervisor(self) -> None:
        """Ignore what a terminal or a service manager sends to all processes of a group."""
        for number in SIGNALS:
            # Not SIG_IGN, which programs that a job starts would inherit.
            signal.signal(number, _hung_up if number == signal.SIGHUP else _nothing)

    async def run(
        self, ready: dict[str, Any], page: MetricsPage, checks: Callable[[], ReadyChecks]
    ) -> None:
        """Report that the pod is ready, then keep its entry, and answer until cancelled."""
        self._board.write(self._number, checks())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._board.keep, self._number, checks)
            await self._answer(ready, page)

    async def _answer(self, ready: dict[str, Any], page: MetricsPage) -> None:
        self._socket.setblocking(False)  # noqa: FBT003 -- as the library has it
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(self._socket))
        await self._send({"ready": ready})
        self._is_open.set()
        rest = b""
        async for data in self._stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "ask" in message:
                    text, _ = await page.exposition()
                    await self._send({"page": text.decode()})
                else:
                    self._joined = message["joined"]
                    self._answered.set()
                    self._answered = trio.Event()
        # The supervisor is gone. On Linux the kernel has killed this process already.
        os.kill(os.getpid(), signal.SIGKILL)

    async def _exposition(self) -> tuple[bytes, str]:
        await self._is_open.wait()
        answered = self._answered
        await self._send({"want": True})
        await answered.wait()
        return self._joined.encode(), CONTENT_TYPE_PLAIN_0_0_4

    async def _send(self, message: dict[str, Any]) -> None:
        if self._stream is None:
            raise AssertionError("the link is open once its actor runs")
        async with self._sending:
            await self._stream.send_all(json.dumps(message).encode() + b"\n")


def _nothing(_: int, __: FrameType | None) -> None:
    pass


def _hung_up(_: int, __: FrameType | None) -> None:
    let_go_of_outputs()
