"""http_request with a secret in a header: only the declared host receives it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio
from attrs import define, evolve, field

from cortex.agent.secrets import Secrets
from cortex.agent.tools.http_request import http_request
from cortex.agent.tools.tool import ToolContext
from cortex.domain.effect import Invocation
from cortex.domain.errors import CortexError, ForbiddenError, InvalidValueError, RejectedError
from cortex.durable.codec import encode
from tests.support.eventually import WITHIN_S
from tests.support.knowing import forget_secrets

VALUE = "sk-live-0f9e8d7c6b"
BEARER = {"Authorization": "Bearer {secret:API_KEY}"}
CUSTOM = {"X-Api-Key": "{secret:API_KEY}", "X-Other": "stays"}


@define
class Server:
    """Answers `/to/<n>` with a redirect to the n-th of its `places`, the rest with the request."""

    port: int
    asked: list[str] = field(factory=list)
    places: list[str] = field(factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (chunk := await stream.receive_some()):
            head += chunk
        asked = head.decode("latin-1")
        self.asked.append(asked)
        path = asked.split(" ", 2)[1]
        if path.startswith("/to/"):
            location = self.places[int(path[4:])]
            answer = f"HTTP/1.1 307 Go\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        else:
            answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(asked)}\r\n\r\n{asked}"
        await stream.send_all(answer.encode())


@pytest.fixture
async def servers(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> tuple[Server, Server]:
    """The one that the secret is for, and another one."""
    forget_secrets(monkeypatch)
    made = []
    for _ in range(2):
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        server = Server(listener.socket.getsockname()[1])
        nursery.start_soon(trio.serve_listeners, server.serve, [listener])
        made.append(server)
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", "127.0.0.1/32")
    monkeypatch.setenv("TEST_API_KEY", VALUE)
    return made[0], made[1]


@pytest.fixture
def context(servers: tuple[Server, Server], tmp_path: Path) -> ToolContext:
    reference = {"env": "TEST_API_KEY", "hosts": [f"http://127.0.0.1:{servers[0].port}"]}
    other = {"env": "TEST_API_KEY"}
    spec = {"name": "a", "secrets": {"API_KEY": reference, "NOWHERE": other}}
    return ToolContext(UUID(int=1), 1, "1", tmp_path, secrets=Secrets.of(spec))


async def call(context: ToolContext, url: str, headers: dict[str, str]) -> Any:
    with trio.fail_after(WITHIN_S):
        return await http_request.call(context, {"url": url, "headers": headers})


@pytest.mark.parametrize("headers", [BEARER, CUSTOM], ids=["bearer", "custom"])
async def test_host_gets_the_secret_and_the_record_a_marker(
    context: ToolContext, servers: tuple[Server, Server], headers: dict[str, str]
) -> None:
    ours, _ = servers
    reply = await call(context, ours.url(), headers)
    assert VALUE in ours.asked[0]
    assert "{secret" not in ours.asked[0]
    kept = encode(reply, what="reply")  # the server echoed it
    assert VALUE not in kept
    assert "[secret API_KEY, 18 characters]" in kept


Elsewhere = Callable[[Server, Server], str]
ELSEWHERE: dict[str, Elsewhere] = {
    "another port": lambda _, other: other.url(),
    "another name": lambda ours, _: ours.url(host="localhost"),
    "a name that begins so": lambda ours, _: ours.url(host="127.0.0.1.evil.test"),
    "another scheme": lambda ours, _: f"https://127.0.0.1:{ours.port}/",
    "another form of the address": lambda ours, _: ours.url(host="2130706433"),
    "the port left out": lambda _ours, _other: "http://127.0.0.1/",
    "a query": lambda ours, other: f"{other.url()}?http://127.0.0.1:{ours.port}",
    "a fragment": lambda ours, other: f"{other.url()}#@127.0.0.1:{ours.port}",
    "a backslash": lambda ours, other: f"http://127.0.0.1:{other.port}\\@127.0.0.1:{ours.port}/",
}


@pytest.mark.parametrize("place", ELSEWHERE.values(), ids=ELSEWHERE)
async def test_any_other_place_is_refused_before_anybody_is_asked(
    context: ToolContext, servers: tuple[Server, Server], place: Elsewhere
) -> None:
    with pytest.raises((ForbiddenError, InvalidValueError)) as caught:
        await call(context, place(*servers), BEARER)
    assert VALUE not in f"{caught.value} {caught.value.hint}"
    assert servers[0].asked == servers[1].asked == []


async def test_a_name_before_the_host_is_refused(
    context: ToolContext, servers: tuple[Server, Server]
) -> None:
    ours, other = servers
    with pytest.raises(InvalidValueError, match="contains a password"):
        await call(context, f"http://127.0.0.1:{ours.port}@127.0.0.1:{other.port}/", BEARER)
    assert ours.asked == other.asked == []


@pytest.mark.parametrize("headers", [BEARER, CUSTOM], ids=["bearer", "custom"])
async def test_redirect_to_another_host_drops_the_secret(
    context: ToolContext, servers: tuple[Server, Server], headers: dict[str, str]
) -> None:
    ours, other = servers
    ours.places = [other.url("/to/0"), "/to/2", ours.url("/end")]
    other.places = [ours.url("/end")]
    await call(context, ours.url("/to/0"), headers)
    first, last = ours.asked
    (between,) = other.asked
    assert VALUE in first
    # Not even when it leads back: a server in between chose the target.
    assert VALUE not in between + last
    assert "{secret" not in between + last
    assert ("stays" in between) == ("X-Other" in headers)


async def test_redirect_within_the_host_keeps_the_secret(
    context: ToolContext, servers: tuple[Server, Server]
) -> None:
    ours, _ = servers
    ours.places = ["/to/1", ours.url("/end")]
    await call(context, ours.url("/to/0"), CUSTOM)
    assert [VALUE in asked for asked in ours.asked] == [True, True, True]


@pytest.mark.parametrize(
    "headers, error, output",
    [
        ({"X": "{secret:NOWHERE}"}, ForbiddenError, "NOWHERE may not be sent"),
        ({"X": "{secret:OTHER}"}, RejectedError, "declares no secret 'OTHER'"),
        ({"X": "{secret:API_KEY}{secret:NOWHERE}"}, ForbiddenError, "NOWHERE may not be sent"),
    ],
    ids=["without hosts", "undeclared", "one of two"],
)
async def test_secret_without_hosts_or_declaration_is_not_sent(
    context: ToolContext,
    servers: tuple[Server, Server],
    headers: dict[str, str],
    error: type[CortexError],
    output: str,
) -> None:
    with pytest.raises(error, match=output):
        await call(context, servers[0].url(), headers)
    assert servers[0].asked == []


async def test_only_headers_take_secrets(
    context: ToolContext, servers: tuple[Server, Server]
) -> None:
    url = servers[0].url("/?key={secret:API_KEY}")
    invocation = Invocation(
        id=UUID(int=7), job_id=UUID(int=1), attempt=1, tool="http_request", arguments={}
    )
    context = evolve(context, invocation=invocation)
    with trio.fail_after(WITHIN_S):
        await http_request.call(
            context, {"url": url, "method": "POST", "body": "{secret:API_KEY}", "headers": {}}
        )
    (asked,) = servers[0].asked
    assert VALUE not in asked
