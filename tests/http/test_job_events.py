"""Events of a job: in order, from any place on, for readers who are slow, leave, or are many."""

import contextlib
import http.client
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from uuid import UUID

import pytest
import trio

from cortex.domain.answer_text import AnswerPiece
from tests.support.events import Event, Events, follow
from tests.support.eventually import eventually
from tests.support.records.rows import new_id, submit
from tests.support.servers.http_server import HttpServer
from tests.support.servers.postgres import sql

MANY = 200
STEPS = """
    INSERT INTO cortex.job_step (job_id, seq, attempt, kind, key, digest, started_at, finished_at)
    SELECT $1, n, 1, 'step', 'step ' || n, '', cortex.now(), cortex.now()
    FROM generate_series($2::int, $3) n
"""

Follow = Callable[..., AbstractContextManager[Events]]


@pytest.fixture
def viewer(server: HttpServer) -> str:
    return server.token("viewer")


@pytest.fixture
def follow_job(server: HttpServer, viewer: str) -> Follow:
    """Opens the stream of a job."""

    def opened(job_id: UUID, *, after: str = "", token: str = viewer) -> Any:
        headers = {"Last-Event-ID": after} if after else {}
        path = f"/v1/jobs/{job_id}/events"
        return follow((server.host, server.port), path, token=token, headers=headers)

    return opened


def names(events: list[Event]) -> list[str]:
    """The content of each event, in short."""
    output = []
    for event in events:
        match event.name:
            case "state" | "end":
                output.append(event.data.get("new") or f"end {event.data['status']}")
            case "step":
                output.append(event.data["key"])
            case "token":
                output.append(event.data["text"])
            case name:
                output.append(name)
    return output


def run(dsn: str, job_id: UUID) -> None:
    """Some pod takes the job."""
    sql(dsn, "DELETE FROM cortex_worker.task WHERE job_id = $1", job_id)
    sql(dsn, "UPDATE cortex.job_record SET status = 'RUNNING' WHERE id = $1", job_id)


def complete(dsn: str, job_id: UUID) -> None:
    """It ends well."""
    sql(dsn, "UPDATE cortex.job_record SET status = 'COMPLETED' WHERE id = $1", job_id)


def say(server: HttpServer, job_id: UUID, text: str, offset: int, *, key: str = "ask") -> None:
    """A model says something in some pod."""
    piece = AnswerPiece(
        job_id=job_id,
        attempt=1,
        key=key,
        call=1,
        offset=offset,
        end=offset + len(text),
        text=text,
    )
    trio.from_thread.run_sync(server.hall.feeds.hear, piece, trio_token=server._token)


def following(server: HttpServer, count: int) -> None:
    eventually(lambda: len(server.hall.feeds) == count, what=f"{count} follow")


def test_event_stream_is_ordered_and_ends(
    server: HttpServer, follow_job: Follow, database: str
) -> None:
    job_id = submit(database, "digest")
    with follow_job(job_id) as events:
        assert events.response.status == 200
        assert events.response.headers["content-type"].startswith("text/event-stream")
        assert events.response.headers["cache-control"] == "no-cache, no-store"
        assert events.response.headers["x-accel-buffering"] == "no"
        assert names(events.until("state")) == ["PENDING"]
        run(database, job_id)
        assert names(events.until("state")) == ["RUNNING"]
        sql(database, STEPS, job_id, 1, 3)
        complete(database, job_id)
        rest = list(events)
        assert names(rest) == ["step 1", "step 2", "step 3", "COMPLETED", "end COMPLETED"]
        assert rest[-1].data["at"] == rest[-2].data["at"]
        assert (rest[0].data["kind"], rest[0].data["seq"]) == ("step", 1)
    following(server, 0)


def test_reconnecting_client_gets_only_later_events(follow_job: Follow, database: str) -> None:
    job_id = submit(database, "digest")
    run(database, job_id)
    sql(database, STEPS, job_id, 1, 5)
    complete(database, job_id)
    with follow_job(job_id) as events:
        whole = list(events)
    ids = [event.id for event in whole[:-1]]
    assert len(set(ids)) == len(ids) == 8
    for number, seen in enumerate(ids[:-1], 1):
        with follow_job(job_id, after=seen) as events:
            assert list(events) == whole[number:]
    with follow_job(job_id, after=ids[-1]) as events:
        assert (events.response.status, list(events)) == (204, [])


NO_IDS: list[str] = ["x", "1.2.3", "1.2.3.4.5", "-1.0.0.0", "9" * 30, "1.1.1.a"]


def test_an_id_that_no_event_had_is_refused(server: HttpServer, viewer: str, database: str) -> None:
    path = f"/v1/jobs/{submit(database, 'digest')}/events"
    for after in NO_IDS:
        output = server.get(path, token=viewer, headers={"Last-Event-ID": after})
        assert (output.status, output.json["code"]) == (400, "usage"), ascii(after)


def test_events_of_an_unknown_job_are_not_found(server: HttpServer, viewer: str) -> None:
    for headers in ({}, {"Last-Event-ID": "1.0.0.0"}):
        output = server.get(f"/v1/jobs/{new_id()}/events", token=viewer, headers=headers)
        assert (output.status, output.json["code"]) == (404, "not_found")
    assert len(server.hall.feeds) == 0


def test_model_output_and_gaps_are_streamed_between_events(
    server: HttpServer, follow_job: Follow, database: str
) -> None:
    job_id = submit(database, "digest")
    run(database, job_id)
    with follow_job(job_id) as events:
        seen = [*events.until("state"), *events.until("state")]
        say(server, job_id, "one\n\ndata: two ", 0)
        say(server, job_id, "four", 20)
        said = events.until("gap")
        said += events.until("token")
        assert names(said) == ["one\n\ndata: two ", "gap", "four"]
        assert said[1].data == {"attempt": 1, "key": "ask", "call": 1, "offset": 15, "missing": 5}
        assert said[2].data["offset"] == 20
        assert {event.id for event in said} == {seen[-1].id}, "text has no place in the record"
        complete(database, job_id)
        assert names(list(events)) == ["COMPLETED", "end COMPLETED"]


def test_a_silent_job_is_documented_to_be_there_still(
    follow_job: Follow, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.http.routes.job_events.KEEP_ALIVE_S", 0.05)
    job_id = submit(database, "digest")
    with follow_job(job_id) as events:
        events.until("state")
        while len(events.comments) < 3:
            line = events.response.readline()
            events.comments += [line.decode()] if line.startswith(b":") else []
        assert set(events.comments) == {": still here\n"}


def test_a_reader_that_leaves_is_forgotten(
    server: HttpServer, follow_job: Follow, database: str
) -> None:
    job_id = submit(database, "digest")
    with follow_job(job_id) as events:
        events.until("state")
        following(server, 1)
    following(server, 0)
    eventually(lambda: not server.hall.answers._wanted, what="nobody listens")


def test_streams_end_when_the_pod_drains(
    server: HttpServer, follow_job: Follow, database: str
) -> None:
    job_id = submit(database, "digest")
    with follow_job(job_id) as events:
        events.until("state")
        server.drain()
        assert list(events) == []
    following(server, 0)


def test_stalled_reader_is_cut_off_without_delaying_others(
    server: HttpServer,
    viewer: str,
    follow_job: Follow,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cortex.http.framework.protocol.SEND_BOUND_S", 3.0)
    job_id = submit(server.dsn, "digest")
    run(server.dsn, job_id)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((server.host, server.port))
        head = f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {viewer}"
        slow.sendall(f"{head}\r\n\r\n".encode())
        following(server, 1)
        with follow_job(job_id) as quick:
            quick.until("state")
            following(server, 2)
            offset = 0

            def said_on() -> bool:
                nonlocal offset
                for _ in range(4):
                    say(server, job_id, "x" * 100_000, offset)
                    offset += 100_000
                held = [
                    len(each._events)
                    for feeds in server.hall.feeds._feeds.values()
                    for each in feeds
                ]
                assert max(held, default=0) <= 20, "nothing is kept without bound"
                quick.until("token")
                return len(server.hall.feeds) == 1

            eventually(said_on, what="the slow one is cut off")
            complete(server.dsn, job_id)
            assert names(quick.until("end"))[-2:] == ["COMPLETED", "end COMPLETED"]


def test_number_of_streams_per_token_is_limited(
    server: HttpServer, follow_job: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.http.framework.stream_limits.OF_TOKEN_MAX", 2)
    job_id = submit(server.dsn, "digest")
    other = server.token("viewer", name="li")
    with follow_job(job_id) as one, follow_job(job_id) as two:
        one.until("state")
        two.until("state")
        with follow_job(job_id) as three:
            assert three.response.status == 429
            assert int(three.response.headers["retry-after"]) == 5
        with follow_job(job_id, token=other) as theirs:
            assert theirs.response.status == 200
    following(server, 0)
    with follow_job(job_id) as again:
        assert again.response.status == 200


def test_number_of_streams_per_pod_is_limited(
    server: HttpServer, follow_job: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.job_feeds.FEEDS_MAX", 1)
    job_id = submit(server.dsn, "digest")
    with follow_job(job_id) as one:
        one.until("state")
        with follow_job(job_id) as two:
            assert (two.response.status, two.response.headers["retry-after"]) == (503, "1")


def test_many_readers_share_few_statements(
    server: HttpServer, follow_job: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.http.framework.stream_limits.OF_TOKEN_MAX", MANY)
    ids = [submit(server.dsn, "digest") for _ in range(4)]
    with ExitStack() as stack:
        streams = [stack.enter_context(follow_job(ids[n % 4])) for n in range(MANY)]
        for events in streams:
            events.until("state")
        counted = server.calls.counts["since"]
        sql(server.dsn, "DELETE FROM cortex_worker.task")
        sql(server.dsn, "UPDATE cortex.job_record SET status = 'RUNNING'")
        sql(server.dsn, "UPDATE cortex.job_record SET status = 'COMPLETED'")
        for events in streams:
            assert names(list(events)) == ["RUNNING", "COMPLETED", "end COMPLETED"]
        assert server.calls.counts["since"] - counted < 20


def test_stream_of_a_revoked_token_ends_silently(
    server: HttpServer, follow_job: Follow, database: str
) -> None:
    job_id = submit(database, "digest")
    with follow_job(job_id) as events:
        assert names(events.until("state")) == ["PENDING"]
        sql(database, "UPDATE cortex.api_token SET revoked_at = cortex.now(), revoked_by = 'li'")
        output: list[Event] = []
        with contextlib.suppress(http.client.HTTPException):  # it is cut off
            output.extend(events)
        assert output == []
    following(server, 0)
