"""A webhook receiver for measurements: answers each request and reads nothing of it."""

import json
import re
import sys
from typing import Final

import trio

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


async def serve(stream: trio.SocketStream) -> None:
    """Answer the requests of one connection."""
    waiting = b""
    try:
        async for chunk in stream:
            waiting += chunk
            while (end := waiting.find(_END)) >= 0:
                length = _LENGTH.search(waiting, 0, end)
                size = end + len(_END) + (int(length[1]) if length else 0)
                if len(waiting) < size:
                    break
                waiting = waiting[size:]
                await stream.send_all(_OK)
    except trio.BrokenResourceError:
        return


async def main() -> None:
    """Serve on a port of its own, and print it."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    await trio.serve_listeners(serve, [listener])


if __name__ == "__main__":
    trio.run(main)
