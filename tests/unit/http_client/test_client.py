"""The HTTP client: limits, connections, and uncertain answers."""

import socket
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from cortex.domain.classification import failure_of
from cortex.domain.effect import Invocation, UnsettledError, changed_nothing
from cortex.domain.errors import ForbiddenError, TimedOutError
from cortex.domain.failure import FailureClass
from cortex.http_client.client import HttpClient, HttpLimits, Request, breaker_of, text_of
from tests.support.eventually import WITHIN_S
from tests.support.servers.web_server import WebServer as Server

INVOCATION = Invocation(id=UUID(int=7), job_id=UUID(int=1), attempt=3, tool="x", arguments={})


class Names(trio.abc.HostnameResolver):
    """Answers each look-up of a name with the next of its addresses."""

    def __init__(self, **addresses: list[str]) -> None:
        self.addresses = {name.replace("_", "."): each for name, each in addresses.items()}

    async def getaddrinfo(self, host: Any, port: Any, *_: object, **__: object) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        address = self.addresses[name].pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


async def get(client: HttpClient, url: str) -> Any:
    with trio.fail_after(WITHIN_S):
        return await client.follow(Request.made("GET", url))


async def test_connections_are_kept_for_their_origin_only(server: Server) -> None:
    trio.socket.set_custom_hostname_resolver(
        Names(one_test=["127.0.0.1"] * 2, two_test=["127.0.0.1"])
    )
    async with HttpClient(server.allowed) as client:
        for _ in range(2):
            await get(client, server.url(host="one.test"))
        assert server.connections == 1
        await get(client, server.url(host="two.test"))  # whose certificate would be another
        assert server.connections == 2
    hosts = [line for asked in server.asked for line in asked.splitlines() if line[:5] == "Host:"]
    assert [each.partition(":")[2].strip().partition(":")[0] for each in hosts] == [
        "one.test",
        "one.test",
        "two.test",
    ]


async def test_a_kept_connection_does_not_outlive_a_name_that_turns_private(server: Server) -> None:
    trio.socket.set_custom_hostname_resolver(Names(three_test=["127.0.0.1", "169.254.169.254"]))
    allowed = type(server.allowed).parse("127.0.0.1/32")
    async with HttpClient(allowed) as client:
        await get(client, server.url(host="three.test"))
        with pytest.raises(ForbiddenError, match=r"169\.254\.169\.254"):
            await get(client, server.url(host="three.test"))


async def test_idle_connections_of_many_servers_are_closed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.http_client.client.KEPT_MAX", 1)
    trio.socket.set_custom_hostname_resolver(
        Names(one_test=["127.0.0.1"] * 2, two_test=["127.0.0.1"])
    )
    async with HttpClient(server.allowed) as client:
        for host in ("one.test", "two.test", "one.test"):
            await get(client, server.url(host=host))
    assert server.connections == 3


async def test_a_body_without_end_is_cut(server: Server) -> None:
    server.reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.endless = b"3e8\r\n" + b"~" * 1000 + b"\r\n"  # begins no secret of another test
    async with HttpClient(server.allowed, HttpLimits(body_max=5_000)) as client:
        response = await get(client, server.url())
    assert (len(response.body), response.is_cut) == (5_000, True)
    assert 5_000 < response.size_bytes < 200_000
    assert text_of(response) == "~" * 5_000


async def test_an_announced_size_is_kept_of_a_cut_body(server: Server) -> None:
    server.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"
    server.endless = b"a" * 65_536
    async with HttpClient(server.allowed) as client:
        response = await get(client, server.url())
    assert (response.size_bytes, response.is_cut) == (3_000_000, True)


async def test_a_head_without_end_is_refused(server: Server) -> None:
    server.reply = b"HTTP/1.1 200 OK\r\n"
    server.endless = b"X-Y: " + b"a" * 10_000 + b"\r\n"
    async with HttpClient(server.allowed) as client:
        with pytest.raises(Exception, match="broke off") as caught:
            await get(client, server.url())
    assert failure_of(caught.value).cls is FailureClass.TRANSIENT_INFRA


async def test_drops_of_bytes_do_not_extend_the_call(
    server: Server, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1000.0
    server.reply = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000000\r\n\r\n"
    server.endless = b"a"
    async with HttpClient(server.allowed, HttpLimits(call_s=120, body_max=10**9)) as client:
        with pytest.raises(TimedOutError, match="took longer than 120 seconds") as caught:
            await client.follow(Request.made("GET", server.url()))
    assert caught.value.scope == "call"
    assert failure_of(caught.value).cls is FailureClass.TRANSIENT_APP


async def test_a_silent_server_is_left(server: Server, mock_clock: trio.testing.MockClock) -> None:
    mock_clock.rate = 100.0  # to connect takes some milliseconds, on a busy machine
    server.hangs = True
    async with HttpClient(server.allowed, HttpLimits(quiet_s=30)) as client:
        with pytest.raises(TimedOutError, match="sent nothing for 30 seconds"):
            await client.follow(Request.made("GET", server.url()))


async def test_a_change_carries_its_key(server: Server) -> None:
    async with HttpClient(server.allowed) as client:
        await client.change(Request.made("POST", server.url(), body=b"x"), INVOCATION)
    (asked,) = server.asked
    assert f"\r\nidempotency-key: {UUID(int=7)}\r\n" in asked.lower()
    assert "\r\ncortex-attempt: 3\r\n" in asked.lower()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_some_answers_leave_a_change_open(server: Server, status: int) -> None:
    server.reply = f"HTTP/1.1 {status} X\r\nRetry-After: 17\r\nContent-Length: 0\r\n\r\n".encode()
    async with HttpClient(server.allowed) as client:
        with pytest.raises(UnsettledError) as caught:
            await client.change(Request.made("POST", server.url(), body=b"x"), INVOCATION)
    assert not changed_nothing(caught.value)
    assert failure_of(caught.value).retry_after_s == 17


@pytest.mark.parametrize(
    "url, name",
    [
        ("https://Example.ORG:8443/a?b=c", "http:example.org"),
        ("http://[::1]:80/", "http:::1"),
        ("no url", None),
        (f"http://{'a.' * 200}org/", None),
    ],
)
def test_the_breaker_is_that_of_the_host(url: str, name: str | None) -> None:
    assert breaker_of(url) == name
