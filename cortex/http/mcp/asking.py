"""Asks the routes of the HTTP API within the process, without a socket.

So a tool checks arguments, rights and tenants, and writes, as the route does.
"""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import attrs
import trio
from starlette.types import ASGIApp, Message

from cortex.domain.errors import CortexError
from cortex.http.framework.route import Method

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Results of jobs may be large; what a tool returns of them is bounded by `answers`."""


@attrs.frozen(kw_only=True)
class Caller:
    """Who asks."""

    authorization: str | None = attrs.field(repr=False)
    address: str
    client: str | None = None
    """The name that the assistant's program gives itself."""


@attrs.frozen(kw_only=True)
class Ask:
    """One request."""

    method: Method
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None
    key: str | None = None


@attrs.frozen
class Answer:
    """Status and document of a response."""

    status: int
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)

    @property
    def is_error(self) -> bool:
        return self.status >= 400  # noqa: PLR2004


class AnswerTooLargeError(CortexError):
    """A response is too large to be read."""

    code = "too_large"


class InProcess:
    """The application of the routes, as their only client here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, ask: Ask, caller: Caller) -> Answer:
        """Return the response. Raises `AnswerTooLargeError`; other errors are responses."""
        raw = b"" if ask.body is None else json.dumps(ask.body).encode("utf-8", "surrogatepass")
        status, pieces, size = 0, [], 0
        is_sent = False

        async def receive() -> Message:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                return {"type": "http.request", "body": raw, "more_body": False}
            await trio.sleep_forever()
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                return
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > ANSWER_BYTES_MAX:
                raise AnswerTooLargeError(
                    f"the answer has more than {ANSWER_BYTES_MAX >> 20} MB",
                    hint="look at it with the `cortex` command",
                )

        await self._app(_scope(ask, caller, size=len(raw)), receive, send)
        return Answer(status, b"".join(pieces).decode())


def _scope(ask: Ask, caller: Caller, *, size: int) -> dict[str, Any]:
    headers = {"host": "cortex"}
    if caller.authorization is not None:
        headers["authorization"] = caller.authorization
    if caller.client is not None:
        headers["user-agent"] = caller.client
    if ask.body is not None:
        headers |= {"content-type": "application/json", "content-length": str(size)}
    if ask.key is not None:
        headers["idempotency-key"] = ask.key
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": ask.method.value,
        "scheme": "http",
        "path": ask.path,
        "raw_path": ask.path.encode(),
        "query_string": urlencode(ask.query).encode(),
        "root_path": "",
        "headers": [
            (name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()
        ],
        "client": (caller.address, 0),
        "server": None,
    }
