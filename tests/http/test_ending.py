"""Start and stop of the server: addresses it may listen on, and clients that cannot delay it."""

import socket
import threading
import time
from typing import Any

import pytest
import trio
from starlette.responses import Response

from cortex.domain.errors import UsageError
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.live_tokens import LiveTokens
from cortex.http.framework.problem import cortex_error_in
from cortex.http.framework.route import PUBLIC, Method, Route, answer
from cortex.http.framework.streaming import Streamed, Write
from cortex.http.framework.tenancy import Tenancy
from cortex.http.framework.turns import Turns
from cortex.http.routes import ALL
from cortex.http.server import GRACE_S, Server
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from tests.support.eventually import WITHIN_S, eventually
from tests.support.records.rows import seeded_random
from tests.support.servers.http_server import HttpServer, http_server, read_all

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
SLACK_S = 20.0  # a loaded machine; a client that is waited for would hold it for good
EVERYWHERE = "0.0.0.0"  # noqa: S104 -- what must be refused


async def listen(database: str, host: str, number: int = 0) -> str:
    async with open_port(Profile(dsn=database), rng=seeded_random()) as port:

        async def app(*_: object) -> None:
            raise AssertionError

        server = Server(port, app, host=host, number=number, turns=Turns(), live=LiveTokens(port))
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            nursery.cancel_scope.cancel()
        return server.url


async def test_server_without_tokens_refuses_to_listen_beyond_loopback(database: str) -> None:
    for host in (EVERYWHERE, "::"):
        with pytest.RaisesGroup(UsageError, flatten_subgroups=True) as caught:
            await listen(database, host)
        error = cortex_error_in(caught.value)
        assert error is not None
        assert "there is no token yet" in error.message
        assert "cortex tokens create" in (error.hint or "")


async def test_server_with_a_token_listens_everywhere(database: str) -> None:
    HttpServer(database).token("viewer")
    assert (await listen(database, EVERYWHERE)).startswith("http://0.0.0.0:")


async def test_expired_token_does_not_permit_listening_everywhere(database: str) -> None:
    HttpServer(database).token("viewer", expires_s=0.0)
    with pytest.RaisesGroup(UsageError, flatten_subgroups=True):
        await listen(database, EVERYWHERE)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_loopback_needs_no_token_to_listen(database: str, host: str) -> None:
    url = await listen(database, host)
    shown = f"[{host}]" if ":" in host else host
    assert url.startswith(f"http://{shown}:")
    assert not url.endswith(":0")


async def test_taken_port_and_unknown_host_are_reported(database: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.RaisesGroup(UsageError, flatten_subgroups=True) as caught:
            await listen(database, "127.0.0.1", number)
    error = cortex_error_in(caught.value)
    assert error is not None
    assert error.message.startswith(f"cannot listen on http://127.0.0.1:{number}: ")
    with pytest.RaisesGroup(UsageError, flatten_subgroups=True):
        await listen(database, "no.such.host.invalid", 80)


@pytest.mark.parametrize("kind", ["silent", "half", "deaf", "hung"])
def test_a_client_that_hangs_does_not_delay_the_end(database: str, kind: str) -> None:
    begun = threading.Event()

    async def flood(_: CheckedRequest[None, None], __: Api) -> Response:
        async def pieces(write: Write) -> None:
            begun.set()
            while True:
                await write(b"x" * 1_000_000)

        return Streamed(pieces, turns=Turns(), media_type="text/plain")

    async def hang(_: CheckedRequest[None, None], __: Api) -> Response:
        begun.set()
        await trio.sleep_forever()
        raise AssertionError

    given: dict[str, Any] = {"method": Method.GET, "role": PUBLIC, "bound_s": None, "summary": "x"}
    given["tenancy"] = Tenancy.SHARED
    routes = [
        *ALL,
        Route(path="/deaf", handle=flood, **given),
        Route(path="/hung", handle=hang, **given),
    ]
    sent = {
        "silent": b"",
        "half": b"GET /healthz HT",
        "deaf": b"GET /deaf HTTP/1.1\r\nHost: x\r\n\r\n",
        "hung": b"GET /hung HTTP/1.1\r\nHost: x\r\n\r\n",
    }[kind]
    with http_server(database, routes=routes) as server, server.connect() as connection:
        connection.sendall(sent)
        if kind in {"deaf", "hung"}:
            assert begun.wait(WITHIN_S)
        else:
            assert server.get("/healthz").status == 200
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < GRACE_S + SLACK_S
        if kind != "deaf":
            assert read_all(connection) == b""
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_running_request_ends_within_its_grace(database: str) -> None:
    begun, go = threading.Event(), threading.Event()

    async def wait(_: CheckedRequest[None, None], __: Api) -> Response:
        begun.set()
        await trio.to_thread.run_sync(go.wait)
        return answer({"done": True})

    route = Route(
        method=Method.GET,
        path="/wait",
        handle=wait,
        role=PUBLIC,
        summary="x",
        tenancy=Tenancy.SHARED,
    )
    with http_server(database, routes=[route]) as server:
        found: list[Any] = []
        client = threading.Thread(target=lambda: found.append(server.get("/wait")))
        client.start()
        assert begun.wait(WITHIN_S)
        closing = threading.Thread(target=server.close)
        closing.start()
        eventually(lambda: not _listens(server), what="it listens no more")
        go.set()
        client.join(10)
        closing.join(10)
        assert (found[0].status, found[0].json) == (200, {"done": True})


def test_a_connection_that_was_accepted_is_answered(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.http.server.GRACE_S", WITHIN_S)
    with http_server(database) as server, server.connect() as new, server.connect() as kept:
        kept.sendall(HEALTH)
        while b"}" not in kept.recv(65_536):
            pass
        closing = threading.Thread(target=server.close)
        closing.start()
        assert kept.recv(1) == b""
        eventually(lambda: not _listens(server), what="it listens no more")
        new.sendall(HEALTH)
        answer = read_all(new)
        closing.join(WITHIN_S)
    assert answer.startswith(b"HTTP/1.1 200 ")


def _listens(server: HttpServer) -> bool:
    try:
        server.connect().close()
    except (ConnectionRefusedError, ConnectionResetError):  # reset: it closed between the two
        return False
    return True


def test_a_draining_pod_reads_on_and_takes_no_more_work(database: str) -> None:
    async def act(_: CheckedRequest[None, None], __: Api) -> Response:
        return answer({})

    route = Route(
        method=Method.POST,
        path="/v1/act",
        handle=act,
        role=Role.OPERATOR,
        summary="x",
        tenancy=Tenancy.SHARED,
    )
    with http_server(database, routes=[*ALL, route]) as server:
        token = server.token("operator")
        assert server.post("/v1/act", token=token).status == 200
        server.drain()
        refused = server.post("/v1/act", token=token)
        assert (refused.status, refused.json["code"]) == (503, "draining")
        assert refused.headers["retry-after"] == "1"
        read = server.get("/v1/pods", token=token)
        assert (read.status, read.headers["connection"]) == (200, "close")
        assert server.get("/readyz").status == 503
