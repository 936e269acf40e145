"""A TCP proxy in front of Postgres whose network can be broken, one line for each pod.

In one asyncio loop with everything else of a run. Data that a black hole or a delay holds back is
not lost: it comes later, in order, as TCP would have it, and so does the end of a connection.
"""

import asyncio
import socket
from pathlib import Path

from chaos.cluster.relay import Line, Relay


class Proxy:
    """The lines to one server; `lines` by the names that they were opened with."""

    def __init__(self, socket_path: Path, *, database: str, user: str = "postgres") -> None:
        self._socket_path = socket_path
        self._database = database
        self._user = user
        self.lines: dict[str, ProxyLine] = {}

    async def open(self, name: str) -> "ProxyLine":
        """Open a line on a port of its own."""
        line = ProxyLine(name, self._socket_path, database=self._database, user=self._user)
        await line.listen()
        self.lines[name] = line
        return line

    async def close(self) -> None:
        """Close all lines."""
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
        self._server: asyncio.Server | None = None
        self.port: int = self._held_port.getsockname()[1]

    @property
    def dsn(self) -> str:
        """The address of the database by this line."""
        address = f"{self._user}@127.0.0.1:{self.port}/{self._database}"
        return f"postgresql://{address}?sslmode=disable"

    async def listen(self) -> None:
        """Take connections; nothing to do when it does."""
        if self._held_port is None:
            return
        held, self._held_port = self._held_port, None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepted, sock=held, backlog=256)

    def refuse(self) -> None:
        """Cut every connection and take no new ones; the port stays ours."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._held_port = _bound(self.port)
        self.reset()

    async def heal(self) -> None:
        """Let everything pass again, what was held back included."""
        self.pass_all()
        await self.listen()

    def close(self) -> None:
        """Cut and close."""
        self.refuse()
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None

    def _accepted(self) -> asyncio.Protocol:
        return Relay(self, self._socket_path).client


def _bound(port: int) -> socket.socket:
    """A socket that holds a port of loopback and, as it does not listen, refuses connections."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.settimeout(0)
    held.bind(("127.0.0.1", port))
    return held
