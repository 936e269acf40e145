"""Which proxy a request takes: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY of the environment.

Lower-case names go before upper-case ones, as everywhere; an empty one switches the other off. The
forms of NO_PROXY: `*`, `host` and `.host` (with all names below it), `host:port`, an address, and a
network such as 10.0.0.0/8; commas or spaces separate them.
"""

import base64
import ipaddress
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

import attrs

from cortex.domain.effect import NotSentError
from cortex.domain.errors import ForbiddenError, UsageError
from cortex.http_client.addresses import AllowedAddresses, resolve
from cortex.http_client.tls import trusted

if TYPE_CHECKING:
    import httpx2

Origin = tuple[str, str, int]
"""Scheme, host and port."""

VARIABLES: Final = {"http": "HTTP_PROXY", "https": "HTTPS_PROXY"}
ALL: Final = "ALL_PROXY"
PORTS: Final = {"http": 80, "https": 443}
WAY_OUT: Final = "set it to an HTTP proxy such as http://proxy:3128, unset it, or use NO_PROXY"
INTERNAL: Final = frozenset(
    {"arpa", "corp", "home", "internal", "intranet", "lan", "local", "localdomain", "localhost"}
    | {"private"}
)
"""Ends of names that only an internal network resolves."""


@attrs.frozen(kw_only=True)
class Proxy:
    """An HTTP proxy that the environment names."""

    variable: str
    """Which variable names it."""
    origin: Origin
    url: str = attrs.field(repr=False)
    """With its credentials."""
    authorization: str | None = attrs.field(repr=False)
    """The header Proxy-Authorization."""

    def __str__(self) -> str:
        """Name it for people, without credentials."""
        scheme, host, port = self.origin
        return f"{self.variable} {scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @classmethod
    def parse(cls, variable: str, text: str) -> Self:
        """Raises `UsageError` for what is no HTTP proxy, without its credentials."""
        parts: SplitResult | None = None
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts is not None and parts.scheme not in PORTS:
            raise UsageError(
                f"{variable} is a proxy of the kind {parts.scheme[:40]!r}: only http and https "
                "proxies are supported",
                hint=WAY_OUT,
            )
        if parts is None or not host or not text.isascii():
            raise UsageError(f"{variable} is not the address of a proxy", hint=WAY_OUT)
        authorization = None
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        return cls(
            variable=variable,
            origin=(parts.scheme, host, port or PORTS[parts.scheme]),
            url=parts.geturl(),
            authorization=authorization,
        )


@attrs.frozen
class Proxies:
    """The proxies by the scheme of a request, and the hosts that are reached without one."""

    by_scheme: Mapping[str, tuple[str, str]] = attrs.field(factory=dict, repr=False)
    """The variable and its text."""
    direct: tuple[str, ...] = ()

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the variables. Their proxies are parsed when a request needs them."""
        given = os.environ if environment is None else environment

        def value(name: str) -> str:
            return given.get(name.lower(), given.get(name, "")).strip()

        by_scheme = {}
        for scheme, name in VARIABLES.items():
            if text := value(name):
                by_scheme[scheme] = (name, text)
            elif text := value(ALL):
                by_scheme[scheme] = (ALL, text)
        direct = tuple(value("NO_PROXY").lower().replace(",", " ").split())
        return cls(by_scheme, direct)

    def of(self, origin: Origin) -> Proxy | None:
        """Return the proxy of a request; None: it goes directly. Raises `UsageError`."""
        try:
            return self.configured(origin)
        except UsageError as error:
            raise error.with_way_out() from None

    def configured(self, origin: Origin) -> Proxy | None:
        """Return what `of` does; the hint of a `UsageError` is not in its message."""
        scheme, host, port = origin
        if scheme not in self.by_scheme or self._is_direct(host.lower().rstrip("."), port):
            return None
        return Proxy.parse(*self.by_scheme[scheme])

    def problems(self) -> Iterator[UsageError]:
        """Yield what is wrong with each variable."""
        for variable, text in dict.fromkeys(self.by_scheme.values()):
            try:
                Proxy.parse(variable, text)
            except UsageError as error:
                yield error

    def _is_direct(self, host: str, port: int) -> bool:
        return any(_fits(entry, host, port) for entry in self.direct)


def library_proxy(proxy: Proxy) -> "httpx2.Proxy":
    """Return the proxy as the HTTP library takes it."""
    import httpx2  # noqa: PLC0415 -- a tenth of a pod's start

    context = trusted() if proxy.origin[0] == "https" else None
    return httpx2.Proxy(proxy.url, ssl_context=context)


def _fits(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of NO_PROXY names this host."""
    if entry == "*":
        return True
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        pass
    else:
        return (address := _address(host)) is not None and address in network
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal():
        if int(number) != port:
            return False
        entry = name.strip("[]")
        if (address := _address(entry)) is not None:
            return address == _address(host)
    suffix = entry.removeprefix("*").strip(".")
    return bool(suffix) and (host == suffix or host.endswith(f".{suffix}"))


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


async def require_public(host: str, port: int, allowed: AllowedAddresses) -> None:
    """Refuse a host that requests may not reach, before a proxy is asked for it.

    The proxy resolves the name again, and may know names that are unknown here. Those pass, except
    for names that only internal networks use. Raises `ForbiddenError`.
    """
    try:
        await resolve(host, port, allowed)
    except NotSentError:
        labels = host.lower().rstrip(".").split(".")
        is_internal = len(labels) == 1 or labels[-1] in INTERNAL or _is_number(labels[-1])
        if is_internal and (host.lower(), port) not in allowed.endpoints:
            raise ForbiddenError(
                f"host {host!r} is not known here, and its name is not a public one",
                hint=f"the operator can allow {host}:{port} in CORTEX_HTTP_ALLOW",
            ) from None


def _is_number(label: str) -> bool:
    """Return whether a name with this end is an address in one of its unusual forms."""
    return label.isdecimal() or label.startswith("0x")
