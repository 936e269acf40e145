"""Requests of clients, and messages to followers of a job, take turns."""

import pytest

from cortex.http.framework.turns import Kind, Turns
from tests.support.events import follow
from tests.support.records.rows import submit
from tests.support.servers.http_server import HttpServer


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[Kind]:
    """The turns that were taken, in order."""
    kinds: list[Kind] = []
    take = Turns.__call__

    async def noted(turns: Turns, kind: Kind) -> None:
        await take(turns, kind)
        kinds.append(kind)

    monkeypatch.setattr(Turns, "__call__", noted)
    return kinds


@pytest.mark.parametrize(
    "path, kind",
    [
        ("/v1/jobs", Kind.REQUEST),
        ("/healthz", Kind.PROBE),
        ("/readyz?x=1", Kind.PROBE),
        ("/healthz/x", Kind.REQUEST),
    ],
)
def test_each_request_takes_a_turn(
    server: HttpServer, taken: list[Kind], path: str, kind: Kind
) -> None:
    server.get(path)
    assert taken == [kind]


def test_each_piece_of_a_body_takes_a_turn(server: HttpServer, taken: list[Kind]) -> None:
    token = server.token("operator")
    body = {"type": "digest", "payload": {"note": "x" * 300_000}}
    server.post("/v1/jobs", token=token, json_body=body)
    assert len(taken) >= 3
    assert set(taken) == {Kind.REQUEST}


def test_each_piece_of_a_stream_takes_a_turn(server: HttpServer, taken: list[Kind]) -> None:
    viewer = server.token("viewer")
    job_id = submit(server.dsn, "digest")
    with follow((server.host, server.port), f"/v1/jobs/{job_id}/events", token=viewer) as events:
        events.until("state")
        assert taken == [Kind.REQUEST, Kind.STREAM, Kind.STREAM]
