"""A server on loopback that answers with given bytes and keeps what it was asked."""

import trio

from cortex.http_client.addresses import AllowedAddresses

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


class WebServer:
    """Answers every request on each connection, until `hangs` or `reply` ends it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []
        self.connections = 0
        self.reply = OK
        self.endless: bytes | None = None
        """Sent again and again after `reply`."""
        self.hangs = False

    @property
    def allowed(self) -> AllowedAddresses:
        return AllowedAddresses.parse(
            f"127.0.0.1:{self.port},one.test:{self.port},two.test:{self.port}"
        )

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        received = b""
        try:
            while chunk := await stream.receive_some():
                received += chunk
                if b"\r\n\r\n" not in received:
                    continue
                self.asked.append(received.decode("latin-1"))
                received = b""
                if self.hangs:
                    await trio.sleep_forever()
                await stream.send_all(self.reply)
                while self.endless is not None:
                    await stream.send_all(self.endless)
        except trio.BrokenResourceError:
            return  # the client has read as much as it wants


async def open_server(nursery: trio.Nursery) -> WebServer:
    """Serve until the nursery ends."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = WebServer(listener.socket.getsockname()[1])
    nursery.start_soon(trio.serve_listeners, server.serve, [listener])
    return server
