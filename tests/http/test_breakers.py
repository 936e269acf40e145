"""`/v1/breakers` and `/v1/freeze`: what people let be called."""

from typing import Any

import pytest

from cortex.domain.failure import Failure, FailureClass
from cortex.store import breakers, facts
from cortex.store.facts import Fact
from tests.support.servers.http_server import Answered, HttpServer
from tests.support.servers.postgres import sql


@pytest.fixture
def operator(server: HttpServer) -> str:
    return server.token("operator", name="ana")


def post(server: HttpServer, token: str, path: str, **body: Any) -> Answered:
    return server.post(path, token=token, json_body=body)


def test_a_breaker_is_held_open_and_closed_again(server: HttpServer, operator: str) -> None:
    name = "llm:anthropic/claude 4"
    output = post(server, operator, "/v1/breakers/open", name=name, reason="it costs too much")
    assert output.status == 200, output
    (row,) = output.json["breakers"]
    assert (row["name"], row["state"], row["forced_by"]) == (name, "OPEN", "ana")
    assert (row["forced_reason"], row["waiting"]) == ("it costs too much", 0)
    assert server.get("/v1/breakers", token=operator).json["breakers"] == [row]
    (row,) = post(server, operator, "/v1/breakers/close", name=name, reason="well").json["breakers"]
    assert (row["state"], row["forced_by"]) == ("CLOSED", None)
    facts = sql(server.dsn, "SELECT data->>'by' AS by FROM cortex.fact WHERE source = $1", name)
    assert {fact["by"] for fact in facts} == {"ana"}


def test_breaker_shows_recent_turns_and_errors(server: HttpServer, operator: str) -> None:
    busy = Failure(cls=FailureClass.TRANSIENT_APP, code="overloaded", message="busy")
    for _ in range(3):
        server.store(lambda db: breakers.failed(db, "llm:m", failure=busy, requests=1, probe=None))
    data = {"class": "TRANSIENT_APP", "message": "busy"}
    error = Fact(type="error", subtype="overloaded", source="llm:m", data=data)
    server.store(lambda db: facts.append(db, [error] * 4))
    (row,) = server.get("/v1/breakers", token=operator).json["breakers"]
    assert [(turn["before"], turn["after"]) for turn in row["turns"]] == [("CLOSED", "OPEN")]
    assert row["turns"][0]["at"].endswith("Z")
    assert [error["message"] for error in row["errors"]] == ["busy"] * 3
    assert row["known_since"] is None


def test_a_breaker_is_held_open_for_some_time(server: HttpServer, operator: str) -> None:
    output = post(server, operator, "/v1/breakers/open", name="llm:m", reason="deploy", for_s=60)
    (row,) = output.json["breakers"]
    assert (row["forced_by"], row["open_until"] is not None) == ("ana", True)


NO_BREAKERS: list[tuple[dict[str, Any], int]] = [
    ({"name": "llm:m"}, 422),
    ({"name": "llm:m", "reason": "x", "for_s": 0}, 422),
    ({"name": "llm:m", "reason": "x", "for_s": 1e9}, 422),
    ({"name": "llm:m", "reason": ""}, 422),
    ({"name": "m", "reason": "x"}, 400),
    ({"name": "effects:all", "reason": "x"}, 400),
    ({"name": "llm:\u202em", "reason": "x"}, 400),
    ({"name": "llm:" + "m" * 300, "reason": "x"}, 422),
    ({"name": "llm:m\0", "reason": "x"}, 422),
]


def test_invalid_breaker_request_is_refused(server: HttpServer, operator: str) -> None:
    for body, status in NO_BREAKERS:
        assert post(server, operator, "/v1/breakers/open", **body).status == status, ascii(body)
        assert server.get("/v1/breakers", token=operator).json["breakers"] == [], ascii(body)


def test_unknown_breaker_cannot_be_closed(server: HttpServer, operator: str) -> None:
    output = post(server, operator, "/v1/breakers/close", name="llm:m", reason="x")
    assert (output.status, output.json["code"]) == (404, "not_found")


def test_effects_are_frozen_and_unfrozen(server: HttpServer, operator: str) -> None:
    output = post(server, operator, "/v1/freeze/off", reason="x")
    assert (output.status, output.json["code"]) == (409, "conflict")
    output = post(server, operator, "/v1/freeze/on", reason="an audit")
    assert (output.status, output.json["is_frozen"], output.json["by"]) == (200, True, "ana")
    assert output.json["reason"] == "an audit"
    assert server.get("/v1/freeze", token=operator).json == output.json
    assert server.get("/v1/breakers", token=operator).json["breakers"] == []
    output = post(server, operator, "/v1/freeze/off", reason="over")
    assert (output.status, output.json["is_frozen"], output.json["waiting_jobs"]) == (200, False, 0)
    assert post(server, operator, "/v1/freeze/on").status == 422
    blank = post(server, operator, "/v1/freeze/on", reason=" ")
    assert (blank.status, "is blank" in blank.json["detail"]) == (422, True), blank.json


def test_viewers_cannot_open_breakers_or_freeze(server: HttpServer) -> None:
    token = server.token("viewer", "approver")
    for path in ("/v1/freeze/on", "/v1/freeze/off", "/v1/breakers/open", "/v1/breakers/close"):
        assert post(server, token, path, name="llm:m", reason="x").status == 403
    assert server.get("/v1/freeze", token=token).json["is_frozen"] is False
