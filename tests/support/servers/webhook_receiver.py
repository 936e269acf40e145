"""A receiver of webhooks on trio: keeps what it was sent, and answers as a test asks."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import h11
import trio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@attrs.frozen
class Posted:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def status(code: int, *headers: str, body: str = "") -> bytes:
    """An answer with this status."""
    lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


@attrs.define
class Receiver:
    """Listens on a port of its own; `answer` decides about each request: None hangs."""

    port: int
    answer: Callable[[Posted], bytes | None] = lambda _: OK
    posted: list[Posted] = attrs.field(factory=list)
    connections: int = 0
    has_posted: trio.Event = attrs.field(factory=trio.Event)
    on_posted: Callable[[], Awaitable[None]] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [each.message_id for each in self.posted]

    async def until_posted(self, count: int) -> None:
        while len(self.posted) < count:
            await self.has_posted.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        connection = h11.Connection(h11.SERVER)
        path, headers, body = "", {}, b""
        try:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(65_536))
                elif isinstance(event, h11.Request):
                    path, body = event.target.decode(), b""
                    headers = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    await self._answer(stream, Posted(path, headers, body))
                    connection = h11.Connection(h11.SERVER)
                else:
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            return

    async def _answer(self, stream: trio.SocketStream, posted: Posted) -> None:
        self.posted.append(posted)
        self.has_posted.set()
        self.has_posted = trio.Event()
        if self.on_posted is not None:
            await self.on_posted()
        answer = self.answer(posted)
        if answer is None:
            await trio.sleep_forever()
        else:
            await stream.send_all(answer)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Run a receiver in the body."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        receiver = Receiver(listener.socket.getsockname()[1])
        await nursery.start(trio.serve_listeners, receiver.serve, [listener])
        yield receiver
        nursery.cancel_scope.cancel()
