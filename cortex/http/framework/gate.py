"""What every request passes, in and out: rate limits, the pod's end, errors, headers, the log.

Owns: the buckets of the addresses.
Invariants: each answer has the headers that keep browsers from doing anything with it; errors are
problem documents and tell nothing of the inside; the log has neither query strings nor headers. A
body that nobody read is taken in and dropped, bounded, so that its sender gets to read the answer.

On failure: of a handler, a problem document with a number that the log has; after the answer has
begun, the connection is cut, so that nobody takes half of it for the whole.
"""

from typing import Final
from urllib.parse import quote

import attrs
import structlog
import trio
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cortex.domain.safe import safe
from cortex.http.framework.api import PodView
from cortex.http.framework.limits import Buckets, Rate, household
from cortex.http.framework.origin import address_of
from cortex.http.framework.problem import RateLimitedError, cortex_error_in, fault, response_to

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex",
}
"""Of every answer that does not bring its own."""
UNREAD_BYTES_MAX: Final = 4_194_304
UNREAD_BOUND_S: Final = 2.0
"""How much of an unwanted body is taken in: who sends more may miss the answer."""
PATH_SHOWN_MAX: Final = 200

UNLIMITED: Final = frozenset({"/healthz", "/readyz"})
"""Cost nothing, and are asked by those who would end a pod that does not answer."""

WHO: Final = "cortex.who"
NUMBER: Final = "cortex.number"
TEMPLATE: Final = "cortex.template"
"""Of the path, as its route declares it."""
_CLIENT_GONE: Final = 499  # as nginx logs it
_log = structlog.get_logger(__name__)


class Gate:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, *, pod: PodView, rate: Rate, number: "Numbers") -> None:
        self._app = app
        self._pod = pod
        self._number = number
        self._buckets: Buckets[str] = Buckets(rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise AssertionError(f"no connection of ours speaks {scope['type']}")
        began = trio.current_time()
        scope[NUMBER] = self._number()
        exchange = _Exchange(
            receive=receive,
            raw_send=send,
            is_unread=_has_body(scope),
            is_last=self._pod.draining.is_set(),
        )
        try:
            await self._let_in(scope, exchange)
        except ClientDisconnect:
            exchange.status = _CLIENT_GONE
        finally:
            took_s = trio.current_time() - began
            self._note(scope, exchange, took_s)
            self._pod.answered(
                route=scope.get(TEMPLATE),
                method=scope["method"],
                status=exchange.status or _CLIENT_GONE,
                seconds=took_s,
            )

    async def _let_in(self, scope: Scope, exchange: "_Exchange") -> None:
        try:
            self._limit(scope)
            await self._app(scope, exchange.take, exchange.give)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 -- the outermost place of a request
            number: str = scope[NUMBER]
            told = cortex_error_in(error)
            response = (
                fault(instance=number) if told is None else response_to(told, instance=number)
            )
            if response.status_code == 500:  # noqa: PLR2004 -- a fault in Cortex
                _log.exception("request failed", number=number, method=scope["method"])
            if exchange.status is None:
                await response(scope, exchange.take, exchange.give)
            elif told is not None:
                _log.warning("answer cut off", number=number, error=told.message)

    def _limit(self, scope: Scope) -> None:
        if scope["path"] in UNLIMITED:
            return
        wait_s = self._buckets.take(household(address_of(scope)))
        if wait_s > 0:
            raise RateLimitedError("too many requests came from this address", wait_s=wait_s)

    def _note(self, scope: Scope, exchange: "_Exchange", took_s: float) -> None:
        write = _log.debug if scope["path"] in UNLIMITED else _log.info
        write(
            "request",
            method=safe(scope["method"]),
            path=_shown(scope["path"]),
            status=exchange.status,
            ms=round(1000 * took_s, 1),
            who=safe(scope.get(WHO, "nobody")),
            address=address_of(scope),
            number=scope[NUMBER],
        )


class Numbers:
    """Gives each request a number of its own."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0

    def __call__(self) -> str:
        """Return the next one."""
        self._count += 1
        return f"{self._prefix}-{self._count}"


@attrs.define
class _Exchange:
    """One request and its answer, as they pass."""

    receive: Receive
    raw_send: Send
    is_unread: bool
    """There is, or may be, more of the body."""
    is_last: bool
    """The connection is to be closed after it."""
    status: int | None = None

    async def take(self) -> Message:
        message = await self.receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self.is_unread = False
        return message

    async def give(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if self.is_last or self.is_unread:
                headers["Connection"] = "close"
        is_end = message["type"] == "http.response.body" and not message.get("more_body", False)
        if is_end and self.is_unread:
            await self.raw_send({**message, "more_body": True})
            await self._drop_unread()
        else:
            await self.raw_send(message)

    async def _drop_unread(self) -> None:
        """Take in what is still sent, so that the sender comes to read; then end the answer."""
        size = 0
        with trio.move_on_after(UNREAD_BOUND_S):
            while self.is_unread and size < UNREAD_BYTES_MAX:
                size += len((await self.take()).get("body", b""))
        async with trio.open_nursery() as nursery:
            # Beside the end: a full queue of pieces would hold it up for ever.
            nursery.start_soon(self._drop)
            await self.raw_send({"type": "http.response.body", "body": b"", "more_body": False})
            nursery.cancel_scope.cancel(reason="answered")

    async def _drop(self) -> None:
        while (await self.take())["type"] != "http.disconnect":
            pass


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return (
        b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0") != b""
    )


def _shown(path: str) -> str:
    return safe(quote(path, safe="/:@!$&'()*+,;=-._~")[:PATH_SHOWN_MAX])
