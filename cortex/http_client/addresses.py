"""Which network addresses requests may reach: the public ones, and those that the operator allows.

Users and models choose URLs, and a text that a model reads may suggest one: without this rule a
web page could make a pod fetch the cloud's metadata service or the database's neighbours.
"""

import ipaddress
import os
import socket
from typing import Self

import attrs
import trio

from cortex.domain.effect import NotSentError
from cortex.domain.errors import ForbiddenError, UsageError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SETTING = "CORTEX_HTTP_ALLOW"
MEANING = (
    "addresses that are not public and that requests of jobs, tools and webhooks may reach: "
    "`HOST:PORT` as written in the URL, or a network such as `10.1.0.0/16`; separated by commas"
)
# Reserved ranges that `ipaddress` lacks or had wrong for a while.
NOT_PUBLIC: tuple[Network, ...] = (
    # A public number, but inside every Azure machine it answers with the machine's secrets.
    ipaddress.IPv4Network("168.63.129.16/32"),
    ipaddress.IPv4Network("192.0.0.0/24"),
    ipaddress.IPv4Network("192.88.99.0/24"),
    ipaddress.IPv6Network("::/96"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
    ipaddress.IPv6Network("3fff::/20"),
    ipaddress.IPv6Network("5f00::/16"),
)
# An IPv4 address embedded in IPv6, which a NAT64 or a relay would translate back.
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@attrs.frozen
class AllowedAddresses:
    """Exceptions from the rule: hosts with their port as written in the URL, and networks."""

    endpoints: frozenset[tuple[str, int]] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a comma-separated list of `host:port` and CIDR; raises `UsageError`."""
        endpoints, networks = [], []
        for entry in filter(None, map(str.strip, text.split(","))):
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                host, colon, port = entry.rpartition(":")
                if not (colon and host and port.isdecimal() and "/" not in host):
                    raise UsageError(
                        f"{SETTING}: {entry!r} is neither host:port nor a network",
                        hint="such as api.internal:8080,10.1.0.0/16",
                    ) from None
                endpoints.append((host.strip("[]").lower(), int(port)))
        return cls(endpoints=frozenset(endpoints), networks=tuple(networks))

    @classmethod
    def of_environment(cls) -> Self:
        """Return the operator's exceptions on this machine; raises `UsageError`."""
        return cls.parse(os.environ.get(SETTING, ""))

    def permits(self, address: Address) -> bool:
        return is_public(address) or any(address in network for network in self.networks)


def is_public(address: Address) -> bool:
    """Return whether `address` belongs to the public internet, also in IPv4-in-IPv6 forms."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address.is_site_local:
            return False
    is_reserved = address.is_multicast or any(address in network for network in NOT_PUBLIC)
    return address.is_global and not is_reserved


async def resolve(host: str, port: int, allowed: AllowedAddresses) -> tuple[str, ...]:
    """Return the numeric addresses of `host`: connecting must not resolve it again.

    Raises `ForbiddenError` if any one of them is off limits, `NotSentError` if there is none.
    """
    addresses = (host,) if _is_numeric(host) else await looked_up(host, port)
    if (host.lower(), port) not in allowed.endpoints:
        for address in addresses:
            if not allowed.permits(ipaddress.ip_address(address)):
                resolved = "" if address == host else f"{address}, which is "
                raise ForbiddenError(
                    f"host {host!r} is {resolved}not a public address",
                    hint=f"the operator can allow {host}:{port} in {SETTING}",
                )
    return addresses


def _is_numeric(host: str) -> bool:
    """Return whether it is an address in its usual form; resolvers know others, such as 127.1."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def looked_up(host: str, port: int) -> tuple[str, ...]:
    """Return the numeric addresses of `host`, unchecked. Raises `NotSentError`."""
    try:
        entries = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotSentError(f"host {host!r} cannot be resolved: {error}") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
