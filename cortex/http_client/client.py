"""Requests to servers outside, but not to addresses that only this machine or its network reaches.

    async with HttpClient(AllowedAddresses.parse(…)) as client:
        response = await client.follow(Request.made("GET", "https://example.org/"))

A name is resolved once for each request, its addresses are checked, and the connection goes to the
checked address: no second look-up can lead elsewhere. A client that lives longer reuses idle
connections. Through a proxy the same check is made, but the proxy resolves the name again: proxies
admit names, and set the Host header from them. With https the certificate proves that the request
goes to that host; with http only the proxy can refuse a name that has turned private meanwhile.

The library is imported on first use: it is a tenth of the time that a pod takes to start.
"""

import math
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol, Self

import attrs
import trio

from cortex.domain.classification import class_of_status, code_of_status, describe
from cortex.domain.effect import Invocation, NotSentError, UnsettledError
from cortex.domain.errors import (
    CortexError,
    InvalidValueError,
    RejectedError,
    TimedOutError,
    UnavailableError,
)
from cortex.domain.failure import Failure
from cortex.domain.redaction import begun_in
from cortex.domain.retry import retry_after_of
from cortex.http_client.addresses import AllowedAddresses, resolve
from cortex.http_client.proxies import PORTS, Origin, Proxies, Proxy, library_proxy, require_public
from cortex.http_client.redirects import not_followed
from cortex.http_client.tls import trusted

if TYPE_CHECKING:
    import httpx2

BODY_MAX_BYTES: Final = 1_048_576
REDIRECTS_MAX: Final = 5
HOST_CHARS_MAX: Final = 253  # the limit of DNS
QUIET_S: Final = 60.0
KEPT_MAX: Final = 100
"""Servers whose idle connections are kept."""
KEY_HEADER: Final = "Idempotency-Key"
ATTEMPT_HEADER: Final = "Cortex-Attempt"
# Set by the client: they decide the target, the identity of the request, and its framing.
RESERVED_HEADERS: Final = frozenset(
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
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
IDEMPOTENT_METHODS: Final = SAFE_METHODS | {"PUT", "DELETE"}
# After these, and all from 500, it is unknown whether the request took effect.
UNSETTLED_STATUSES: Final = frozenset({408, 425, 429})
SERVER_ERROR: Final = 500
# Meant for the first host only; a redirect to another one must not carry them along.
CREDENTIAL_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
DROP_BODY: Final = frozenset({301, 302, 303})

PROXY_PASSWORD_REQUIRED: Final = 407


class HeaderSecrets(Protocol):
    """Fills secrets into headers when a request is sent, so that no record contains them."""

    def is_in(self, value: str) -> bool:
        """Return whether a header's value refers to a secret."""

    def in_header(self, value: str, origin: Origin) -> str:
        """Return the value as it is sent to `origin`, with its secrets.

        Raises `ForbiddenError` for an origin that may not have them. May read a small file.
        """


class NoSecrets:
    """Sends every header as it is."""

    def is_in(self, value: str) -> bool:  # noqa: ARG002
        return False

    def in_header(self, value: str, origin: Origin) -> str:  # noqa: ARG002
        return value


@attrs.frozen(kw_only=True)
class HttpLimits:
    """Limits of one request: times in seconds, the body in bytes."""

    call_s: float | None = None
    """All of it, redirects included; None: the caller has a limit of its own."""
    connect_s: float = 30.0
    quiet_s: float = QUIET_S
    """Without any byte."""
    body_max: int = BODY_MAX_BYTES


@attrs.frozen(kw_only=True)
class Response:
    """The final answer of any status; `url` is the last one after redirects."""

    status: int
    url: str
    headers: dict[str, str]
    body: bytes
    """At most `HttpLimits.body_max` bytes of it, as sent: never decompressed."""
    size_bytes: int
    """Of the whole body, as far as the server announced it; else as far as it was read."""
    is_cut: bool
    charset: str | None


@attrs.frozen
class Redirect:
    """A redirect; its location is not checked yet."""

    status: int
    location: str


class RedirectedError(CortexError):
    """A server answered with a redirect to a request that follows none; `failure` classifies it."""

    code = "redirected"

    def __init__(self, url: "httpx2.URL", redirect: Redirect) -> None:
        reason = not_followed(str(url), redirect.location)
        message = f"{url} answered with status {redirect.status}: {reason}"
        super().__init__(message)
        self.failure = Failure(
            cls=class_of_status(redirect.status),
            code=code_of_status(redirect.status) or self.code,
            message=message,
        )


@attrs.frozen(kw_only=True)
class Request:
    """One request of a chain of redirects; secrets are not filled into its headers yet."""

    method: str
    url: "httpx2.URL"
    headers: "httpx2.Headers"
    body: bytes | None = None
    secrets: HeaderSecrets = attrs.field(factory=NoSecrets)

    @classmethod
    def made(
        cls,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        secrets: HeaderSecrets | None = None,
    ) -> Self:
        """Check the URL and the headers. Raises `InvalidValueError`."""
        return cls(
            method=method,
            url=parse_url(url),
            headers=_headers(headers or {}),
            body=body,
            secrets=NoSecrets() if secrets is None else secrets,
        )

    def filled(self) -> Self:
        """Return the request as it is sent. Raises `ForbiddenError` for a forbidden secret."""
        import httpx2  # noqa: PLC0415 -- see the head of this file

        origin = origin_of(self.url)
        sent = [
            (name, self.secrets.in_header(value, origin))
            for name, value in self.headers.multi_items()
        ]
        return attrs.evolve(self, headers=httpx2.Headers(sent))

    def redirected(self, redirect: Redirect) -> Self:
        """Return the request that follows; credentials stay with their host."""
        url = parse_url(redirect.location, base=self.url)
        headers, method, body = self.headers.copy(), self.method, self.body
        if origin_of(url) != origin_of(self.url):
            for name in set(headers):
                values = headers.get_list(name)
                if name in CREDENTIAL_HEADERS or any(map(self.secrets.is_in, values)):
                    del headers[name]
        if redirect.status in DROP_BODY and method not in ("GET", "HEAD"):
            method, body = "GET", None
            for name in ("content-type", KEY_HEADER, ATTEMPT_HEADER):
                headers.pop(name, None)
        return attrs.evolve(self, method=method, url=url, headers=headers, body=body)


class HttpClient:
    """Sends requests to permitted addresses; keeps its idle connections until it is closed.

    On failure: each error says whether the request was certainly not sent (`NotSentError`), may
    have been (`UnavailableError`), or got no complete answer in time (`TimedOutError`).
    """

    def __init__(
        self,
        allowed: AllowedAddresses,
        limits: HttpLimits | None = None,
        *,
        proxies: Proxies | None = None,
    ) -> None:
        """Without `proxies` every request goes directly."""
        self._allowed = allowed
        self._proxies = Proxies() if proxies is None else proxies
        self._limits = HttpLimits() if limits is None else limits
        self._kept: OrderedDict[tuple[Origin, str], _Connections] = OrderedDict()

    @classmethod
    def of_environment(cls, limits: HttpLimits | None = None) -> Self:
        """Return a client with the addresses and proxies that the environment names."""
        return cls(AllowedAddresses.of_environment(), limits, proxies=Proxies.of_environment())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        with trio.CancelScope(shield=True):
            while self._kept:
                await self._kept.popitem()[1].library.aclose()

    async def change(self, request: Request, invocation: Invocation) -> Response:
        """Send a request that changes something, under the invocation's idempotency key.

        Raises `UnsettledError` for an answer that leaves its outcome open, besides what `follow`
        raises.
        """
        headers = request.headers.copy()
        headers[KEY_HEADER] = str(invocation.id)
        headers[ATTEMPT_HEADER] = str(invocation.attempt)
        return await self.settle(attrs.evolve(request, headers=headers))

    async def settle(self, request: Request, *, follows: bool = True) -> Response:
        """Send a request that changes something and that carries an identity of its own.

        Without `follows` a redirect is an error: its request and its signature are for one server.
        Raises as `change` does, and `RedirectedError`.
        """
        with trio.move_on_after(self._call_s):
            answer = await self._send(request)
            if isinstance(answer, Redirect):
                if not follows:
                    raise RedirectedError(request.url, answer)
                try:
                    following = request.redirected(answer)
                    answer = await self._followed(following, redirects=REDIRECTS_MAX - 1)
                except Exception as error:  # may be certain, but the first server has acted
                    message = f"{request.url} took the request and led elsewhere: {describe(error)}"
                    raise UnsettledError(message) from error
            if answer.status >= SERVER_ERROR or answer.status in UNSETTLED_STATUSES:
                message = f"{answer.url} answered with status {answer.status}"
                raise UnsettledError(message, failure=failure_of_response(answer, message))
            return answer
        raise self._late(request)

    async def follow(self, request: Request, *, redirects: int = REDIRECTS_MAX) -> Response:
        """Send a request and follow redirects, each to a permitted address only.

        Raises `ForbiddenError`, `InvalidValueError`, `RejectedError`, `NotSentError`,
        `UnavailableError` or `TimedOutError`; an error status is an answer like any other.
        """
        with trio.move_on_after(self._call_s):
            return await self._followed(request, redirects=redirects)
        raise self._late(request)

    @property
    def _call_s(self) -> float:
        return math.inf if self._limits.call_s is None else self._limits.call_s

    def _late(self, request: Request) -> TimedOutError:
        limit_s = self._call_s
        message = f"{request.method} {request.url} took longer than {limit_s:g} seconds"
        return TimedOutError(message, scope="call", limit_s=limit_s)

    async def _followed(self, request: Request, *, redirects: int) -> Response:
        begun = request.url
        for _ in range(redirects + 1):
            answer = await self._send(request)
            if isinstance(answer, Response):
                return answer
            request = request.redirected(answer)
        raise RejectedError(f"{begun} redirects more than {redirects} times")

    async def _send(self, request: Request) -> Response | Redirect:
        """Send one request to the first address that accepts a connection."""
        import httpx2  # noqa: PLC0415 -- see the head of this file

        filled = request.filled()
        origin = origin_of(request.url)
        limits = self._limits
        refusal: httpx2.HTTPError | None = None
        proxy = self._proxies.of(origin)
        for address in await self._addresses(origin, proxy):
            try:
                async with self._connections(origin, address, proxy) as library:
                    answer = await _ask(library, address, filled, limits)
                    if proxy is not None and answer.status == PROXY_PASSWORD_REQUIRED:
                        raise NotSentError(f"{proxy} asks for a name and a password")
                    return answer
            except httpx2.ProxyError as error:
                raise NotSentError(
                    f"{proxy} does not connect to {origin[1]}: {_reason(error)}"
                ) from error
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                refusal = error
            except httpx2.LocalProtocolError as error:
                raise InvalidValueError(f"http_request: {error}") from error
            except httpx2.TimeoutException as error:
                raise TimedOutError(
                    f"{request.url} sent nothing for {limits.quiet_s:g} seconds",
                    scope="idle",
                    limit_s=limits.quiet_s,
                ) from error
            except httpx2.HTTPError as error:
                raise UnavailableError(f"{request.url} broke off: {_reason(error)}") from error
        if isinstance(refusal, httpx2.ConnectTimeout):
            raise TimedOutError(
                f"{request.url} gave no connection within {limits.connect_s:g} seconds",
                scope="connect",
                limit_s=limits.connect_s,
            ) from refusal
        way = "" if proxy is None else f" through {proxy}"
        raise NotSentError(f"{request.url} cannot be reached{way}: {_reason(refusal)}") from refusal

    async def _addresses(self, origin: Origin, proxy: Proxy | None) -> tuple[str, ...]:
        """Return the addresses to connect to, checked; a proxy gets the name."""
        _, host, port = origin
        if proxy is None:
            return await resolve(host, port, self._allowed)
        await require_public(host, port, self._allowed)
        return (host,)

    @asynccontextmanager
    async def _connections(
        self, origin: Origin, address: str, proxy: Proxy | None
    ) -> "AsyncIterator[httpx2.AsyncClient]":
        """Lend the connections to one address of one origin.

        Never those of another origin at the same address: their certificate names another host.
        """
        key = origin, address if proxy is None else proxy.url
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Connections(_opened(self._limits, proxy))
        self._kept.move_to_end(key)
        kept.users += 1
        try:
            yield kept.library
        finally:
            kept.users -= 1
            with trio.CancelScope(shield=True):
                await self._drop_surplus()

    async def _drop_surplus(self) -> None:
        while len(self._kept) > KEPT_MAX:
            idle = next((key for key, each in self._kept.items() if not each.users), None)
            if idle is None:
                return
            await self._kept.pop(idle).library.aclose()


@attrs.define
class _Connections:
    library: "httpx2.AsyncClient"
    users: int = 0


def _opened(limits: HttpLimits, proxy: Proxy | None) -> "httpx2.AsyncClient":
    import httpx2  # noqa: PLC0415 -- see the head of this file

    timeout = httpx2.Timeout(limits.quiet_s, connect=limits.connect_s)
    return httpx2.AsyncClient(
        verify=trusted(),
        trust_env=False,
        timeout=timeout,
        proxy=None if proxy is None else library_proxy(proxy),
    )


async def _ask(
    library: "httpx2.AsyncClient", address: str, request: Request, limits: HttpLimits
) -> Response | Redirect:
    """Connect to `address` itself.

    The host's name still goes into the Host header and into the check of its certificate.
    """
    sent = library.build_request(
        request.method,
        request.url.copy_with(host=address),
        headers=[*request.headers.multi_items(), ("Host", request.url.netloc.decode())],
        content=request.body,
        extensions={"sni_hostname": origin_of(request.url)[1]},
    )
    response = await library.send(sent, stream=True)
    try:
        if response.has_redirect_location:
            return Redirect(response.status_code, response.headers["location"])
        return await _read(response, str(request.url), limits.body_max)
    finally:
        await response.aclose()


async def _read(response: "httpx2.Response", url: str, body_max: int) -> Response:
    """Read a response, its body no further than the cap.

    It is never decompressed, since a kilobyte may contain a gigabyte: the request asks for it
    uncompressed.
    """
    read = bytearray()
    with trio.CancelScope() as enough:
        async for chunk in response.aiter_raw():
            read += chunk
            if len(read) > body_max:
                # Unlike `break`, this also ends the generators below this one.
                enough.cancel()
    announced = response.headers.get("content-length", "")
    return Response(
        status=response.status_code,
        url=url,
        headers=dict(response.headers),
        body=bytes(read[:body_max]),
        size_bytes=max(len(read), int(announced) if _LENGTH.fullmatch(announced) else 0),
        is_cut=len(read) > body_max,
        charset=response.charset_encoding,
    )


def failure_of_response(response: Response, message: str) -> Failure:
    """Classify an error status, with the pause that its server asks for."""
    return Failure(
        cls=class_of_status(response.status),
        code=code_of_status(response.status) or "unsettled",
        message=message,
        retry_after_s=retry_after_of(response.headers, now=None),
    )


def breaker_of(url: str) -> str | None:
    """Return the breaker's name of a URL's host; None for an invalid URL."""
    try:
        _, host, _ = origin_of(parse_url(url))
    except InvalidValueError:
        return None
    return f"http:{host.lower()}" if len(host) <= HOST_CHARS_MAX else None


def parse_url(url: str, *, base: "httpx2.URL | None" = None) -> "httpx2.URL":
    """Parse an address of the web. Raises `InvalidValueError`, also for one with a password."""
    import httpx2  # noqa: PLC0415 -- see the head of this file

    try:
        parsed = httpx2.URL(url) if base is None else base.join(url)
    except httpx2.InvalidURL as error:
        raise InvalidValueError(f"url {url!r}: {error}") from error
    if parsed.scheme not in PORTS or not parsed.host:
        raise InvalidValueError(
            f"url {url!r} is not a URL", hint="such as https://example.org/page"
        )
    if parsed.userinfo:
        raise InvalidValueError(
            f"url of host {parsed.host!r} contains a password", hint="use an Authorization header"
        )
    return parsed


def origin_of(url: "httpx2.URL") -> Origin:
    return url.scheme, url.raw_host.decode("ascii"), url.port or PORTS[url.scheme]


def _headers(given: Mapping[str, str]) -> "httpx2.Headers":
    import httpx2  # noqa: PLC0415 -- see the head of this file

    for name in given:
        if name.lower() in RESERVED_HEADERS:
            raise InvalidValueError(f"header {name!r} cannot be set", hint="leave it out")
    try:
        return httpx2.Headers({**given, "Accept-Encoding": "identity"})
    except UnicodeEncodeError as error:
        raise InvalidValueError("a header's name is not ASCII") from error


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


# --- A body as text.


# The rest of Python's codecs are not for the web: some are slow, some do not produce text.
_WEB_CHARSETS: Final = re.compile(
    r"us-ascii|iso-8859-\d{1,2}|windows-125\d|koi8-[ru]|shift_jis|euc-(jp|kr)|gb(k|2312|18030)|big5",
    re.IGNORECASE,
)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")


def text_of(response: Response) -> str | None:
    """Return the body as text, as much as was read; None if it is binary or compressed."""
    is_packed = response.headers.get("content-encoding", "identity") != "identity"
    if is_packed or b"\0" in response.body:
        return None
    charset = response.charset or ""
    codec = charset if _WEB_CHARSETS.fullmatch(charset) else "utf-8"
    text = response.body.decode(codec, errors="replace")
    if response.is_cut:
        text = text.rstrip("\ufffd")
        text = text[: len(text) - begun_in(text)]  # half a secret cannot be redacted later
    return text
