"""Malformed and hostile requests are refused, and the connection ends."""

import re
import socket
from contextlib import ExitStack, suppress

import pytest
import trio

from cortex.http.framework.protocol import HEAD_BYTES_MAX, HEADERS_MAX
from cortex.http.framework.turns import Kind, Turns
from tests.support.eventually import eventually
from tests.support.servers.http_server import HttpServer, http_server, read_all

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /healthz HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = b"GET /v1/pods HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def server(shared_server: HttpServer) -> HttpServer:
    return shared_server


def statuses(answers: bytes) -> list[int]:
    """The status of each answer on a connection."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


def alive(connection: socket.socket) -> bool:
    """Ask on an open connection, and read the whole answer."""
    connection.sendall(GET + b"\r\n")
    answer = b""
    while not answer.endswith(b"}"):
        answer += connection.recv(65_536)
    return statuses(answer) == [200]


@pytest.mark.parametrize(
    "head, body",
    [
        (b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\nX"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n", b"0\r\n\r\nX"),
        (b"Content-Length: 0\r\nContent-Length: 37\r\n", b""),
        (b"Content-Length: 5\r\nContent-Length: 5\r\n", b"12345"),
        (b"Content-Length: 5, 5\r\n", b"12345"),
        (b"Content-Length: +5\r\n", b"12345"),
        (b"Content-Length: 0x5\r\n", b"12345"),
        (b"Content-Length: -1\r\n", b""),
        (b"Content-Length : 5\r\n", b"12345"),
        (b"Content-Length:\r\n 5\r\n", b"12345"),
        (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"0\r\n\r\n"),
        (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
        (b"Transfer-Encoding:\x0bchunked\r\n", b"0\r\n\r\n"),
        (b"X: a\nContent-Length: 5\r\n", b"12345"),
        (b"X: a\rContent-Length: 5\r\n", b"12345"),
        (b"X: a\x00b\r\n", b""),
        (b"X: a\r\n folded\r\n", b""),
        (b"Bad Name: a\r\n", b""),
        (b"Host: y\r\n", b""),
        (b"Transfer-Encoding: 5\r\n", b"12345"),
    ],
)
def test_a_request_that_could_be_read_in_two_ways_is_refused(
    server: HttpServer, head: bytes, body: bytes
) -> None:
    answers = server.raw(POST + head + b"\r\n" + body + SMUGGLED)
    first, *more = statuses(answers)
    assert 400 <= first < 502, answers
    assert first not in {401, 405}, answers
    assert more == [], "what was smuggled is not answered"
    assert b"connection: close" in answers.lower()
    assert b"application/problem+json" in answers


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS client
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",  # no Host
        b"GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /heal\x7fthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\n" * 40 + b"x\r\n\r\n",
    ],
)
def test_malformed_request_is_refused(server: HttpServer, sent: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        found = statuses(read_all(connection))
    assert len(found) <= 1
    assert all(400 <= status < 506 for status in found)


def test_a_head_that_is_too_large_is_refused(server: HttpServer) -> None:
    answers = server.raw(GET + b"X: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n")
    assert statuses(answers) == [431]
    many = b"".join(b"X-%d: 1\r\n" % n for n in range(HEADERS_MAX + 1))
    assert statuses(server.raw(GET + many + b"\r\n")) == [431]


def test_upgrades_to_http2_and_websocket_are_ignored(server: HttpServer) -> None:
    upgrades = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        (
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        ),
    )
    for upgrade in upgrades:
        with server.connect() as connection:
            connection.sendall(GET + upgrade + b"\r\n")
            connection.shutdown(socket.SHUT_WR)
            assert statuses(read_all(connection)) == [200]


def test_a_connection_is_kept_for_many_requests(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(3 * (GET + b"\r\n") + GET + b"Connection: close\r\n\r\n")
        answers = read_all(connection)
    assert statuses(answers) == [200, 200, 200, 200]


def test_a_stranger_is_refused_before_his_body_is_read(server: HttpServer) -> None:
    head = b"POST /v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head)
        connection.settimeout(5)
        assert statuses(connection.recv(65_536)) == [405]


def test_excess_connections_get_503(database: str) -> None:
    with http_server(database, connections_max=2) as server:
        with server.connect() as one, server.connect() as two:
            for each in (one, two):
                assert alive(each)
            assert statuses(server.raw(b"")) == [503]
            assert alive(one)


def test_one_address_cannot_take_all_connections(database: str) -> None:
    with http_server(database, connections_max=4) as server, ExitStack() as held:
        for _ in range(3):
            assert alive(held.enter_context(server.connect()))
        assert statuses(server.raw(b"")) == [503]
        place = (server.host, server.port)
        with socket.create_connection(place, 5, source_address=("127.0.0.2", 0)) as other:
            assert alive(other)


def test_an_idle_or_slow_head_ends_with_its_time(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.http.framework.protocol.IDLE_S", 0.3)
    with http_server(database) as server, server.connect() as silent, server.connect() as slow:
        for byte in GET:
            try:
                slow.sendall(bytes([byte]))
            except OSError:
                break
        assert read_all(silent) == b""
        assert read_all(slow) == b""


def test_a_request_that_waits_long_for_its_turn_is_answered(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(_: Turns, __: Kind) -> None:
        with trio.move_on_after(1.5):
            await trio.sleep_forever()

    monkeypatch.setattr("cortex.http.framework.protocol.IDLE_S", 0.5)
    monkeypatch.setattr(Turns, "__call__", late)
    with http_server(database) as server:
        assert server.get("/healthz").status == 200


def test_half_closed_client_keeps_no_connection(database: str) -> None:
    with http_server(database, connections_max=1) as server:
        for sent in (b"", GET, GET + b"\r\n"):
            with server.connect() as connection:
                connection.sendall(sent)
                with suppress(OSError):  # the server may have answered and closed it
                    connection.shutdown(socket.SHUT_WR)
                read_all(connection)
            eventually(lambda: server.get("/healthz").status == 200, what="there is room")


def test_connection_reset_harms_no_other_client(server: HttpServer) -> None:
    for sent in (b"", GET, GET + b"\r\n", POST + b"Content-Length: 100\r\n\r\nabc"):
        connection = server.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.sendall(sent)
        connection.close()
    assert server.get("/healthz").status == 200
