"""What a service manager such as systemd gives a pod: where to report its state, and a socket.

The protocol is that of sd_notify(3), sd_watchdog_enabled(3) and sd_listen_fds(3).
"""

import math
import os
import socket
from collections.abc import MutableMapping
from typing import Final, Self

import attrs
import structlog
import trio

from cortex.domain.errors import UsageError

FIRST_FILE: Final = 3
"""Sockets come as the files from this number on."""
VARIABLES: Final = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
)
BEATS: Final = 3
"""Reports in one interval of the watchdog: two of them may come late."""
WAIT_S: Final = 0.5
"""How long a start or an end may wait for room in the manager's queue; a beat does not wait."""

_log = structlog.get_logger(__name__)


@attrs.define(eq=False)
class ServiceManager:
    """Reports to the service manager that started this process; does nothing without one."""

    _address: str | None = None
    watchdog_s: float = math.inf
    """Silence after which it restarts the service."""
    http: socket.socket | None = None
    """Listens for the HTTP API, also while no pod runs."""
    _has_failed: bool = False

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Self:
        """Take its variables out of the environment: they are not meant for the jobs' programs.

        Raises `UsageError` for sockets that a pod cannot serve.
        """
        given = {name: environ.pop(name, "") for name in VARIABLES}
        address = given["NOTIFY_SOCKET"]
        watched = given["WATCHDOG_USEC"]
        is_watched = watched.isdecimal() and given["WATCHDOG_PID"] in {"", str(os.getpid())}
        has_sockets = given["LISTEN_PID"] == str(os.getpid())
        return cls(
            address=address if address[:1] in {"/", "@"} else None,
            watchdog_s=(int(watched) / 1e6 or math.inf) if is_watched else math.inf,
            http=_http_socket(given["LISTEN_FDS"]) if has_sockets else None,
        )

    @property
    def is_there(self) -> bool:
        """A service manager has started this process, and watches its end."""
        return self._address is not None or self.http is not None

    @property
    def beat_s(self) -> float:
        """How often to `beat`; infinite without a watchdog."""
        return self.watchdog_s / BEATS

    def ready(self, status: str) -> None:
        """Report that the service has started."""
        self._send(f"READY=1\nSTATUS={status}", wait_s=WAIT_S)

    def stopping(self) -> None:
        """Report that the service ends."""
        self._send("STOPPING=1\nSTATUS=draining: jobs are handed back", wait_s=WAIT_S)

    def beat(self) -> None:
        """Report that the service is alive."""
        self._send("WATCHDOG=1", wait_s=0.0)

    async def follow(self, stop: trio.Event) -> None:
        """Report the life of a pod in this event loop, and its end once `stop` is set."""
        async with trio.open_nursery() as nursery:
            if self.beat_s < math.inf:
                nursery.start_soon(self._beat_on)
            await stop.wait()
            self.stopping()

    async def _beat_on(self) -> None:
        while True:
            self.beat()
            await trio.sleep(self.beat_s)

    def _send(self, state: str, *, wait_s: float) -> None:
        """Send, or give up soon: a manager that does not listen must not hold up a pod."""
        if self._address is None:
            return
        path = self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sending:
                sending.settimeout(wait_s)
                sending.connect("\0" + path[1:] if path.startswith("@") else path)
                sending.send(state.encode())
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                _log.warning(
                    "service manager not reached", socket=path, error=error.strerror or str(error)
                )


def _http_socket(count: str) -> socket.socket | None:
    if not count.isdecimal() or not int(count):
        return None
    if int(count) > 1:
        raise UsageError(
            f"the service manager passed {count} sockets; a pod serves its API on one",
            hint="keep one ListenStream= in the socket unit",
        )
    os.set_inheritable(FIRST_FILE, False)  # noqa: FBT003 -- as the library has it
    given = socket.socket(fileno=FIRST_FILE)
    is_tcp = given.family in {socket.AF_INET, socket.AF_INET6} and given.type == socket.SOCK_STREAM
    if not is_tcp or not given.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise UsageError(
            "the service manager's socket is none that listens on TCP",
            hint="such as ListenStream=127.0.0.1:8080",
        )
    given.setblocking(False)  # noqa: FBT003 -- as the library has it
    return given
