"""A receiver of webhooks on a thread, for real pods: keeps what it was sent, takes everything."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs


@attrs.define
class Received:
    """Requests of a receiver, in order."""

    bodies: list[dict[str, Any]] = attrs.field(factory=list)
    """Each with its message id as `id`."""

    @property
    def topics(self) -> list[str]:
        return [each["type"] for each in self.bodies]


@contextmanager
def receiving_in_a_thread() -> Iterator[tuple[str, Received]]:
    """Run a receiver in the body; yield its URL and what it gets."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            received.bodies.append({**body, "id": self.headers["webhook-id"]})
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", received
    finally:
        server.shutdown()
        server.server_close()
