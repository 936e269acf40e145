"""Requests and answers that are allowed: paths, methods, bodies, limits, faults, headers."""

import contextlib
import http.client
import json
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio
from starlette.responses import Response

from cortex.domain import errors
from cortex.domain.errors import CortexError
from cortex.domain.idempotency import KeyPendingError
from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.body import BYTES_MAX, LARGE_BYTES_MAX, SMALL_BYTES
from cortex.http.framework.idempotent import mutate
from cortex.http.framework.limits import Rate
from cortex.http.framework.route import PUBLIC, UUID_PARAM, Method, Route, answer
from cortex.http.framework.shape import field, text, whole
from cortex.http.framework.streaming import Streamed, Write
from cortex.http.framework.tenancy import Tenancy
from cortex.http.routes import ALL
from tests.support.eventually import WITHIN_S, eventually
from tests.support.records.rows import new_id
from tests.support.servers.http_server import HttpServer, answered, http_server, read_all

ERRORS = {
    each.__name__: each
    for each in [*vars(errors).values(), KeyPendingError]
    if isinstance(each, type) and issubclass(each, CortexError)
}

PLENTY = Rate(burst=10**6, per_s=10**6)
OWN = {"Sec-Fetch-Site": "same-origin"}


@attrs.frozen(kw_only=True)
class Note:
    """A body."""

    words: str = text(doc="what it says", length_max=10, pattern="[a-z]*")
    count: int = whole(doc="how often", low=1, high=3, default=1)
    more: dict[str, Any] = field(doc="anything", factory=dict)


async def keep(asked: CheckedRequest[None, Note], _: Api) -> Response:
    return answer({"note": asked.body, "by": asked.principal.name, "from": asked.address})


async def fail(asked: CheckedRequest[None, None], _: Api) -> Response:
    name = asked.path["name"]
    if name == "group":
        raise ExceptionGroup("from a nursery", [errors.ConflictError("it was decided by li")])
    if name in ERRORS:
        made = ERRORS[name]
        raw = {"raw": "x"} if made is errors.InvalidOutputError else {}
        raise made("what happened", hint="the way out", **raw)
    raise RuntimeError("a secret: hunter2")


async def find(asked: CheckedRequest[None, None], _: Api) -> Response:
    return answer({"id": asked.path["thing_id"]})


async def slow(_: CheckedRequest[None, None], __: Api) -> Response:
    await trio.sleep_forever()
    raise AssertionError


async def stream(_: CheckedRequest[None, None], api: Api) -> Response:
    async def pieces(write: Write) -> None:
        await write(b"data: one\n\n")
        raise RuntimeError("in the middle")

    return Streamed(pieces, turns=api.turns, media_type="text/event-stream")


async def write(asked: CheckedRequest[None, Note], api: Api) -> Response:
    async def work(_: object) -> object:
        return {"words": asked.body.words, "nonce": api.chance.rng.random()}

    return await mutate(
        asked, api, work, operation="notes.write", request={"words": asked.body.words}
    )


def route(path: str, handle: Any, **more: Any) -> Route:
    given: dict[str, Any] = {"method": Method.GET, "role": PUBLIC, "summary": path}
    given["tenancy"] = Tenancy.SHARED
    given |= more
    return Route(path=path, handle=handle, **given)


POSTED: dict[str, Any] = {"method": Method.POST, "role": Role.VIEWER, "body": Note}
ROUTES = [
    *ALL,
    route("/v1/t/notes", keep, **POSTED),
    route("/v1/t/write", write, takes_key=True, **POSTED),
    route("/v1/t/fail/{name}", fail),
    route("/v1/t/things/{thing_id}", find, params={"thing_id": UUID_PARAM}),
    route("/v1/t/slow", slow, bound_s=0.2),
    route("/v1/t/stream", stream, bound_s=None, media="text/event-stream"),
]


@pytest.fixture(scope="module")
def server(shared_database: str) -> Iterator[HttpServer]:
    with http_server(
        shared_database, routes=ROUTES, address_rate=PLENTY, token_rate=PLENTY
    ) as running:
        yield running


# --- paths and methods


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/pods/", "/v1//pods", "/v1/pods%2f", "/../etc/passwd", "/v1/%00"]
)
def test_unknown_path_is_not_found(server: HttpServer, path: str) -> None:
    told_ = server.get(path, token=server.token("admin"))
    assert (told_.status, told_.json["code"]) == (404, "not_found")


def test_unknown_method_lists_the_allowed_ones(server: HttpServer) -> None:
    for method in ("POST", "DELETE", "PATCH", "TRACE", "BREW"):
        told_ = server.ask(method, "/v1/pods")
        assert (told_.status, told_.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
        assert told_.json["code"] == "method_not_allowed"


def test_options_returns_only_the_allowed_methods(server: HttpServer) -> None:
    told_ = server.ask("OPTIONS", "/v1/t/notes", headers={"Origin": "https://evil.example"})
    assert (told_.status, told_.headers["allow"], told_.body) == (204, "OPTIONS, POST", b"")
    assert not [name for name in told_.headers if name.startswith("access-control")]


def test_head_is_get_without_a_body(server: HttpServer) -> None:
    got, head = (server.ask(method, "/healthz") for method in ("GET", "HEAD"))
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == got.headers["content-length"]
    assert server.ask("HEAD", "/v1/pods").status == 401
    streamed = server.ask("HEAD", "/v1/t/stream")
    assert (streamed.status, streamed.body) == (200, b"")


def test_malformed_id_in_a_path_is_not_found(server: HttpServer) -> None:
    good = "01a1f84b-0000-7000-8000-000000000000"
    assert server.get(f"/v1/t/things/{good}").json == {"id": good}
    for bad in ("x", good[:-1], good.replace("-", ""), f"{{{good}}}", "%E2%80%AE" + good[1:]):
        assert server.get(f"/v1/t/things/{bad}").status == 404, bad


# --- bodies


def test_a_body_gets_its_shape(server: HttpServer) -> None:
    told_ = server.post("/v1/t/notes", token=server.token("viewer"), json_body={"words": "abc"})
    note = {"words": "abc", "count": 1, "more": {}}
    assert told_.json == {"note": note, "by": "ana", "from": "127.0.0.1"}


@pytest.mark.parametrize(
    "body, status, why",
    [
        (b"", 422, "body.words is missing"),
        (b"nonsense", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[" * 50_000, 400, "not JSON"),
        (b'{"words":NaN}', 400, "NaN is not JSON"),
        (b'{"words":"a","words":"b"}', 400, "the same key twice"),
        (b'{"words":"a","more":{"n":99999999999999999999}}', 400, "64 bits"),
        (b'{"words":"a","more":{"t":"\\u0000"}}', 422, "NUL"),
        (b'{"words":"a","more":{"t":"\\ud800"}}', 422, "surrogate"),
        (b"[]", 422, "body must be a mapping, got []"),
        (b'{"words":1}', 422, "body.words must be text, got 1"),
        (b'{"words":"a","count":"1"}', 422, 'body.count must be a whole number, got "1"'),
        (b'{"words":"a","count":true}', 422, "body.count"),
        (b'{"words":"a","count":4}', 422, "count is 4, not 1 to 3"),
        (b'{"words":"ABC"}', 422, "words does not match"),
        (b'{"words":"aaaaaaaaaaa"}', 422, "words is 11 characters"),
        (b'{"words":"a","extra":1}', 422, "body.extra is unknown; known: words, count, more"),
    ],
)
def test_a_body_of_another_shape_is_documented_why(
    server: HttpServer, body: bytes, status: int, why: str
) -> None:
    told_ = server.post(
        "/v1/t/notes",
        token=server.token("viewer"),
        body=body,
        headers={"Content-Type": "application/json"},
    )
    assert (told_.status, told_.json["status"]) == (status, status), told_
    assert why in told_.json["detail"]
    if why.startswith("body."):
        assert "openapi.json" in told_.json["hint"]


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_a_foreign_page_could_send_is_refused(server: HttpServer, media: str) -> None:
    told_ = server.post(
        "/v1/t/notes",
        token=server.token("viewer"),
        body=b'{"words":"a"}',
        headers={"Content-Type": media},
    )
    assert (told_.status, told_.json["code"]) == (415, "media_type")


def test_a_body_that_is_too_large_is_refused_and_its_sender_reads_that(
    server: HttpServer,
) -> None:
    token = server.token("viewer")
    body = b'{"words":"' + b"a" * BYTES_MAX + b'"}'
    json_type = {"Content-Type": "application/json"}
    told_ = server.post("/v1/t/notes", token=token, body=body, headers=json_type)
    assert (told_.status, told_.json["code"]) == (413, "too_large")
    assert told_.headers["connection"] == "close"
    # In chunks, without a length.
    connection = http.client.HTTPConnection(server.host, server.port, timeout=15)
    headers = json_type | {"Authorization": f"Bearer {token}"}
    chunks = [b"a" * 65_536] * 20
    connection.request(
        "POST", "/v1/t/notes", body=iter(chunks), headers=headers, encode_chunked=True
    )
    assert answered(connection.getresponse()).status == 413
    connection.close()


def test_a_body_that_does_not_end_is_not_waited_for(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = (
        "POST /v1/t/notes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {server.token('viewer')}\r\nContent-Length: 100\r\n\r\n{{"
    )
    monkeypatch.setattr("cortex.http.framework.body.BOUND_S", 0.2)
    monkeypatch.setattr("cortex.http.framework.gate.UNREAD_BOUND_S", 0.2)
    with server.connect() as connection:
        connection.sendall(head.encode())
        assert read_all(connection).startswith(b"HTTP/1.1 408 ")
    with server.connect() as connection:  # half a body, and then the end
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        read_all(connection)
    assert server.get("/healthz").status == 200


def test_held_large_bodies_are_bounded_and_block_no_others(
    server: HttpServer,
) -> None:
    """Each is sent but for its last byte, so that all have to be held at once."""
    form = b"token=" + b"a" * (BYTES_MAX - 6)
    page = f"/approvals/{new_id()}"
    head = (
        b"POST " + page.encode() + b" HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\n"
        b"Content-Length: %d\r\n\r\n" % len(form)
    )
    fit = LARGE_BYTES_MAX // (BYTES_MAX - SMALL_BYTES)
    with contextlib.ExitStack() as stack:
        senders = [stack.enter_context(server.connect()) for _ in range(fit + 1)]
        for sender in senders:
            sender.sendall(head + form[:-1])
        refused_ = select.select(senders, [], [], 10)[0]
        assert [each.recv(12) for each in refused_] == [b"HTTP/1.1 503"]
        assert server.post("/sign-in", body=b"token=a", headers=OWN).status == 401
        note = {"words": "a" * 2 * SMALL_BYTES}
        assert server.post("/v1/t/notes", token=server.token("viewer"), json_body=note).status < 500
    eventually(
        lambda: server.post(page, body=form, headers=OWN).status < 500,
        what="there is room again",
    )


def test_unread_body_costs_only_its_sender(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces fill every queue on their way before the handler answers without them."""
    monkeypatch.setattr("cortex.http.framework.gate.UNREAD_BOUND_S", 0.1)
    go = threading.Event()

    async def ignore(_: CheckedRequest[None, None], __: Api) -> Response:
        await trio.to_thread.run_sync(go.wait)
        return answer({})

    head = b"POST /v1/t/ignore HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
    deaf = route("/v1/t/ignore", ignore, method=Method.POST)
    # Room for the next one while the last one is being closed, and for no third.
    with http_server(database, routes=[deaf], connections_max=2) as server:
        for _ in range(3):
            go.clear()
            with server.connect() as connection:
                connection.sendall(head)
                _fill(connection)
                go.set()
                answer_ = read_all(connection)
            assert answer_.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in answer_.lower()


def _fill(connection: socket.socket) -> None:
    """Send until the server accepts no more."""
    connection.settimeout(0.3)
    with contextlib.suppress(TimeoutError):
        while True:
            connection.sendall(b"x" * 65_536)
    connection.settimeout(10)


def test_a_stream_ends_when_its_reader_leaves(database: str) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def tick(_: CheckedRequest[None, None], api: Api) -> Response:
        async def write_on(write: Write) -> None:
            try:
                await write(b"data: one\n\n")
                begun.set()
                await trio.sleep_forever()
            finally:
                ended.set()

        return Streamed(write_on, turns=api.turns, media_type="text/event-stream")

    with http_server(database, routes=[route("/tick", tick, bound_s=None)]) as server:
        with server.connect() as connection:
            connection.sendall(b"GET /tick HTTP/1.1\r\nHost: x\r\n\r\n")
            assert begun.wait(WITHIN_S)
        assert ended.wait(WITHIN_S)


# --- errors


@pytest.mark.parametrize(
    "name, status",
    [
        ("UsageError", 400),
        ("KeyReusedError", 422),
        ("NotFoundError", 404),
        ("ForbiddenError", 403),
        ("ConflictError", 409),
        ("KeyPendingError", 409),
        ("TimedOutError", 504),
        ("UnavailableError", 503),
        ("OutcomeUnknownError", 503),
        ("TransientError", 503),
        ("SchemaError", 503),
        ("RejectedError", 422),
        ("InvalidValueError", 422),
        ("DivergedError", 422),
    ],
)
def test_an_error_is_a_problem_document(server: HttpServer, name: str, status: int) -> None:
    told_ = server.get(f"/v1/t/fail/{name}")
    code = ERRORS[name].code
    assert told_.headers["content-type"] == "application/problem+json"
    problem = told_.json
    assert (told_.status, problem["status"], problem["code"]) == (status, status, code)
    assert problem["type"] == f"urn:cortex:problem:{code}"
    assert (problem["detail"], problem["hint"]) == ("what happened", "the way out")
    asks_again = status == 503 or name == "KeyPendingError"
    assert ("retry-after" in told_.headers) == asks_again


def test_error_from_a_nursery_keeps_its_status(server: HttpServer) -> None:
    told_ = server.get("/v1/t/fail/group")
    assert (told_.status, told_.json["detail"]) == (409, "it was decided by li")


def test_fault_reveals_only_its_number(server: HttpServer) -> None:
    for name in ("bug", "InvalidOutputError"):
        told_ = server.get(f"/v1/t/fail/{name}")
        assert (told_.status, told_.json["code"]) == (500, "internal")
        assert told_.json["instance"]
        for inside in (b"hunter2", b"Traceback", b"RuntimeError", b"what happened"):
            assert inside not in told_.body


def test_a_handler_gets_its_time_and_no_more(server: HttpServer) -> None:
    told_ = server.get("/v1/t/slow")
    assert (told_.status, told_.json["code"]) == (504, "timed_out")


def test_broken_stream_never_looks_complete(server: HttpServer) -> None:
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        server.get("/v1/t/stream")
    assert server.get("/healthz").status == 200


# --- keys, rates, headers


def test_a_key_makes_a_write_happen_once(server: HttpServer) -> None:
    token, key = server.token("viewer"), {"Idempotency-Key": "k-1"}
    first, again = (
        server.post("/v1/t/write", token=token, json_body={"words": "a"}, headers=key)
        for _ in range(2)
    )
    assert first.json == again.json
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    other = server.post("/v1/t/write", token=token, json_body={"words": "b"}, headers=key)
    assert (other.status, other.json["code"]) == (422, "key_reused")
    # No client sees the result of another one's key.
    stranger = server.token("viewer", name="li")
    foreign = server.post("/v1/t/write", token=stranger, json_body={"words": "a"}, headers=key)
    assert foreign.status == 422
    bad = server.post(
        "/v1/t/write", token=token, json_body={"words": "a"}, headers={"Idempotency-Key": "a b"}
    )
    assert (bad.status, bad.json["code"]) == (400, "usage")


def test_rates_are_limited_by_address_and_by_token(database: str) -> None:
    rare = Rate(burst=5, per_s=0.01)
    with http_server(database, token_rate=rare) as server:
        token, other = server.token("viewer"), server.token("viewer")
        found = [server.get("/v1/pods", token=token) for _ in range(6)]
        assert [each.status for each in found] == [200] * 5 + [429]
        assert int(found[-1].headers["retry-after"]) > 50
        assert server.get("/v1/pods", token=other).status == 200
    with http_server(database, address_rate=rare) as server:
        found = [server.get("/v1/openapi.json") for _ in range(6)]
        assert [each.status for each in found] == [200] * 5 + [429]
        assert found[-1].json["code"] == "rate_limited"
        assert server.get("/healthz").status == 200


def test_every_answer_keeps_browsers_from_doing_anything_with_it(server: HttpServer) -> None:
    token = server.token("viewer")
    for path in ("/healthz", "/v1/pods", "/nowhere", "/v1/t/fail/bug"):
        headers = server.get(path, token=token).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


def test_access_log_has_no_secrets_or_control_characters(
    database: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with http_server(database, routes=ROUTES) as server:
        token = server.token("viewer", name="ana")
        server.get(f"/v1/pods?t={token}", token=token)
        server.get("/%1b[31mred%0aline%E2%80%AE", token=token)
        server.get("/v1/t/fail/bug", token=token)
        server.post("/v1/t/notes", token=token, json_body={"words": "SECRETBODY"})
    out, err = capfd.readouterr()
    log = out + err
    assert "path=/v1/pods" in log or '"path": "/v1/pods"' in log
    assert "who=ana" in log or '"who": "ana"' in log
    for secret in (token, token[7:], "SECRETBODY", "\x1b[31mred", "\N{RIGHT-TO-LEFT OVERRIDE}"):
        assert secret not in log


def test_json_bodies_of_problems_are_json_for_any_text(server: HttpServer) -> None:
    told_ = server.get("/v1/t/things/%ED%A0%80%00%22")
    assert json.loads(told_.body)["code"] == "not_found"
