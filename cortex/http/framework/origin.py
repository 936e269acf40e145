"""The origin of a request: its address and its page.

A proxy on this machine is trusted for what it added itself: the last address of `X-Forwarded-For`,
and `X-Forwarded-Proto`. From elsewhere both are ignored, as are earlier addresses, which the client
may have written.
"""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from cortex.domain.errors import ForbiddenError

UNKNOWN: Final = "unknown"
CLIENT_CHARS_MAX: Final = 500


def address_of(scope: Scope) -> str:
    """Return the client's address, as text."""
    peer = _peer(scope)
    if not _is_here(peer):
        return peer
    claimed = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).rpartition(",")[2].strip()
    # After a `%`, the zone of a link-local address, any text could follow.
    return claimed if parsed_address(claimed) and "%" not in claimed else peer


def client_of(request: Request) -> str | None:
    """Return the name that the client's program gives itself, as far as it is recorded."""
    return request.headers.get("user-agent", "")[:CLIENT_CHARS_MAX] or None


def is_https(scope: Scope) -> bool:
    """Whether the client uses TLS, through a proxy on this machine: the pod itself does not."""
    proto = Headers(scope=scope).getlist("x-forwarded-proto")
    return _is_here(_peer(scope)) and proto[-1:] == ["https"]


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


def _is_here(peer: str) -> bool:
    address = parsed_address(peer)
    return address is not None and address.is_loopback


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
