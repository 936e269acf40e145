"""The origin of a request: headers added by a local proxy count, others do not."""

import pytest
from starlette.requests import Request

from cortex.config import networks_of
from cortex.domain.errors import ForbiddenError
from cortex.http.framework.origin import (
    ORIGIN,
    address_of,
    base_url,
    is_https,
    origin_of,
    refuse_foreign,
)

PROXIES = networks_of("127.0.0.0/8,::1,192.0.2.0/24")


def a_scope(peer: str | None, *headers: tuple[str, str]) -> dict[str, object]:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    client = None if peer is None else (peer, 1234)
    scope: dict[str, object] = {"type": "http", "client": client, "headers": raw}
    scope[ORIGIN] = origin_of(scope, PROXIES)
    return scope


def forwarded(*values: str) -> list[tuple[str, str]]:
    return [("X-Forwarded-For", value) for value in values]


@pytest.mark.parametrize(
    "peer, values, expected",
    [
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("::1", ["203.0.113.7"], "203.0.113.7"),
        ("::ffff:127.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("::ffff:198.51.100.9", ["203.0.113.7"], "198.51.100.9"),
        ("127.9.9.9", ["10.0.0.1, 203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", ["10.0.0.1", "203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", ["203.0.113.7,"], "127.0.0.1"),
        ("127.0.0.1", ["203.0.113.7:443"], "127.0.0.1"),
        ("127.0.0.1", ["unknown"], "127.0.0.1"),
        ("127.0.0.1", ["fe80::1%<b>any text"], "127.0.0.1"),
        ("198.51.100.9", ["127.0.0.1"], "198.51.100.9"),
        ("10.0.0.2", ["203.0.113.7"], "10.0.0.2"),
        ("fe80::1%eth0", ["203.0.113.7"], "fe80::1%eth0"),
        (None, ["203.0.113.7"], "unknown"),
        ("192.0.2.1", ["203.0.113.7, 192.0.2.9"], "203.0.113.7"),
        ("192.0.2.1", ["198.51.100.1, 203.0.113.7, 192.0.2.9", "127.0.0.1"], "203.0.113.7"),
        ("192.0.2.1", ["nonsense, 192.0.2.9"], "192.0.2.9"),
        ("192.0.2.1", ["::ffff:203.0.113.7"], "203.0.113.7"),
    ],
)
def test_the_address_is_the_one_that_a_proxy_added(
    peer: str | None, values: list[str], expected: str
) -> None:
    assert address_of(a_scope(peer, *forwarded(*values))) == expected


@pytest.mark.parametrize(
    "peer, protos, expected",
    [
        ("127.0.0.1", ["https"], True),
        ("127.0.0.1", ["http"], False),
        ("127.0.0.1", ["https", "http"], False),
        ("127.0.0.1", [], False),
        ("::ffff:127.0.0.1", ["https"], True),
        ("198.51.100.9", ["https"], False),
    ],
)
def test_tls_is_believed_of_a_proxy(peer: str, protos: list[str], expected: bool) -> None:
    headers = [("X-Forwarded-Proto", proto) for proto in protos]
    scope = a_scope(peer, ("Host", "cortex.example"), *headers)
    assert is_https(scope) is expected
    scheme = "https" if expected else "http"
    assert base_url(Request(scope)) == f"{scheme}://cortex.example"


@pytest.mark.parametrize(
    "headers, is_own",
    [
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, True),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://cortex.example"}, False),
        ({"Origin": "http://cortex.example"}, True),
        ({"Origin": "https://CORTEX.example"}, True),
        ({"Origin": "http://cortex.example:81"}, False),
        ({"Origin": "http://["}, False),
        ({"Origin": "null"}, False),
        ({}, False),
    ],
)
def test_only_pages_of_the_same_origin_send_forms(headers: dict[str, str], is_own: bool) -> None:
    request = Request(a_scope("127.0.0.1", ("Host", "cortex.example"), *headers.items()))
    if is_own:
        refuse_foreign(request)
    else:
        with pytest.raises(ForbiddenError):
            refuse_foreign(request)
