"""Public addresses, and the operator's exceptions."""

import pytest

from cortex.domain.errors import ForbiddenError, UsageError
from cortex.http_client.addresses import AllowedAddresses, resolve


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
