"""The origin of a request: its address and its page.

Configured proxies are trusted for what they added: the last address of `X-Forwarded-For` that is no
proxy itself, and the last `X-Forwarded-Proto`. From any other peer both are ignored, also on this
machine, as are earlier addresses, which the client may have written.
"""

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from cortex.domain.errors import ForbiddenError

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
UNKNOWN: Final = "unknown"
ORIGIN: Final = "cortex.origin"
"""Where the scope of a request holds its `Origin`."""
CLIENT_CHARS_MAX: Final = 500


@attrs.frozen
class Origin:
    """Who sent a request."""

    address: str
    is_https: bool
    """The client uses TLS up to the proxy: the pod itself does not."""


def origin_of(scope: Scope, proxies: Sequence[Network]) -> Origin:
    """Return who sent a request, by its peer and by what these proxies say."""
    peer = address = _peer(scope)
    if not _is_in(peer, proxies):
        return Origin(peer, is_https=False)
    headers = Headers(scope=scope)
    for word in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
        claimed = word.strip()
        # After a `%`, the zone of a link-local address, any text could follow.
        if not parsed_address(claimed) or "%" in claimed:
            break
        address = unmapped(claimed)
        if not _is_in(address, proxies):
            break
    return Origin(address, is_https=headers.getlist("x-forwarded-proto")[-1:] == ["https"])


def address_of(scope: Scope) -> str:
    """Return the client's address, as text."""
    origin: Origin = scope[ORIGIN]
    return origin.address


def client_of(request: Request) -> str | None:
    """Return the name that the client's program gives itself, as far as it is recorded."""
    return request.headers.get("user-agent", "")[:CLIENT_CHARS_MAX] or None


def is_https(scope: Scope) -> bool:
    """Whether the client uses TLS, by the word of a configured proxy."""
    origin: Origin = scope[ORIGIN]
    return origin.is_https


def base_url(request: Request) -> str:
    """Return the URL under which the client reaches this server."""
    scheme = "https" if is_https(request.scope) else "http"
    return f"{scheme}://{request.headers.get('host', '')}"


def refuse_foreign(request: Request) -> None:
    """Raise `ForbiddenError` unless a page of the same origin sent the request."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_own = site == "same-origin"
    elif origin is not None:
        is_own = _host_of(origin) == request.headers.get("host", "").lower()
    else:
        is_own = False
    if not is_own:
        raise ForbiddenError("only a page of Cortex itself can send this")


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    if not client:
        return UNKNOWN
    return unmapped(str(client[0]))


def unmapped(address: str) -> str:
    """Return the IPv4 address in an IPv6 one, as ::ffff:10.0.0.7; any other as it is.

    A socket of both families, as systemd opens it for `ListenStream=8080`, shows IPv4 so.
    """
    parsed = parsed_address(address)
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return address


def parsed_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address; None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_in(text: str, networks: Sequence[Network]) -> bool:
    address = parsed_address(text.partition("%")[0])
    return address is not None and any(address in each for each in networks)


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
