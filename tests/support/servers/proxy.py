"""The proxy in front of Postgres for a test, in a thread of its own: its network can be broken."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from chaos.cluster.proxy import ProxyLine


class Proxy:
    """A running proxy; `dsn` leads through it. Its methods may be called from any thread."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        place = parse_qs(parts.query)
        socket_path = Path(place["host"][0], f".s.PGSQL.{place['port'][0]}")
        self._line = ProxyLine("test", socket_path, database=parts.path[1:])
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    @property
    def dsn(self) -> str:
        return self._line.dsn

    @property
    def port(self) -> int:
        return self._line.port

    @property
    def connection_count(self) -> int:
        return self._line.connection_count

    def start(self) -> None:
        self._thread.start()
        self.heal()

    def blackhole(self, *, up: bool = True, down: bool = True) -> None:
        """Connections stay, new ones are accepted, but nothing passes: to the server, from it."""
        self._call(lambda: self._line.blackhole(up=up, down=down))

    def slow(self, delay_s: float) -> None:
        """Let everything pass so much later, in both directions."""
        self._call(lambda: self._line.slow(delay_s))

    def reset(self) -> None:
        """Cut every connection; new ones pass."""
        self._call(self._line.reset)

    def refuse(self) -> None:
        """Cut every connection and take no new ones."""
        self._call(self._line.refuse)

    def heal(self) -> None:
        """Let everything pass again, what a black hole held back included."""
        asyncio.run_coroutine_threadsafe(self._line.heal(), self._loop).result(10)

    def close(self) -> None:
        self._call(self._line.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)


@contextmanager
def proxy(dsn: str) -> Iterator[Proxy]:
    """Run a proxy in front of the server of a unix-socket DSN until the block is left."""
    running = Proxy(dsn)
    running.start()
    try:
        yield running
    finally:
        running.close()
