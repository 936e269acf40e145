"""Nobody chooses the address that is recorded and locked out but a configured proxy."""

from typing import Final

import pytest

from cortex.config import FIELDS, Settings, networks_of
from cortex.domain.errors import UsageError
from cortex.http.framework.auth import MISSES_MAX
from tests.support.servers.http_server import http_server

FORGED: Final = [
    {"X-Forwarded-For": "{n}"},
    {"X-Forwarded-For": "{n}, 127.0.0.1"},
    {"X-Forwarded-For": "127.0.0.1, {n}"},
    {"Forwarded": "for={n}"},
    {"X-Real-IP": "{n}"},
]
WITHOUT: Final = [None, "192.0.2.0/24", "127.0.0.2"]
"""No proxy, or others than the peer, which is on this machine."""


@pytest.mark.parametrize("proxies", WITHOUT)
def test_a_header_cannot_change_the_address_of_a_guesser(
    shared_database: str, proxies: str | None
) -> None:
    with http_server(shared_database, proxies=proxies) as server:
        for n in range(MISSES_MAX):
            headers = FORGED[n % len(FORGED)]
            sent = {name: value.format(n=f"203.0.113.{n}") for name, value in headers.items()}
            assert server.get("/v1/types", token=f"cortex_{n}", headers=sent).status == 401
        answered = server.get("/v1/types", token="x", headers={"X-Forwarded-For": "203.0.113.99"})
        assert answered.status == 429


@pytest.mark.parametrize("proxies, is_secure", [(None, False), ("127.0.0.1", True)])
def test_tls_is_believed_of_a_configured_proxy_alone(
    shared_database: str, proxies: str | None, is_secure: bool
) -> None:
    with http_server(shared_database, proxies=proxies) as server:
        body = f"token={server.token('approver')}".encode()
        headers = {"Sec-Fetch-Site": "same-origin", "X-Forwarded-Proto": "https"}
        cookie = server.post("/sign-in", body=body, headers=headers).headers["set-cookie"]
        assert ("Secure" in cookie) is is_secure


def test_nothing_is_trusted_by_default_and_no_folder_widens_it() -> None:
    assert Settings().proxies == ()
    assert FIELDS["http_proxies"].metadata["project"] is False


@pytest.mark.parametrize("text", ["everyone", "10.0.0.1/8", "10.0.0.0/33", "proxy.example", "*"])
def test_a_setting_that_names_no_network_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="http_proxies"):
        networks_of(text)
