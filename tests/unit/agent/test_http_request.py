"""http_request against servers on loopback: requests, replies, and refused addresses."""

import gzip
import socket
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from cortex.agent.tools import http_request as module
from cortex.agent.tools.http_request import http_request
from cortex.agent.tools.tool import ToolContext, ToolInputError
from cortex.domain.classification import failure_of
from cortex.domain.effect import Invocation, changed_nothing
from cortex.domain.errors import (
    CortexError,
    ForbiddenError,
    InvalidValueError,
    RejectedError,
    UnavailableError,
)
from cortex.domain.redaction import Redactor
from cortex.http_client import client
from cortex.http_client.client import BODY_MAX_BYTES, HttpClient, HttpLimits, Request
from tests.support.eventually import WITHIN_S

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


def redirect(location: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Go\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


class Server:
    """Answers each path with the test's bytes, and keeps the requests."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []
        self.replies: dict[str, bytes] = {"/": OK}

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, stream: trio.SocketStream) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            if not (chunk := await stream.receive_some()):
                self.asked.append(received.decode("latin-1"))
                return
            received += chunk
            if received[0] == 22:  # a TLS hello, which this server does not answer
                self.asked.append(received.decode("latin-1"))
                return
        head, _, body = received.partition(b"\r\n\r\n")
        length = next(
            (
                int(line[16:])
                for line in head.splitlines()
                if line.lower()[:16] == b"content-length: "
            ),
            0,
        )
        while len(body) < length:
            body += await stream.receive_some()
        self.asked.append((head + b"\r\n\r\n" + body).decode("latin-1"))
        try:
            await stream.send_all(self.replies[head.split()[1].decode()])
        except trio.BrokenResourceError:
            return  # the client has read as much as it wants


@pytest.fixture
async def server(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> Server:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    server = Server(listener.socket.getsockname()[1])
    nursery.start_soon(trio.serve_listeners, server.serve, [listener])
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", f"127.0.0.1:{server.port},name.test:{server.port}")
    return server


class Names(trio.abc.HostnameResolver):
    """Answers each look-up of a name with the next of its answers."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self.answers = {name.replace("_", "."): found for name, found in answers.items()}

    async def getaddrinfo(self, host: Any, port: Any, *_: object, **__: object) -> Any:
        found = self.answers[host.decode() if isinstance(host, bytes) else host].pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> tuple[str, str]:
        raise NotImplementedError


async def call(context: ToolContext, url: str, **given: object) -> Any:
    with trio.fail_after(WITHIN_S):
        return await http_request.call(context, {"url": url, **given})


async def test_request_and_reply_are_complete(changing: ToolContext, server: Server) -> None:
    reply = await call(
        changing, server.url("/"), method="POST", headers={"X-One": "1"}, body="grüezi"
    )
    assert reply["status"] == 200
    assert reply["body"] == "ok"
    assert reply["url"] == server.url("/")
    assert reply["headers"]["content-type"] == "text/plain"
    (asked,) = server.asked
    assert asked.startswith("POST / HTTP/1.1\r\n")
    assert f"\r\nHost: 127.0.0.1:{server.port}\r\n" in asked
    assert asked.lower().count("\r\nhost:") == 1
    assert "\r\nx-one: 1\r\n" in asked
    assert "\r\naccept-encoding: identity\r\n" in asked
    assert asked.endswith("\r\n\r\n" + "grüezi".encode().decode("latin-1"))


async def test_cut_body_shows_no_part_of_a_secret(
    context: ToolContext, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, secret = Redactor(), "Zq7-Kx2_Wm9.Pv4"
    known.register("TOKEN", secret)
    monkeypatch.setattr(client, "begun_in", known.begun_in)
    monkeypatch.setattr(module, "BODY_MAX_BYTES", 40)
    for before in range(20, 41):
        body = f"{'a' * before}{secret}{'b' * 40}".encode()
        server.replies["/"] = b"HTTP/1.1 200 OK\r\n\r\n" + body
        shown = known.redact(str((await call(context, server.url()))["body"]))
        assert "truncated after 40 bytes" in shown
        parts = [secret[at : at + 4] for at in range(len(secret) - 3)]
        assert not any(each in shown for each in parts), before


async def test_an_error_status_is_a_reply(context: ToolContext, server: Server) -> None:
    server.replies["/"] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone"
    reply = await call(context, server.url())
    assert (reply["status"], reply["body"]) == (404, "none")


async def test_the_environments_proxy_is_used(
    context: ToolContext, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url())
    server.replies["http://hooks.test/x"] = server.replies["/"]
    assert (await call(context, "http://hooks.test/x"))["status"] == 200
    with pytest.raises(ForbiddenError):
        await call(context, "http://127.0.0.2/x")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.0/8")
    assert (await call(context, server.url()))["status"] == 200


async def test_a_body_over_the_cap_is_cut(context: ToolContext, server: Server) -> None:
    server.replies["/"] = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (8 * BODY_MAX_BYTES)
    body = (await call(context, server.url()))["body"]
    assert body == "x" * BODY_MAX_BYTES + "\n[… truncated after 1048576 bytes]"


@pytest.mark.parametrize(
    "headers, data, expected",
    [
        (b"Content-Type: text/plain; charset=iso-8859-1", "ü".encode("latin-1"), "ü"),
        (b"Content-Type: text/plain; charset=unicode_escape", b"\\ud800", "\\ud800"),
        (b"Content-Type: text/plain; charset=made-up", "ü".encode(), "ü"),
        (b"X: y", b"\xff", "\ufffd"),
        (b"Content-Type: image/png", b"\x89\0", "[binary body left out: image/png, 2 bytes read]"),
        (
            b"Content-Type: text/plain\r\nContent-Encoding: gzip",
            gzip.compress(b"x", mtime=0),
            "[binary body left out: text/plain, 21 bytes read]",
        ),
    ],
)
async def test_bodies_become_text(
    context: ToolContext, server: Server, headers: bytes, data: bytes, expected: str
) -> None:
    server.replies["/"] = b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n\r\n" + data
    assert (await call(context, server.url()))["body"] == expected


async def test_redirects_are_followed_up_to_a_bound(context: ToolContext, server: Server) -> None:
    for number in range(6):
        server.replies[f"/{number}"] = redirect(f"/{number + 1}")
    server.replies["/6"] = OK
    assert (await call(context, server.url("/1")))["url"] == server.url("/6")
    with pytest.raises(RejectedError, match="redirects more than 5 times"):
        await call(context, server.url("/0"))


@pytest.mark.parametrize(
    "status, method, body",
    [(302, "GET", ""), (303, "GET", ""), (307, "PUT", "x"), (308, "PUT", "x")],
)
async def test_redirect_keeps_or_changes_the_method_by_status(
    server: Server, status: int, method: str, body: str
) -> None:
    server.replies["/from"] = redirect("/", status)
    async with HttpClient.of_environment(HttpLimits()) as client:
        with trio.fail_after(WITHIN_S):
            await client.follow(Request.made("PUT", server.url("/from"), body=b"x"))
    assert server.asked[1].startswith(f"{method} / ")
    assert server.asked[1].partition("\r\n\r\n")[2] == body


async def test_credentials_stay_with_their_host(context: ToolContext, server: Server) -> None:
    trio.socket.set_custom_hostname_resolver(Names(name_test=[["127.0.0.1"]]))
    server.replies["/near"] = redirect("/")
    server.replies["/far"] = redirect(server.url("/", host="name.test"))
    headers = {"Authorization": "Bearer secret", "Cookie": "a=b", "X-Kept": "1"}
    await call(context, server.url("/near"), headers=headers)
    await call(context, server.url("/far"), headers=headers)
    output = ["secret" in asked and "a=b" in asked for asked in server.asked]
    assert output == [True, True, True, False]
    assert all("x-kept: 1" in asked for asked in server.asked)


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "//localhost/",
    ],
)
async def test_a_redirect_to_a_private_address_is_refused(
    context: ToolContext, server: Server, location: str
) -> None:
    server.replies["/"] = redirect(location)
    with pytest.raises(ForbiddenError, match="not a public address"):
        await call(context, server.url())


@pytest.mark.parametrize("location", ["file:///etc/passwd", "gopher://x/", "http://u:p@x/"])
async def test_a_redirect_to_something_else_is_refused(
    context: ToolContext, server: Server, location: str
) -> None:
    server.replies["/"] = redirect(location)
    with pytest.raises(InvalidValueError):
        await call(context, server.url())


async def test_host_with_one_private_address_is_refused(context: ToolContext) -> None:
    trio.socket.set_custom_hostname_resolver(Names(name_test=[["93.184.216.34", "10.0.0.1"]]))
    with pytest.raises(ForbiddenError, match=r"'name.test' is 10\.0\.0\.1"):
        await call(context, "http://name.test/")


async def test_name_is_resolved_once_and_its_address_kept(
    context: ToolContext, server: Server
) -> None:
    """A second look-up could lead elsewhere (DNS rebinding); here it would have no answer."""
    trio.socket.set_custom_hostname_resolver(Names(name_test=[["127.0.0.1"]]))
    reply = await call(context, server.url("/", host="name.test"))
    assert reply["url"] == server.url("/", host="name.test")
    assert f"\r\nHost: name.test:{server.port}\r\n" in server.asked[0]


async def test_the_next_address_is_tried_when_one_refuses(
    context: ToolContext, server: Server
) -> None:
    trio.socket.set_custom_hostname_resolver(Names(name_test=[["127.0.0.2", "127.0.0.1"]]))
    assert (await call(context, server.url("/", host="name.test")))["status"] == 200


async def test_tls_is_asked_for_by_name(context: ToolContext, server: Server) -> None:
    trio.socket.set_custom_hostname_resolver(Names(name_test=[["127.0.0.1"]]))
    with pytest.raises(UnavailableError, match=r"cannot be reached: .*(EOF|SSL|TLS)"):
        await call(context, f"https://name.test:{server.port}/")
    assert "name.test" in server.asked[0]


async def test_a_server_that_hangs_up_is_unavailable(context: ToolContext, server: Server) -> None:
    server.replies["/"] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"
    with pytest.raises(UnavailableError, match="broke off"):
        await call(context, server.url())


async def test_a_closed_port_is_unavailable(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", "127.0.0.0/8")
    with pytest.raises(UnavailableError, match="cannot be reached"):
        await call(context, f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "given, output",
    [
        ({"url": "ftp://example.org/"}, "is not a URL"),
        ({"url": "example.org"}, "is not a URL"),
        ({"url": "http://"}, "is not a URL"),
        ({"url": "http://[::1"}, "url"),
        ({"url": "http://a:b@example.org/"}, "contains a password"),
        ({"url": "http://example.org/", "headers": {"hOst": "x"}}, "'hOst' cannot be set"),
        ({"url": "http://example.org/", "headers": {"ä": "x"}}, "not ASCII"),
        ({"url": "http://127.0.0.1/", "headers": {"a": "x\r\nHost: y"}}, "http_request: "),
    ],
)
async def test_nonsense_is_refused(
    context: ToolContext, server: Server, given: dict[str, object], output: str
) -> None:
    url = str(given["url"]).replace("127.0.0.1", f"127.0.0.1:{server.port}")
    with pytest.raises(InvalidValueError, match=output):
        await call(context, url, headers=given.get("headers"))
    assert server.asked in ([], [""])


async def test_a_method_outside_the_list_is_refused(context: ToolContext) -> None:
    with pytest.raises(ToolInputError, match='method must be one of "GET"'):
        await call(context, "http://example.org/", method="CONNECT")


# --- requests that change something

INVOCATION = Invocation(
    id=UUID(int=7), job_id=UUID(int=1), attempt=3, tool="http_request", arguments={}
)
KEY = f"\r\nidempotency-key: {UUID(int=7)}\r\n"
ATTEMPT = "\r\ncortex-attempt: 3\r\n"


def answer(status: int, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"HTTP/1.1 {status} Told\r\n{lines}Content-Length: 2\r\n\r\nno".encode()


@pytest.fixture
def changing(context: ToolContext) -> ToolContext:
    return attrs.evolve(context, invocation=INVOCATION)


async def raised(context: ToolContext, url: str, **given: object) -> CortexError:
    with pytest.raises(CortexError) as caught:
        await call(context, url, **given)
    return caught.value


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_change_carries_its_key_and_its_fence(
    changing: ToolContext, server: Server, method: str
) -> None:
    await call(changing, server.url(), method=method)
    (asked,) = server.asked
    assert KEY in asked.lower()
    assert ATTEMPT in asked.lower()


async def test_safe_method_sends_no_idempotency_key(changing: ToolContext, server: Server) -> None:
    server.replies["/"] = answer(503)
    assert (await call(changing, server.url()))["status"] == 503
    assert "idempotency-key" not in server.asked[0].lower()


@pytest.mark.parametrize("name", ["Idempotency-Key", "IDEMPOTENCY-KEY", "cortex-attempt"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_model_cannot_set_reserved_headers(
    changing: ToolContext, server: Server, name: str, method: str
) -> None:
    with pytest.raises(InvalidValueError, match="cannot be set"):
        await call(changing, server.url(), method=method, headers={name: "x"})
    assert server.asked == []


@pytest.mark.parametrize("status", [200, 201, 400, 401, 404, 409, 422])
async def test_an_answer_is_an_outcome(changing: ToolContext, server: Server, status: int) -> None:
    server.replies["/"] = answer(status)
    assert (await call(changing, server.url(), method="POST"))["status"] == status


@pytest.mark.parametrize(
    "status, code",
    [
        (408, "request_timeout"),
        (425, "too_early"),
        (429, "rate_limit"),
        (500, "api_error"),
        (503, "service_unavailable"),
        (599, "server_error"),
    ],
)
async def test_inconclusive_status_is_raised(
    changing: ToolContext, server: Server, status: int, code: str
) -> None:
    server.replies["/"] = answer(status, "Retry-After: 17")
    error = await raised(changing, server.url(), method="POST")
    failure = failure_of(error)
    assert (failure.code, failure.retry_after_s) == (code, 17)
    assert error.message == f"{server.url()} answered with status {status}"
    assert not changed_nothing(error)


async def test_failure_to_connect_is_certain_to_change_nothing(
    changing: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("CORTEX_HTTP_ALLOW", "127.0.0.0/8")
    trio.socket.set_custom_hostname_resolver(Nowhere())
    for url in (f"http://127.0.0.1:{port}/", "http://name.test/", "http://10.0.0.1/", "ftp://x/"):
        assert changed_nothing(await raised(changing, url, method="POST")), url


class Nowhere(Names):
    """Knows no name, but every number."""

    async def getaddrinfo(self, host: Any, port: Any, *_: object, **__: object) -> Any:
        if "name" in str(host):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]


async def test_server_that_hangs_up_leaves_the_outcome_open(
    changing: ToolContext, server: Server
) -> None:
    for reply in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"):
        server.replies["/"] = reply
        assert not changed_nothing(await raised(changing, server.url(), method="POST"))


@pytest.mark.parametrize(
    "location",
    [
        "ftp://x/",
        "http://127.0.0.1:1/",
        "http://u:p@x/",
        "http://10.0.0.1/",
        "http://[::1",
        "/loop",
    ],
)
@pytest.mark.parametrize("status", [302, 303, 307])
async def test_failure_after_a_redirect_is_never_certain(
    changing: ToolContext, server: Server, location: str, status: int
) -> None:
    """Each of these is certain by itself; but the first server has taken the request."""
    server.replies["/"] = redirect(location, status)
    server.replies["/loop"] = redirect("/loop", status)
    error = await raised(changing, server.url(), method="POST")
    assert "took the request and led elsewhere: " in error.message
    assert not changed_nothing(error)


async def test_a_redirect_keeps_the_key_only_with_the_method(
    changing: ToolContext, server: Server
) -> None:
    server.replies["/same"] = redirect("/", 307)
    server.replies["/other"] = redirect("/", 303)
    await call(changing, server.url("/same"), method="POST", body="x")
    await call(changing, server.url("/other"), method="POST", body="x")
    assert [KEY in asked.lower() for asked in server.asked] == [True, True, True, False]
    assert [ATTEMPT in asked.lower() for asked in server.asked] == [True, True, True, False]


async def test_a_change_follows_as_many_redirects(changing: ToolContext, server: Server) -> None:
    for number in range(6):
        server.replies[f"/{number}"] = redirect(f"/{number + 1}")
    server.replies["/6"] = OK
    reply = await call(changing, server.url("/1"), method="POST")
    assert reply["url"] == server.url("/6")
    assert "redirects more than" in (await raised(changing, server.url("/0"), method="PUT")).message
