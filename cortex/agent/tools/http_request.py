"""HTTP requests to the web, but not to addresses that only this machine or its network reaches.

The client library is imported on first use: it is a tenth of the time that a pod takes to start.
"""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import attrs
import trio

from cortex.agent.secrets import Secrets, holds_secret
from cortex.agent.tls import trusted
from cortex.agent.tools.addresses import SETTING, AllowedAddresses, resolve
from cortex.agent.tools.tool import ToolContext, tool
from cortex.domain.classification import class_of_status, code_of_status, describe
from cortex.domain.effect import Invocation, NotSentError, UnsettledError
from cortex.domain.errors import (
    InvalidValueError,
    RejectedError,
    TimedOutError,
    UnavailableError,
)
from cortex.domain.failure import Failure
from cortex.domain.redaction import begun_in
from cortex.domain.retry import retry_after_of

if TYPE_CHECKING:
    import httpx2

BODY_MAX_BYTES = 1_048_576
REDIRECTS_MAX = 5
HOST_CHARS_MAX = 253  # the limit of DNS
QUIET_S = 60.0
CONNECT_S = 10.0
PORTS = {"http": 80, "https": 443}
KEY_HEADER = "Idempotency-Key"
ATTEMPT_HEADER = "Cortex-Attempt"
# Set by the tool: they decide the target, the identity of the request, and its framing.
RESERVED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "te",
        "transfer-encoding",
        KEY_HEADER.lower(),
        ATTEMPT_HEADER.lower(),
    }
)
# By RFC 9110: methods that change nothing, and methods that may be repeated.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
IDEMPOTENT_METHODS = SAFE_METHODS | {"PUT", "DELETE"}
# After these, and all from 500, it is unknown whether the request took effect.
UNSETTLED_STATUSES = frozenset({408, 425, 429})
SERVER_ERROR = 500
# Meant for the first host only; a redirect to another one must not carry them along.
CREDENTIAL_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
# The rest of Python's codecs are not for the web: some are slow, some do not produce text.
WEB_CHARSETS = re.compile(
    r"us-ascii|iso-8859-\d{1,2}|windows-125\d|koi8-[ru]|shift_jis|euc-(jp|kr)|gb(k|2312|18030)|big5",
    re.IGNORECASE,
)
DROP_BODY = frozenset({301, 302, 303})

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


@attrs.frozen
class Reply:
    """The final answer of any status; `url` is the last one after redirects."""

    status: int
    url: str
    headers: dict[str, str]
    body: str


@attrs.frozen
class Redirect:
    """A redirect; its location is not checked yet."""

    status: int
    location: str


@attrs.frozen
class Hop:
    """One request of a chain of redirects; secrets are not filled into its headers yet."""

    method: str
    url: "httpx2.URL"
    headers: "httpx2.Headers"
    body: bytes | None
    secrets: Secrets

    def filled(self) -> Self:
        """Return the request as it is sent. Raises `ForbiddenError` for a forbidden secret."""
        import httpx2  # noqa: PLC0415 -- see the head of this file

        origin = _origin(self.url)
        sent = [
            (name, self.secrets.in_header(value, origin))
            for name, value in self.headers.multi_items()
        ]
        return attrs.evolve(self, headers=httpx2.Headers(sent))


def _breaker(arguments: Any) -> str | None:
    """One breaker per host; None for an invalid URL, which is refused before any question."""
    try:
        _, host, _ = _origin(_parse(arguments.url))
    except InvalidValueError:
        return None
    return f"http:{host.lower()}" if len(host) <= HOST_CHARS_MAX else None


@tool(
    breaker=_breaker,
    effect=lambda arguments: arguments.method not in SAFE_METHODS,
    idempotent=lambda arguments: arguments.method in IDEMPOTENT_METHODS,
    says="sends data to another server",
)
async def http_request(
    context: ToolContext,
    url: str,
    method: Method = "GET",
    headers: dict[str, str] | None = None,
    body: str | None = None,
) -> Reply:
    """Send an HTTP request and return the status, the headers and the body.

    An error status such as 404 is returned like any other. Up to 5 redirects are followed. A body
    over 1 MiB is cut and says so; a binary one is left out. Only public addresses are reachable.
    In a header {secret:NAME} stands for a secret of that name, if you were given one; it is put
    in on the way out, and only for the hosts that it is meant for.

    Args:
        url: The address, starting with http:// or https://.
        method: GET unless something is to be sent or changed.
        headers: Headers to send, such as {"Accept": "application/json"}.
        body: The text to send; say what it is in a Content-Type header.
    """
    allowed = AllowedAddresses.parse(os.environ.get(SETTING, ""))
    hop = Hop(
        method=method,
        url=_parse(url),
        headers=_headers(headers or {}),
        body=None if body is None else body.encode(),
        secrets=context.secrets,
    )
    if context.invocation is None or method in SAFE_METHODS:
        return await _follow(hop, allowed)
    return await _change(hop, allowed, context.invocation)


async def _change(hop: Hop, allowed: AllowedAddresses, invocation: Invocation) -> Reply:
    """Send a request that changes something; raise errors that leave its outcome open."""
    headers = hop.headers.copy()
    headers[KEY_HEADER] = str(invocation.id)
    headers[ATTEMPT_HEADER] = str(invocation.attempt)
    hop = attrs.evolve(hop, headers=headers)
    answer = await _ask(hop, allowed)
    if isinstance(answer, Redirect):
        try:
            answer = await _follow(_redirected(hop, answer), allowed, redirects=REDIRECTS_MAX - 1)
        except Exception as error:  # the error may be certain, but the first server has acted
            message = f"{hop.url} took the request and led elsewhere: {describe(error)}"
            raise UnsettledError(message) from error
    if answer.status >= SERVER_ERROR or answer.status in UNSETTLED_STATUSES:
        raise _unsettled(answer)
    return answer


def _unsettled(reply: Reply) -> UnsettledError:
    message = f"{reply.url} answered with status {reply.status}"
    failure = Failure(
        cls=class_of_status(reply.status),
        code=code_of_status(reply.status) or "unsettled",
        message=message,
        retry_after_s=retry_after_of(reply.headers, now=None),
    )
    return UnsettledError(message, failure=failure)


async def _follow(hop: Hop, allowed: AllowedAddresses, *, redirects: int = REDIRECTS_MAX) -> Reply:
    """Send a request and follow redirects."""
    begun = hop.url
    for _ in range(redirects + 1):
        answer = await _ask(hop, allowed)
        if isinstance(answer, Reply):
            return answer
        hop = _redirected(hop, answer)
    raise RejectedError(f"{begun} redirects more than {redirects} times")


async def _ask(hop: Hop, allowed: AllowedAddresses) -> Reply | Redirect:
    """Send one request to the first address that accepts a connection."""
    import httpx2  # noqa: PLC0415 -- see the head of this file

    filled = hop.filled()
    _, host, port = _origin(hop.url)
    refusal: httpx2.HTTPError | None = None
    for address in await resolve(host, port, allowed):
        try:
            return await _ask_at(address, filled)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            refusal = error
        except httpx2.LocalProtocolError as error:
            raise InvalidValueError(f"http_request: {error}") from error
        except httpx2.TimeoutException as error:
            raise TimedOutError(
                f"{hop.url} sent nothing for {QUIET_S:g} seconds", scope="idle", limit_s=QUIET_S
            ) from error
        except httpx2.HTTPError as error:
            raise UnavailableError(f"{hop.url} broke off: {_reason(error)}") from error
    if isinstance(refusal, httpx2.ConnectTimeout):
        raise TimedOutError(
            f"{hop.url} gave no connection within {CONNECT_S:g} seconds",
            scope="connect",
            limit_s=CONNECT_S,
        ) from refusal
    raise NotSentError(f"{hop.url} cannot be reached: {_reason(refusal)}") from refusal


def _reason(error: BaseException | None) -> str:
    """Return the first non-empty message of a chain of errors: a refused certificate lies deep.

    The library cuts the chain once, but keeps the next error as an argument.
    """
    while error is not None and not str(error):
        following = error.__cause__ or next(iter(error.args), None)
        if not isinstance(following, BaseException):
            break
        error = following
    return str(error) or type(error).__name__


async def _ask_at(address: str, hop: Hop) -> Reply | Redirect:
    """Connect to `address` itself, so that no second look-up can lead elsewhere.

    The host's name still goes into the Host header and into the check of its certificate.
    """
    import httpx2  # noqa: PLC0415 -- see the head of this file

    timeout = httpx2.Timeout(QUIET_S, connect=CONNECT_S)
    async with httpx2.AsyncClient(verify=trusted(), trust_env=False, timeout=timeout) as client:
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
                return Redirect(response.status_code, response.headers["location"])
            return Reply(
                status=response.status_code,
                url=str(hop.url),
                headers=dict(response.headers),
                body=await _body(response),
            )
        finally:
            await response.aclose()


def _redirected(hop: Hop, redirect: Redirect) -> Hop:
    url = _parse(redirect.location, base=hop.url)
    headers, method, body = hop.headers.copy(), hop.method, hop.body
    if _origin(url) != _origin(hop.url):
        for name in set(headers):
            if name in CREDENTIAL_HEADERS or any(map(holds_secret, headers.get_list(name))):
                del headers[name]
    if redirect.status in DROP_BODY and method not in ("GET", "HEAD"):
        method, body = "GET", None
        for name in ("content-type", KEY_HEADER, ATTEMPT_HEADER):
            headers.pop(name, None)
    return attrs.evolve(hop, method=method, url=url, headers=headers, body=body)


async def _body(response: "httpx2.Response") -> str:
    """Return the body as text, read no further than the cap.

    It is never decompressed, since a kilobyte may contain a gigabyte: the request asks for it
    uncompressed.
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
    codec = charset if WEB_CHARSETS.fullmatch(charset) else "utf-8"
    text = read[:BODY_MAX_BYTES].decode(codec, errors="replace")
    if len(read) > BODY_MAX_BYTES:
        text = text.rstrip("\ufffd")
        text = text[: len(text) - begun_in(text)]  # half a secret cannot be redacted later
        text += f"\n[… truncated after {BODY_MAX_BYTES} bytes]"
    return text


def _parse(url: str, *, base: "httpx2.URL | None" = None) -> "httpx2.URL":
    import httpx2  # noqa: PLC0415 -- see the head of this file

    try:
        parsed = httpx2.URL(url) if base is None else base.join(url)
    except httpx2.InvalidURL as error:
        raise InvalidValueError(f"url {url!r}: {error}") from error
    if parsed.scheme not in PORTS or not parsed.host:
        raise InvalidValueError(f"url {url!r} is not one", hint="such as https://example.org/page")
    if parsed.userinfo:
        raise InvalidValueError(
            f"url of host {parsed.host!r} contains a password", hint="use an Authorization header"
        )
    return parsed


def _headers(given: Mapping[str, str]) -> "httpx2.Headers":
    import httpx2  # noqa: PLC0415 -- see the head of this file

    for name in given:
        if name.lower() in RESERVED_HEADERS:
            raise InvalidValueError(f"header {name!r} cannot be set", hint="leave it out")
    try:
        return httpx2.Headers({**given, "Accept-Encoding": "identity"})
    except UnicodeEncodeError as error:
        raise InvalidValueError("a header's name is not ASCII") from error


def _origin(url: "httpx2.URL") -> tuple[str, str, int]:
    return url.scheme, url.raw_host.decode("ascii"), url.port or PORTS[url.scheme]
