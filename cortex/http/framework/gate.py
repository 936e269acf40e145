"""The gate of every request: rate limits, the pod's end, errors, headers, the log.

Owns: the buckets of the addresses.
Invariants: each response has headers that restrict browsers; errors are problem documents and
reveal no internals; the log has neither query strings nor headers. An unread body is read and
dropped, within a bound, so that its sender reads the response.

On failure of a handler: a problem document with a number that is in the log as well; after the
response has begun, the connection is cut, so that half of it does not pass for the whole.
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
from cortex.http.framework.origin import ORIGIN, address_of, origin_of
from cortex.http.framework.problem import RateLimitedError, cortex_error_in, fault, response_to

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex",
}
"""Headers of every response that does not set its own."""
UNREAD_BYTES_MAX: Final = 4_194_304
UNREAD_BOUND_S: Final = 2.0
"""Time to read an unwanted body; a client that sends more may miss the response."""
PATH_SHOWN_MAX: Final = 200

UNLIMITED: Final = frozenset({"/healthz", "/readyz"})
"""Cheap, and requested by supervisors that would end an unresponsive pod."""

WHO: Final = "cortex.who"
NUMBER: Final = "cortex.number"
TEMPLATE: Final = "cortex.template"
"""Scope key of the path template of the route."""
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
            raise AssertionError(f"unsupported connection type {scope['type']}")
        began = trio.current_time()
        scope[NUMBER] = self._number()
        scope[ORIGIN] = origin_of(scope, self._pod.proxies)
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
            text = cortex_error_in(error)
            response = (
                fault(instance=number) if text is None else response_to(text, instance=number)
            )
            if response.status_code == 500:  # noqa: PLR2004 -- a fault in Cortex
                _log.exception("request failed", number=number, method=scope["method"])
            if exchange.status is None:
                await response(scope, exchange.take, exchange.give)
            elif text is not None:
                _log.warning("response cut off", number=number, error=text.message)

    def _limit(self, scope: Scope) -> None:
        if scope["path"] in UNLIMITED:
            return
        wait_s = self._buckets.take(household(address_of(scope)))
        if wait_s > 0:
            raise RateLimitedError("too many requests from this address", wait_s=wait_s)

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
    """Gives each request its own number."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"


@attrs.define
class _Exchange:
    """One request and its response in transit."""

    receive: Receive
    raw_send: Send
    is_unread: bool
    """More of the body may follow."""
    is_last: bool
    """The connection closes after this response."""
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
        """Read and drop the rest of the body, so that the sender reads the response."""
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
