"""Which network addresses requests may reach: the public ones, and those that the operator allows.

Users and models choose URLs, and a text that a model reads may suggest one: without this rule a
web page could make a pod fetch the cloud's metadata service or the database's neighbours.
"""

import ipaddress
import os
import socket
from typing import Final, Self

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
# The tables follow IANA's registries of special-purpose addresses and of global unicast, and not
# `ipaddress.is_global`. That asks whether an address is globally reachable: it says yes to 6to4 and
# to the servers of AS112, which answer inside a network too. And its table differs between patch
# releases of Python; this one refuses the same addresses on each.
NOT_PUBLIC_IPV4: Final = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # between a provider and its customers
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # inside every Azure machine it answers with the machine's secrets
            "169.254.0.0/16",  # link-local, with most metadata services
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # IETF protocols
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # multicast relays (AMT)
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/3",  # multicast, reserved, broadcast
        ),
    )
)
GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that IANA has allocated for unicast. Outside of it are the forms that embed an IPv4 address:
mapped, translated (SIIT) and NAT64."""
NOT_PUBLIC_IPV6: Final = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # IETF protocols: Teredo, benchmarks, ORCHID, AMT, AS112
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: leads to an IPv4 address
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
ISATAP: Final = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""Under any prefix, such an interface leads to the IPv4 address in the last 32 bits."""
NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


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
        """Return whether requests may reach it.

        An exception for NAT64, which a network without IPv4 needs, opens only what IPv4 would.
        """
        if is_public(address):
            return True
        if not any(address in network for network in self.networks):
            return False
        return address not in NAT64 or self.permits(ipaddress.IPv4Address(address.packed[-4:]))


def is_public(address: Address) -> bool:
    """Return whether `address` belongs to the public internet, on every version of Python."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_IPV4)
    if address not in GLOBAL_UNICAST or any(address in network for network in NOT_PUBLIC_IPV6):
        return False
    return int(address) >> 32 & 0xFFFF_FFFF not in ISATAP


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
