"""The protocol over HTTP, under the rules for all requests that leave a pod.

Each request resolves its host once and connects to the address that was checked; proxies and
certificates are those of `cortex.http_client`. A redirect is never followed, and a secret is put
into a header on the way out, for the hosts that it is meant for.
"""

import re
import secrets as random_secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import orjson

from cortex.agent.mcp.rate import Rate
from cortex.agent.mcp.stdio import MESSAGE_MAX
from cortex.agent.mcp.terms import McpServer
from cortex.agent.secrets import Secrets
from cortex.domain.classification import class_of_status, code_of_status
from cortex.domain.effect import NotSentError
from cortex.domain.errors import CortexError, UnavailableError
from cortex.domain.failure import Failure
from cortex.http_client.addresses import AllowedAddresses, resolve
from cortex.http_client.client import SERVER_ERROR, UNSETTLED_STATUSES, origin_of
from cortex.http_client.proxies import Proxies, library_proxy, require_public
from cortex.http_client.redirects import not_followed
from cortex.http_client.tls import trusted

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

CONNECT_S: Final = 10.0
NOT_SENT: Final = -random_secrets.randbelow(1 << 48) - (1 << 16)
"""The code of the error that stands for a call that did not leave the pod: no server knows it."""
REFUSAL_MAX: Final = 65_536
"""Bytes of an answer with an error status that are read."""
NOT_DONE: Final = -32_600
FAILED: Final = -32_603
"""The protocol's codes for a request that is refused, and for a server that has failed."""
OK: Final = 200
REFUSED: Final = 400
NOT_FOUND: Final = 404
NOT_ALLOWED: Final = 405


class RefusedError(CortexError):
    """A server refused a request by its status; `failure` classifies it."""

    code = "mcp_refused"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.failure = Failure(
            cls=class_of_status(status), code=code_of_status(status) or self.code, message=message
        )


@attrs.define
class Trouble:
    """The last error of a session's requests, which the library does not pass on."""

    error: CortexError | None = None


@asynccontextmanager
async def message_streams(
    server: McpServer,
    secrets: Secrets,
    trouble: Trouble,
    *,
    quiet_s: float,
    on_end: Callable[[str], None],
) -> "AsyncIterator[TransportStreams]":
    """Lend the streams that a session of the library works on; `quiet_s` without any byte.

    `on_end` gets the reason when the server has to be left.
    """
    import httpx2  # noqa: PLC0415 -- with the library only
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    url = server.url or ""
    transport = _Guarded(headers=server.headers, secrets=secrets, trouble=trouble, on_end=on_end)
    timeout = httpx2.Timeout(quiet_s, connect=CONNECT_S)
    client = httpx2.AsyncClient(transport=_library(transport), timeout=timeout, trust_env=False)
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MESSAGE_MAX) as streams,
    ):
        yield streams


@attrs.define
class _Guarded:
    """Sends requests to permitted addresses only."""

    headers: Mapping[str, str]
    secrets: Secrets
    trouble: Trouble
    on_end: Callable[[str], None]
    rate: Rate = attrs.field(factory=Rate)
    _allowed: AllowedAddresses = attrs.field(factory=AllowedAddresses.of_environment)
    _proxies: Proxies = attrs.field(factory=Proxies.of_environment)
    _ways: dict[str, Any] = attrs.field(factory=dict)
    """By proxy, the library's transport."""

    async def send(self, request: "httpx2.Request") -> "httpx2.Response":
        import httpx2  # noqa: PLC0415 -- with the library only

        try:
            return await self._sent(request)
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            self.trouble.error = UnavailableError(f"broke off: {reason}")
            raise
        except CortexError as error:
            if not isinstance(error, RefusedError) and _is_call(request):
                return _error(NOT_SENT, error.message)
            self.trouble.error = error
            raise httpx2.ConnectError(error.message) from error

    async def _sent(self, request: "httpx2.Request") -> "httpx2.Response":
        import httpx2  # noqa: PLC0415 -- with the library only

        origin = origin_of(request.url)
        self.rate.add()
        proxy = self._proxies.of(origin)
        if proxy is None:
            addresses = await resolve(origin[1], origin[2], self._allowed)
        else:
            await require_public(origin[1], origin[2], self._allowed)
            addresses = (origin[1],)
        for name, value in self.headers.items():
            request.headers[name] = self.secrets.in_header(value, origin)
        request.headers["Accept-Encoding"] = "identity"
        request.headers["Host"] = request.url.netloc.decode()
        way = self._way("" if proxy is None else proxy.url, proxy)
        refusal: httpx2.TransportError | None = None
        for address in addresses:
            sent = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": origin[1]},
            )
            try:
                response = await way.handle_async_request(sent)
            except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
                refusal = error
                continue
            return await self._judged(request, response)
        raise NotSentError(f"cannot be reached: {refusal or 'no address'}") from refusal

    async def _judged(
        self, request: "httpx2.Request", response: "httpx2.Response"
    ) -> "httpx2.Response":
        import httpx2  # noqa: PLC0415 -- with the library only

        status = response.status_code
        if response.has_redirect_location:
            await response.aclose()
            reason = not_followed(str(request.url), response.headers["location"])
            raise RefusedError(f"answered with status {status}: {reason}", status=status)
        if status >= REFUSED and status != NOT_FOUND and _is_call(request):
            return await _refusal(response)
        is_usual = request.method != "POST" or status in (NOT_FOUND, NOT_ALLOWED)
        if status >= REFUSED and not is_usual:
            self.trouble.error = RefusedError(f"answered with status {status}", status=status)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        body: Any = response.stream
        stream = (
            _Events(aiter(body), self.rate, self.on_end)
            if is_stream
            else _Capped(aiter(body), self.trouble)
        )
        return httpx2.Response(
            status,
            headers=response.headers,
            stream=_library_stream(stream, response),
            extensions=response.extensions,
        )

    def _way(self, name: str, proxy: Any) -> Any:
        import httpx2  # noqa: PLC0415 -- with the library only

        if name not in self._ways:
            self._ways[name] = httpx2.AsyncHTTPTransport(
                verify=trusted(),
                trust_env=False,
                proxy=None if proxy is None else library_proxy(proxy),
            )
        return self._ways[name]

    async def close(self) -> None:
        while self._ways:
            await self._ways.popitem()[1].aclose()


def _is_call(request: "httpx2.Request") -> bool:
    """Return whether a request calls a tool."""
    if request.method != "POST":
        return False
    message = orjson.loads(request.content)
    return isinstance(message, dict) and message.get("method") == "tools/call"


async def _refusal(response: "httpx2.Response") -> "httpx2.Response":
    """Return the answer to a refused call with its status, unless it is an error of the protocol.

    The library knows one text for all statuses.
    """
    import httpx2  # noqa: PLC0415 -- with the library only

    body, status = bytearray(), response.status_code
    try:
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > REFUSAL_MAX:
                break
        message = orjson.loads(body)
        if isinstance(message, dict) and message.keys() >= {"jsonrpc", "error"}:
            return httpx2.Response(status, json=message)
    except (httpx2.TransportError, orjson.JSONDecodeError):
        pass  # the status is enough
    finally:
        await response.aclose()
    is_open = status >= SERVER_ERROR or status in UNSETTLED_STATUSES
    return _error(FAILED if is_open else NOT_DONE, f"answered with status {status}")


def _error(code: int, message: str) -> "httpx2.Response":
    """Answer a call as an error of the protocol.

    Without that, the library would end the session, or lose which of several calls it was.
    """
    import httpx2  # noqa: PLC0415 -- with the library only

    error = {"code": code, "message": message}
    return httpx2.Response(503, json={"jsonrpc": "2.0", "id": None, "error": error})


@attrs.define
class _Capped:
    """A body of bounded size, read piece by piece."""

    chunks: AsyncIterator[bytes]
    trouble: Trouble
    count: int = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        import httpx2  # noqa: PLC0415 -- with the library only

        chunk = await anext(self.chunks)
        self.count += len(chunk)
        if self.count > MESSAGE_MAX:
            text = f"answered with more than {MESSAGE_MAX >> 20} MiB"
            self.trouble.error = UnavailableError(text)
            raise httpx2.StreamError(text)
        return chunk


@attrs.define
class _Events:
    """A body of events without an end, of bounded speed."""

    chunks: AsyncIterator[bytes]
    rate: Rate
    on_end: Callable[[str], None]
    _tail: bytes = b""
    """The line breaks at the end of the chunk before."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        import httpx2  # noqa: PLC0415 -- with the library only

        chunk = await anext(self.chunks)
        events = len(_EVENT_END.findall(self._tail + chunk))
        self._tail = b"\n" if chunk.endswith((b"\n", b"\r")) else b""
        try:
            self.rate.add(events, size=len(chunk))
        except UnavailableError as error:
            self.on_end(error.message)
            raise httpx2.StreamError(error.message) from error
        return chunk


_EVENT_END: Final = re.compile(rb"\n\r?\n|\r\r")


def _library(guarded: _Guarded) -> "httpx2.AsyncBaseTransport":
    import httpx2  # noqa: PLC0415 -- with the library only

    class Transport(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            return await guarded.send(request)

        async def aclose(self) -> None:
            await guarded.close()

    return Transport()


def _library_stream(stream: Any, response: "httpx2.Response") -> "httpx2.AsyncByteStream":
    import httpx2  # noqa: PLC0415 -- with the library only

    class Stream(httpx2.AsyncByteStream):
        def __aiter__(self) -> AsyncIterator[bytes]:
            return aiter(stream)

        async def aclose(self) -> None:
            await response.aclose()

    return Stream()
