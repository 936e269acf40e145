"""Calling the web, but nothing that only this machine or its network can reach."""

import functools
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any, Literal

import attrs
import httpx2
import trio

from cortex.agent.addresses import SETTING, Allowed, resolve
from cortex.agent.tool import ToolContext, tool
from cortex.domain.errors import (
    InvalidValueError,
    RejectedError,
    TimedOutError,
    UnavailableError,
)

BODY_MAX_BYTES = 1_048_576
REDIRECTS_MAX = 5
HOST_CHARS_MAX = 253  # what DNS can carry
QUIET_S = 60.0
CONNECT_S = 10.0
TIMEOUT = httpx2.Timeout(QUIET_S, connect=CONNECT_S)
PORTS = {"http": 80, "https": 443}
# Ours to say: they decide who is asked, and how the bytes are framed.
RESERVED_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding"}
)
# Meant for the first host only; a redirect to another one must not carry them along.
CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
# The rest of Python's codecs are not for the web: some are slow, some give no text.
WEB_CHARSETS = re.compile(
    r"us-ascii|iso-8859-\d{1,2}|windows-125\d|koi8-[ru]|shift_jis|euc-(jp|kr)|gb(k|2312|18030)|big5",
    re.IGNORECASE,
)
DROP_BODY = frozenset({301, 302, 303})

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@attrs.frozen
class Reply:
    """What came back, whatever its status; `url` is the last one after redirects."""

    status: int
    url: str
    headers: dict[str, str]
    body: str


@attrs.frozen
class Hop:
    """One request of a chain of redirects."""

    method: str
    url: httpx2.URL
    headers: httpx2.Headers
    body: bytes | None


def _breaker(arguments: Any) -> str | None:
    """One for each host; None for what is no URL, which is refused before anybody is asked."""
    try:
        _, host, _ = _origin(_parse(arguments.url))
    except InvalidValueError:
        return None
    return f"http:{host.lower()}" if len(host) <= HOST_CHARS_MAX else None


@tool(breaker=_breaker)
async def http_request(
    context: ToolContext,  # noqa: ARG001 - every built-in tool takes it
    url: str,
    method: Method = "GET",
    headers: dict[str, str] | None = None,
    body: str | None = None,
) -> Reply:
    """Send an HTTP request and return the status, the headers and the body.

    An error status such as 404 is returned like any other. Up to 5 redirects are followed. A body
    over 1 MiB is cut and says so; a binary one is left out. Only public addresses are reachable.

    Args:
        url: The address, starting with http:// or https://.
        method: GET unless something is to be sent or changed.
        headers: Headers to send, such as {"Accept": "application/json"}.
        body: The text to send; say what it is in a Content-Type header.
    """
    allowed = Allowed.parse(os.environ.get(SETTING, ""))
    hop = Hop(
        method=method,
        url=_parse(url),
        headers=_headers(headers or {}),
        body=None if body is None else body.encode(),
    )
    for _ in range(REDIRECTS_MAX + 1):
        answer = await _ask(hop, allowed)
        if isinstance(answer, Reply):
            return answer
        hop = answer
    raise RejectedError(f"{url} redirects more than {REDIRECTS_MAX} times")


async def _ask(hop: Hop, allowed: Allowed) -> Reply | Hop:
    """Send one request to the first address that takes a connection."""
    _, host, port = _origin(hop.url)
    refusal: httpx2.HTTPError | None = None
    for address in await resolve(host, port, allowed):
        try:
            return await _ask_at(address, hop)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            refusal = error
        except httpx2.LocalProtocolError as error:
            raise InvalidValueError(f"http_request: {error}") from error
        except httpx2.TimeoutException as error:
            raise TimedOutError(
                f"{hop.url} was silent for {QUIET_S:g} seconds", scope="idle", limit_s=QUIET_S
            ) from error
        except httpx2.HTTPError as error:
            raise UnavailableError(f"{hop.url} broke off: {_reason(error)}") from error
    if isinstance(refusal, httpx2.ConnectTimeout):
        raise TimedOutError(
            f"{hop.url} gave no connection within {CONNECT_S:g} seconds",
            scope="connect",
            limit_s=CONNECT_S,
        ) from refusal
    raise UnavailableError(f"{hop.url} cannot be reached: {_reason(refusal)}") from refusal


def _reason(error: BaseException | None) -> str:
    """The words of the first error of the chain that has any: a refused certificate lies deep.

    The library cuts the chain once, but keeps the next error as an argument.
    """
    while error is not None and not str(error):
        following = error.__cause__ or next(iter(error.args), None)
        if not isinstance(following, BaseException):
            break
        error = following
    return str(error) or type(error).__name__


async def _ask_at(address: str, hop: Hop) -> Reply | Hop:
    """Connect to `address` itself, so that no second look-up can lead elsewhere.

    The host's name still goes into the Host header and into the check of its certificate.
    """
    async with httpx2.AsyncClient(verify=_tls(), trust_env=False, timeout=TIMEOUT) as client:
        request = client.build_request(
            hop.method,
            hop.url.copy_with(host=address),
            headers=[*hop.headers.multi_items(), ("Host", hop.url.netloc.decode())],
            content=hop.body,
            extensions={"sni_hostname": _origin(hop.url)[1]},
        )
        response = await client.send(request, stream=True)
        try:
            if response.has_redirect_location:
                return _redirected(hop, response)
            return Reply(
                status=response.status_code,
                url=str(hop.url),
                headers=dict(response.headers),
                body=await _body(response),
            )
        finally:
            await response.aclose()


def _redirected(hop: Hop, response: httpx2.Response) -> Hop:
    url = _parse(response.headers["location"], base=hop.url)
    headers, method, body = hop.headers.copy(), hop.method, hop.body
    if _origin(url) != _origin(hop.url):
        for name in CREDENTIAL_HEADERS & set(headers):
            del headers[name]
    if response.status_code in DROP_BODY and method not in ("GET", "HEAD"):
        method, body = "GET", None
        headers.pop("content-type", None)
    return Hop(method=method, url=url, headers=headers, body=body)


async def _body(response: httpx2.Response) -> str:
    """The body as text, read no further than the cap.

    It is never unpacked, since a kilobyte may hold a gigabyte: the request asked for it unpacked.
    """
    read = bytearray()
    with trio.CancelScope() as enough:
        async for chunk in response.aiter_raw():
            read += chunk
            if len(read) > BODY_MAX_BYTES:
                # Unlike `break`, this also ends the generators below this one.
                enough.cancel()
    is_packed = response.headers.get("content-encoding", "identity") != "identity"
    if is_packed or b"\0" in read:
        kind = response.headers.get("content-type", "unknown type")
        return f"[binary body left out: {kind}, {len(read)} bytes read]"
    charset = response.charset_encoding or ""
    known = charset if WEB_CHARSETS.fullmatch(charset) else "utf-8"
    text = read[:BODY_MAX_BYTES].decode(known, errors="replace")
    if len(read) > BODY_MAX_BYTES:
        text += f"\n[… truncated after {BODY_MAX_BYTES} bytes]"
    return text


def _parse(url: str, *, base: httpx2.URL | None = None) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url) if base is None else base.join(url)
    except httpx2.InvalidURL as error:
        raise InvalidValueError(f"url {url!r}: {error}") from error
    if parsed.scheme not in PORTS or not parsed.host:
        raise InvalidValueError(f"url {url!r} is not one", hint="such as https://example.org/page")
    if parsed.userinfo:
        raise InvalidValueError(
            f"url of host {parsed.host!r} holds a password", hint="use an Authorization header"
        )
    return parsed


def _headers(given: Mapping[str, str]) -> httpx2.Headers:
    for name in given:
        if name.lower() in RESERVED_HEADERS:
            raise InvalidValueError(f"header {name!r} cannot be set", hint="leave it out")
    try:
        return httpx2.Headers({**given, "Accept-Encoding": "identity"})
    except UnicodeEncodeError as error:
        raise InvalidValueError("a header's name is not ASCII") from error


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.raw_host.decode("ascii"), url.port or PORTS[url.scheme]


@functools.cache
def _tls() -> ssl.SSLContext:
    """Reading the machine's certificates takes tens of milliseconds: once is enough."""
    return httpx2.create_ssl_context()
