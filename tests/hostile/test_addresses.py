"""Requests reach public addresses only, whichever form an address of the inside takes."""

import ipaddress
import random

import pytest

from cortex.domain.errors import ForbiddenError
from cortex.http_client.addresses import (
    NOT_PUBLIC_IPV4,
    NOT_PUBLIC_IPV6,
    AllowedAddresses,
    Network,
    is_public,
    resolve,
)
from tests.support.records.rows import seeded_random

INSIDE = {
    "this network": "0.0.0.0",  # noqa: S104 -- must not be reachable
    "this network, end": "0.255.255.255",
    "private 10": "10.0.0.1",
    "provider's": "100.64.0.1",
    "metadata of Alibaba": "100.100.100.200",
    "provider's, end": "100.127.255.255",
    "loopback": "127.0.0.1",
    "loopback, other": "127.8.8.8",
    "metadata of Azure": "168.63.129.16",
    "metadata": "169.254.169.254",
    "private 172": "172.16.0.1",
    "private 172, end": "172.31.255.255",
    "PCP anycast": "192.0.0.9",
    "TURN anycast": "192.0.0.10",
    "metadata of Oracle": "192.0.0.192",
    "documentation 1": "192.0.2.1",
    "AS112 v4": "192.31.196.1",
    "AMT v4": "192.52.193.1",
    "relay of 6to4": "192.88.99.1",
    "private 192": "192.168.1.1",
    "AS112 direct delegation": "192.175.48.6",
    "benchmark": "198.18.0.1",
    "benchmark, end": "198.19.255.255",
    "documentation 2": "198.51.100.1",
    "documentation 3": "203.0.113.1",
    "multicast": "224.0.0.1",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "unspecified v6": "::",
    "loopback v6": "::1",
    "compatible": "::127.0.0.1",
    "mapped loopback": "::ffff:127.0.0.1",
    "mapped metadata": "::ffff:169.254.169.254",
    "mapped public": "::ffff:8.8.8.8",
    "SIIT": "::ffff:0:10.0.0.1",
    "SIIT public": "::ffff:0:8.8.8.8",
    "NAT64 loopback": "64:ff9b::7f00:1",
    "NAT64 metadata": "64:ff9b::a9fe:a9fe",
    "NAT64 public": "64:ff9b::808:808",
    "NAT64 of a network": "64:ff9b:1::a9fe:a9fe",
    "discard": "100::1",
    "dummy prefix": "100:0:0:1::1",
    "Teredo": "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "PCP anycast v6": "2001:1::1",
    "TURN anycast v6": "2001:1::2",
    "SRP anycast v6": "2001:1::3",
    "benchmark v6": "2001:2::1",
    "AMT v6": "2001:3::1",
    "AS112 v6": "2001:4:112::1",
    "ORCHID": "2001:10::1",
    "ORCHIDv2": "2001:20::1",
    "drone remote id": "2001:30::1",
    "IETF, end": "2001:1ff:ffff::1",
    "documentation v6": "2001:db8::1",
    "6to4 of loopback": "2002:7f00:1::",
    "6to4 of a public address": "2002:808:808::1",
    "AS112 direct delegation v6": "2620:4f:8000::6",
    "documentation v6, new": "3fff::1",
    "ISATAP of a private address": "2606:4700::5efe:a00:1",
    "ISATAP with the universal bit": "2606:4700::200:5efe:a9fe:a9fe",
    "outside of global unicast": "4000::1",
    "segment routing": "5f00::1",
    "unique local": "fc00::1",
    "metadata of AWS v6": "fd00:ec2::254",
    "metadata of Google v6": "fd20:ce::254",
    "link-local": "fe80::1",
    "link-local with a zone": "fe80::1%eth0",
    "site-local": "fec0::1",
    "multicast v6": "ff02::1",
}
OUTSIDE = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "168.63.129.17"),
    *("172.15.255.255", "172.32.0.1", "192.0.1.1", "198.17.255.255", "223.255.255.255"),
    *("2001:200::1", "2606:4700::1111", "2620:4f:8001::1", "2a00:1450:4001::8a"),
    "2606:4700::5eff:a00:1",
]


@pytest.mark.parametrize("address", INSIDE.values(), ids=INSIDE)
def test_an_address_of_the_inside_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_a_public_address_is_global_for_python_too() -> None:
    """The edges of every special range, and addresses drawn at random, on each Python."""
    rng = seeded_random()
    networks: list[Network] = [*NOT_PUBLIC_IPV4, *NOT_PUBLIC_IPV6]
    for network in networks:
        first, last = int(network.network_address), int(network.broadcast_address)
        kind = type(network.network_address)
        assert not is_public(kind(first))
        assert not is_public(kind(last))
        _compare(kind(first - 1) if first else kind(first))
        _compare(kind(min(last + 1, 2 ** kind(0).max_prefixlen - 1)))
    for _ in range(2_000):
        _compare(_drawn(rng))


def _compare(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert address.is_global or not is_public(address), address


def _drawn(rng: random.Random) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    if rng.random() < 0.5:
        return ipaddress.IPv4Address(rng.getrandbits(32))
    return ipaddress.IPv6Address(rng.getrandbits(128))


@pytest.mark.parametrize(
    "setting, host, is_permitted",
    [
        ("64:ff9b::/96", "64:ff9b::808:808", True),
        ("64:ff9b::/96", "64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::/96,10.0.0.0/8", "64:ff9b::a00:1", True),
        ("10.0.0.0/8", "64:ff9b::a00:1", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1", False),
    ],
)
async def test_an_exception_for_nat64_opens_what_ipv4_would(
    setting: str, host: str, is_permitted: bool
) -> None:
    allowed = AllowedAddresses.parse(setting)
    if is_permitted:
        assert await resolve(host, 80, allowed) == (host,)
    else:
        with pytest.raises(ForbiddenError, match="not a public address"):
            await resolve(host, 80, allowed)
