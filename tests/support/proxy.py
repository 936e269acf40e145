"""A TCP proxy in front of Postgres, whose network a test can break: black hole, refusal, reset."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

CHUNK_BYTES = 65_536


class Proxy:
    """A running proxy; `dsn` leads through it. Its methods may be called from any thread."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        place = parse_qs(parts.query)
        self._socket_path = f"{place['host'][0]}/.s.PGSQL.{place['port'][0]}"
        self._database = parts.path
        self._loop = asyncio.SelectorEventLoop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._relays: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self.port = 0
        self.connection_count = 0

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}{self._database}"

    def start(self) -> None:
        self._thread.start()
        self._call(self._listen())

    def blackhole(self) -> None:
        """Connections stay and new ones are accepted, but nothing passes in either direction."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def reset(self) -> None:
        """Cut every connection; new ones pass."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Cut every connection and take no new ones."""
        self._call(self._close())

    def heal(self) -> None:
        """Let everything pass again, what a black hole held back included."""
        self._loop.call_soon_threadsafe(self._flowing.set)
        if self._server is None:
            self._call(self._listen())

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _end(self) -> None:
        await self._close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        relay = asyncio.current_task()
        assert relay is not None
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)
        try:
            there = await asyncio.open_unix_connection(self._socket_path)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there[1]}
        self._writers |= ends
        await asyncio.gather(self._pump(reader, there[1]), self._pump(there[0], writer))
        self._writers -= ends

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                await self._flowing.wait()
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass  # one side is gone: so is the other, below
        await self._flowing.wait()
        writer.transport.abort()


@contextmanager
def proxy(dsn: str) -> Iterator[Proxy]:
    """Run a proxy in front of the server of a unix-socket DSN until the block is left."""
    running = Proxy(dsn)
    running.start()
    try:
        yield running
    finally:
        running.close()
