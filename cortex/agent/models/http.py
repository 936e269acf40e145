"""The HTTP client below an SDK: certificates, proxies, limits, and no redirect to another host.

Imports the HTTP library at once: import this module late.
"""

from collections.abc import Callable
from typing import Final

import httpx2

from cortex.agent.models.endpoint import Endpoint
from cortex.agent.models.errors import BrokenAnswerError, ModelNotSetUpError
from cortex.domain.errors import UsageError
from cortex.domain.redaction import excerpt
from cortex.http_client.client import origin_of
from cortex.http_client.proxies import Proxies, library_proxy
from cortex.http_client.tls import trusted

CONNECTIONS_MAX: Final = 1_100
"""A thousand streams, and room for closing ones."""
CONNECTIONS_IDLE_MAX: Final = 100
"""The pool checks each idle one on every call."""


def http_client(
    base_url: httpx2.URL, kind: Callable[..., httpx2.AsyncClient] = httpx2.AsyncClient
) -> httpx2.AsyncClient:
    """Return a client for calls of one address. `kind`: the SDK's own subclass, if it has one."""
    proxy = Proxies.of_environment().configured(origin_of(base_url))
    limits = httpx2.Limits(
        max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_IDLE_MAX
    )
    return kind(
        limits=limits,
        verify=trusted(),
        trust_env=False,
        proxy=None if proxy is None else library_proxy(proxy),
        event_hooks={"response": [_refuse_redirect]},
    )


def checked_url(text: str, endpoint: Endpoint) -> httpx2.URL:
    """Return a base URL. Raises `UsageError` that names where it comes from."""
    hint = f"set {endpoint.address_from} to an address such as https://api.example.com, or unset it"
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise UsageError(f"the model's base URL is not a URL: {error}", hint=hint) from error
    if url.scheme not in ("http", "https") or not url.host:
        shown = "no address of HTTP" if "@" in text else repr(text)  # it may have a password
        raise UsageError(f"the model's base URL is {shown}", hint=hint)
    return url


def checked_key(key: str | None, endpoint: Endpoint) -> str:
    """Return a key that can be sent. Raises `ModelNotSetUpError` that names its variable."""
    if not key:
        raise ModelNotSetUpError(
            "there is no API key for the model", hint=f"set {endpoint.key_from}"
        )
    if not (key.isascii() and key.isprintable()):
        # Refused here, since an error of the HTTP layer would quote it.
        raise ModelNotSetUpError(
            "the API key for the model contains a line break or other invalid characters",
            hint=f"check {endpoint.key_from}",
        )
    return key


def timeout_of(connect_s: float) -> httpx2.Timeout:
    """Return the library's limits: only those that a deadline for content does not cover."""
    return httpx2.Timeout(None, connect=connect_s, pool=connect_s, write=connect_s)


async def _refuse_redirect(response: httpx2.Response) -> None:
    """Refuse to follow a redirect to another host or port: the SDK would send it the key."""
    if not response.has_redirect_location:
        return
    asked = response.request.url
    place = asked.join(response.headers["location"])
    is_upgrade = (asked.scheme, place.scheme) == ("http", "https") and asked.port == place.port
    is_same = (asked.scheme, asked.port) == (place.scheme, place.port)
    if place.host == asked.host and (is_same or is_upgrade):
        return
    address = f"{place.scheme}://{place.netloc.decode('ascii', 'replace')}"
    raise BrokenAnswerError(
        "redirected", f"redirects to {excerpt(address)}, which gets no key and no request"
    )
