"""Proxies: the choice for a request, and the requests they receive."""

import pytest
import trio

from cortex.domain.effect import NotSentError
from cortex.domain.errors import ForbiddenError, UsageError
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.client import HttpClient, Request
from cortex.http_client.poster import Poster, Target
from cortex.http_client.proxies import Proxies
from tests.support.eventually import WITHIN_S
from tests.support.servers.web_server import OK, WebServer

NOTHING = AllowedAddresses()


def proxies(**variables: str) -> Proxies:
    return Proxies.of_environment(variables)


@pytest.mark.parametrize(
    "variables, origin, variable",
    [
        ({"HTTP_PROXY": "p:1"}, ("http", "a.test", 80), "HTTP_PROXY"),
        ({"HTTP_PROXY": "p:1"}, ("https", "a.test", 443), None),
        ({"ALL_PROXY": "p:1"}, ("https", "a.test", 443), "ALL_PROXY"),
        ({"all_proxy": "p:1", "HTTPS_PROXY": "q:1"}, ("https", "a.test", 443), "HTTPS_PROXY"),
        ({"HTTP_PROXY": "p:1", "http_proxy": ""}, ("http", "a.test", 80), None),
        ({}, ("http", "a.test", 80), None),
    ],
)
def test_variables_choose_the_proxy(
    variables: dict[str, str], origin: tuple[str, str, int], variable: str | None
) -> None:
    proxy = proxies(**variables).of(origin)
    assert (None if proxy is None else proxy.variable) == variable


def test_lower_case_variables_go_first() -> None:
    proxy = proxies(HTTP_PROXY="upper:1", http_proxy="lower:2").of(("http", "a.test", 80))
    assert str(proxy) == "HTTP_PROXY http://lower:2"


@pytest.mark.parametrize(
    "entry, host, is_direct",
    [
        ("*", "a.test", True),
        ("a.test", "a.test", True),
        ("a.test", "b.a.test", True),
        (".a.test", "b.a.test", True),
        ("*.a.test", "b.a.test", True),
        ("A.Test", "a.test", True),
        ("a.test", "a.test.", True),
        ("a.test", "ba.test", False),
        ("a.test:80", "a.test", True),
        ("a.test:81", "a.test", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3:80", "10.1.2.3", True),
        ("::1", "::1", True),
        ("[::1]:80", "::1", True),
        ("fd00::/8", "fd00::7", True),
        ("x, ,a.test", "a.test", True),
        ("x a.test\tb", "a.test", True),
        ("10.0.0.0/8", "a.test", False),
        (".", "a.test", False),
    ],
)
def test_an_entry_of_no_proxy_has_several_forms(entry: str, host: str, is_direct: bool) -> None:
    proxy = proxies(HTTP_PROXY="p:1", NO_PROXY=entry).of(("http", host, 80))
    assert (proxy is None) is is_direct


@pytest.mark.parametrize("text", ["socks5://u:secret@p:1", "ftp://p", "http://", "http://p:x", "é"])
def test_an_unusable_proxy_is_named_without_its_password(text: str) -> None:
    given = proxies(ALL_PROXY=text)
    with pytest.raises(UsageError, match="ALL_PROXY is") as refused:
        given.of(("http", "a.test", 80))
    assert "secret" not in str(refused.value)
    (problem,) = given.problems()
    assert "NO_PROXY" in (problem.hint or "")
    assert refused.value.message == f"{problem.message}: {problem.hint}", "a job keeps no hint"


async def test_a_proxy_gets_the_name_and_its_password(server: WebServer) -> None:
    way = proxies(HTTP_PROXY=f"http://u%40x:p@127.0.0.1:{server.port}")
    url = "http://hooks.test/x?y=1"
    with trio.fail_after(WITHIN_S):
        async with HttpClient(NOTHING, proxies=way) as client:
            answer = await client.follow(Request.made("GET", url))
        poster = Poster(NOTHING, proxies=way)
        posted = [await poster.post(Target.parse(url), (), b"{}") for _ in range(2)]
        await poster.aclose()
    assert (answer.status, answer.url) == (200, url)
    assert [each.status for each in posted] == [200, 200]
    assert len(server.asked) == 3
    for asked in server.asked:
        assert asked.split()[1] == url
        assert "\r\nhost: hooks.test\r\n" in asked.lower()
        assert "\r\nproxy-authorization: basic dub4ona=\r\n" in asked.lower()
    assert server.connections == 2, "the poster keeps its own"


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "169.254.169.254", "localhost", "10.0.0.7", "[::1]"),
        *("127.1", "2130706433", "0x7f000001", "1.2.3.4.5"),
        *("metadata.google.internal", "database", "printer.local"),
    ],
)
async def test_a_proxy_is_not_asked_for_forbidden_hosts(server: WebServer, host: str) -> None:
    way = proxies(ALL_PROXY=f"127.0.0.1:{server.port}")
    poster = Poster(NOTHING, proxies=way)
    for scheme in ("http", "https"):
        url = f"{scheme}://{host}/"
        with pytest.raises(ForbiddenError, match="public"):
            async with HttpClient(NOTHING, proxies=way) as client:
                await client.follow(Request.made("GET", url))
        with pytest.raises(ForbiddenError, match="public"):
            await poster.post(Target.parse(url), (), b"")
    assert server.connections == 0


async def test_a_redirect_through_a_proxy_is_checked_too(server: WebServer) -> None:
    server.reply = (
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    )
    way = proxies(ALL_PROXY=f"127.0.0.1:{server.port}")
    async with HttpClient(NOTHING, proxies=way) as client:
        with pytest.raises(ForbiddenError, match=r"169\.254"):
            await client.follow(Request.made("GET", "http://hooks.test/"))
    assert len(server.asked) == 1


async def test_refusal_by_a_proxy_means_nothing_was_sent(server: WebServer) -> None:
    way = proxies(ALL_PROXY=f"127.0.0.1:{server.port}")
    for reply, url in (
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "https://hooks.test/"),
        (OK.replace(b"200 OK", b"407 No"), "http://hooks.test/"),
    ):
        server.reply = reply
        async with HttpClient(NOTHING, proxies=way) as client:
            with pytest.raises(NotSentError, match=r"ALL_PROXY http://127\.0\.0\.1"):
                await client.follow(Request.made("GET", url))
    server.reply = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    poster = Poster(NOTHING, proxies=way)
    with pytest.raises(NotSentError, match=r"does not connect to hooks\.test:443: status 403"):
        await poster.post(Target.parse("https://hooks.test/"), (), b"")
    assert server.asked[-1].startswith("CONNECT hooks.test:443 HTTP/1.1\r\n")


async def test_an_unreachable_proxy_is_named() -> None:
    way = proxies(ALL_PROXY="127.0.0.1:1")
    async with HttpClient(NOTHING, proxies=way) as client:
        with pytest.raises(NotSentError, match=r"through ALL_PROXY http://127\.0\.0\.1:1"):
            await client.follow(Request.made("GET", "http://hooks.test/"))
    with pytest.raises(NotSentError, match=r"ALL_PROXY http://127\.0\.0\.1:1 cannot be reached"):
        await Poster(NOTHING, proxies=way).post(Target.parse("http://hooks.test/"), (), b"")
