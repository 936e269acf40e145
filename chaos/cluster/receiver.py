"""The receivers of messages: a web server that no pod can correct, with every delivery it got.

    POST /SUBSCRIPTION    one message: header webhook-id, and the body of a Standard Webhook

It serves on its own threads. Of some messages, drawn by their ids, it refuses the first delivery,
or takes it and cuts the connection before the answer. It may be away at first.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from uuid import UUID

from attrs import frozen

from chaos.cluster.threaded_server import Listener, ThreadedServer

ID_HEADER: Final = "webhook-id"
TROUBLED_EACH: Final = 32
"""Of this many messages one is refused once, and one is taken without an answer."""


@frozen(kw_only=True)
class Received:
    """One delivery of a message."""

    subscription: str
    message: str
    """Its id, as it was sent."""
    body: dict[str, Any]
    at: float
    """By the monotonic clock, in seconds."""
    is_accepted: bool


class _Listener(Listener):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what went wrong, unless the sender was killed between two messages."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Receiver(ThreadedServer):
    """A running receiver; `url` is its address. Its methods may be called from any thread."""

    LISTENER = _Listener

    def __init__(self, *, is_troubled: bool = True, away_s: float = 0.0) -> None:
        """`is_troubled`: it refuses some deliveries, and leaves some without an answer.

        `away_s`: from the first delivery to a subscription on it refuses all of them for so long.
        """
        self._is_troubled = is_troubled
        self._away_s = away_s
        self._back_at: dict[str, float] = {}
        self._lock = threading.Lock()
        self._received: list[Received] = []
        self._known: set[tuple[str, str]] = set()
        super().__init__(type("Handler", (_Handler,), {"receiver": self}))

    def received(self) -> list[Received]:
        """Every delivery, in order."""
        with self._lock:
            return self._received.copy()

    def take(self, subscription: str, message: str, body: dict[str, Any]) -> int | None:
        """Note a delivery; return the status of the answer, None for none."""
        drawn = _drawn(message) if self._is_troubled else None
        with self._lock:
            is_first = (subscription, message) not in self._known
            self._known.add((subscription, message))
            now = time.monotonic()
            is_away = now < self._back_at.setdefault(subscription, now + self._away_s)
            is_refused = (is_first and drawn == 0) or is_away
            delivery = Received(
                subscription=subscription,
                message=message,
                body=body,
                at=time.monotonic(),
                is_accepted=not is_refused,
            )
            self._received.append(delivery)
        if is_refused:
            return 503
        return None if is_first and drawn == 1 else 204


def _drawn(message: str) -> int:
    try:
        return UUID(message).int % TROUBLED_EACH
    except ValueError:
        return TROUBLED_EACH


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # pods keep their connections
    receiver: Receiver

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        sent = self.rfile.read(length)
        if len(sent) < length:
            self.close_connection = True
            return  # the sender was killed meanwhile
        status = self.receiver.take(self.path[1:], self.headers[ID_HEADER], json.loads(sent))
        if status is None:
            self.close_connection = True
            return
        try:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        except OSError:
            self.close_connection = True  # the sender was killed meanwhile

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""
