"""Public addresses, and the operator's exceptions."""

import ipaddress

import pytest

from cortex.domain.errors import ForbiddenError, UsageError
from cortex.http_client.addresses import AllowedAddresses, is_public, resolve


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",  # noqa: S104 - an address that must not be reachable
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "::127.0.0.1",
        "64:ff9b:1::1",
    ],
)
def test_internal_addresses_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_external_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "::1", "0"]
)
async def test_no_spelling_of_loopback_passes(host: str) -> None:
    with pytest.raises(ForbiddenError, match="not a public address"):
        await resolve(host, 80, AllowedAddresses())


@pytest.mark.parametrize(
    "setting, host, port",
    [
        ("localhost:80", "localhost", 80),
        ("other:1, LOCALHOST:80 ,", "localhost", 80),
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("[::1]:80", "::1", 80),
        ("127.0.0.0/8", "127.0.0.1", 99),
        ("127.0.0.1", "127.0.0.1", 99),
    ],
)
async def test_operator_can_allow_private_addresses(setting: str, host: str, port: int) -> None:
    addresses = await resolve(host, port, AllowedAddresses.parse(setting))
    assert {"127.0.0.1", "::1"} & set(addresses)


@pytest.mark.parametrize(
    "setting", ["localhost:81", "127.0.0.2", "10.0.0.0/8", "localhost.:80", ""]
)
async def test_exception_opens_only_its_own_address(setting: str) -> None:
    with pytest.raises(ForbiddenError) as caught:
        await resolve("localhost", 80, AllowedAddresses.parse(setting))
    assert caught.value.hint == "the operator can allow localhost:80 in CORTEX_HTTP_ALLOW"


@pytest.mark.parametrize("setting", ["host", "host:", ":80", "host:http", "10.0.0.1/8", "a/b:80"])
def test_a_malformed_exception_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=r"CORTEX_HTTP_ALLOW: .* is neither"):
        AllowedAddresses.parse(setting)
