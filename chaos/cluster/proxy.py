"""A TCP proxy in front of Postgres with a breakable network, one line for each pod.

It runs in the same asyncio loop as everything else of a run. Data held back by a black hole or a
delay is not lost: it arrives later, in order, as with TCP, and so does the end of a connection.
"""

import asyncio
import socket
from pathlib import Path
from typing import Final

from chaos.cluster.relay import Line, Relay

BACKLOG: Final = 256


class Proxy:
    """The lines to one server; `lines` is keyed by the names that they were opened with."""

    def __init__(self, socket_path: Path, *, database: str, user: str = "postgres") -> None:
        self._socket_path = socket_path
        self._database = database
        self._user = user
        self.lines: dict[str, ProxyLine] = {}

    async def open(self, name: str) -> "ProxyLine":
        """Open a line on its own port."""
        line = ProxyLine(name, self._socket_path, database=self._database, user=self._user)
        await line.listen()
        self.lines[name] = line
        return line

    async def close(self) -> None:
        for line in self.lines.values():
            line.close()
        self.lines.clear()


class ProxyLine(Line):
    """A port of the proxy, and the connections through it."""

    def __init__(
        self, name: str, socket_path: Path, *, database: str, user: str = "postgres"
    ) -> None:
        super().__init__(name)
        self._socket_path = str(socket_path)
        self._user = user
        self._database = database
        self._held_port: socket.socket | None = _bound(0)
        self._listening: socket.socket | None = None
        self.port: int = self._held_port.getsockname()[1]

    @property
    def dsn(self) -> str:
        """The address of the database through this line."""
        address = f"{self._user}@127.0.0.1:{self.port}/{self._database}"
        return f"postgresql://{address}?sslmode=disable"

    async def listen(self) -> None:
        """Accept connections; does nothing if it already does."""
        if self._held_port is None:
            return
        self._listening, self._held_port = self._held_port, None
        self._listening.listen(BACKLOG)
        asyncio.get_running_loop().add_reader(self._listening, self._take_all)

    def reset(self) -> None:
        """Cut every connection at once, including those that only the kernel has accepted yet."""
        self._take_all()
        super().reset()

    def refuse(self) -> None:
        """Cut every connection and accept no new ones; the port stays reserved."""
        self.reset()
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            self._held_port = _bound(self.port)

    async def heal(self) -> None:
        """Let everything pass again, including what was held back."""
        self.pass_all()
        await self.listen()

    def close(self) -> None:
        self.refuse()
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None

    def _take_all(self) -> None:
        """Accept all waiting clients; asyncio's own server forgets some when it is closed."""
        while self._listening is not None:
            try:
                client, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            Relay(self, self._socket_path).take(client)


def _bound(port: int) -> socket.socket:
    """A socket that reserves a loopback port; it does not listen, so it refuses connections."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.settimeout(0)
    held.bind(("127.0.0.1", port))
    return held
