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
    return claimed if _is_address(claimed) and "%" not in claimed else peer


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
    address = str(client[0])
    # A socket of both families, as systemd opens it for `ListenStream=8080`, prefixes IPv4.
    return address.removeprefix("::ffff:") if "." in address else address


def _is_here(peer: str) -> bool:
    return _is_address(peer) and ipaddress.ip_address(peer).is_loopback


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
