"""The scripted MCP server over streamable HTTP, as strict as the specification lets a server be.

It refuses a POST that does not accept both JSON and event streams, and after the handshake one
without the session's id or the protocol's version (MCP 2025-11-25, "Transports").
"""

import json
from typing import Any

import attrs
import trio

from tests.support.servers.mcp_server import VERSION, Server


class _Told(Server):
    """Collects what the server sends for one request."""

    def __init__(self, how: dict[str, Any]) -> None:
        super().__init__(how)
        self.sent: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self.sent.append({"jsonrpc": "2.0", **message})


@attrs.define
class HttpMcpServer:
    """Answers on loopback; `reply` replaces every answer, byte for byte."""

    how: dict[str, Any]
    port: int = 0
    requests: list[dict[str, str]] = attrs.field(factory=list)
    """The headers of each, with `:method`."""
    reply: bytes | None = None
    as_events: bool = False
    flood: bytes | None = None
    """A stream of events without an end, which answers a GET."""
    restarts: int = 0
    """How often it has forgotten its sessions."""
    running: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled, it refuses connections, and has ended those it had."""
    server: _Told = attrs.field(
        default=attrs.Factory(lambda self: _Told(self.how), takes_self=True)
    )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def serve(self, stream: trio.SocketStream) -> None:
        received = b""
        try:
            while chunk := await stream.receive_some():
                received += chunk
                head, split, body = received.partition(b"\r\n\r\n")
                headers = _headers(head)
                if not split or len(body) < int(headers.get("content-length", 0)):
                    continue
                received = b""
                self.requests.append(headers)
                if self.flood is not None and headers[":method"] == "GET":
                    await stream.send_all(_EVENTS)
                    while True:
                        await stream.send_all(self.flood)
                await stream.send_all(self._answer(headers, body))
        except trio.BrokenResourceError:
            return

    @property
    def session(self) -> str:
        return f"session-{self.restarts}"

    def _refusal(self, headers: dict[str, str], message: dict[str, Any]) -> int | None:
        accepted = headers.get("accept", "")
        if "application/json" not in accepted or "text/event-stream" not in accepted:
            return 406
        if message.get("method") in ("initialize", "server/discover"):
            return None
        if "mcp-session-id" not in headers or headers.get("mcp-protocol-version") != VERSION:
            return 400
        return None if headers["mcp-session-id"] == self.session else 404

    def _answer(self, headers: dict[str, str], body: bytes) -> bytes:
        if self.reply is not None:
            return self.reply
        if headers[":method"] != "POST":
            return _reply(405 if headers[":method"] == "GET" else 200)
        message = json.loads(body)
        if (status := self._refusal(headers, message)) is not None:
            return _reply(status)
        self.server.sent = []
        self.server.take(message)
        if "id" not in message:
            return _reply(202)
        if self.as_events:
            text = "".join(f"data: {json.dumps(each)}\n\n" for each in self.server.sent)
            return _reply(200, text, kind="text/event-stream", session=self.session)
        return _reply(200, json.dumps(self.server.sent[-1]), session=self.session)


_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def _headers(head: bytes) -> dict[str, str]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines if ": " in line)
    return {":method": first.split(" ")[0], **{name.lower(): value for name, value in pairs}}


def _reply(status: int, text: str = "", kind: str = "application/json", session: str = "") -> bytes:
    own = f"Mcp-Session-Id: {session}\r\n" if session else ""
    head = (
        f"HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\n{own}"
        f"Content-Length: {len(text.encode())}\r\n\r\n"
    )
    return head.encode() + text.encode()


async def open_server(nursery: trio.Nursery, *tools: Any, **fields: Any) -> HttpMcpServer:
    """Serve until the nursery ends."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    server = HttpMcpServer({"tools": tools}, port, **fields)

    async def serve() -> None:
        with server.running:
            await trio.serve_listeners(server.serve, [listener])

    nursery.start_soon(serve)
    return server
