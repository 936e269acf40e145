"""`/v1/schedules`: lists, one schedule with its instants, and changes by people."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from cortex.domain.schedules.schedule import Schedule
from cortex.store.background import schedules
from cortex.store.background.schedule_ticks import fire_due
from tests.support.records.rows import stop_clock
from tests.support.servers.http_server import Answered, HttpServer
from tests.support.servers.postgres import sql


@pytest.fixture
def operator(server: HttpServer) -> str:
    sql(server.dsn, "DELETE FROM cortex.schedule")
    token = server.token("operator", name="ana")
    made = [
        Schedule.make(name=name, cron="0 * * * *", type="digest", arguments={"a": 1})
        for name in ("a", "b")
    ]
    server.store(lambda db: schedules.apply(db, made, by="li", reason="why"))
    return token


def post(server: HttpServer, token: str, path: str, **body: Any) -> Answered:
    return server.post(f"/v1/schedules/{path}", token=token, json_body=body)


def test_schedules_are_listed_by_name(server: HttpServer, operator: str) -> None:
    first, second = server.get("/v1/schedules", token=operator).json["schedules"]
    assert (first["name"], second["name"]) == ("a", "b")
    assert (first["type"], first["arguments"], first["overlap"]) == ("digest", {"a": 1}, "skip")
    assert (first["changed_by"], first["reason"], first["is_served"]) == ("li", "why", False)
    (after,) = server.get("/v1/schedules?after=a", token=operator).json["schedules"]
    assert after["name"] == "b"
    assert len(server.get("/v1/schedules?limit=1", token=operator).json["schedules"]) == 1


def test_schedule_shows_the_outcome_of_its_instants(server: HttpServer, operator: str) -> None:
    next_at = server.get("/v1/schedules/a", token=operator).json["schedule"]["next_at"]
    stop_clock(server.dsn, datetime.fromisoformat(next_at) + timedelta(seconds=1))
    server.store(lambda db: fire_due(db, limit=9))
    shown = server.get("/v1/schedules/a", token=operator).json
    (instant,) = shown["instants"]
    assert (instant["instant"], instant["outcome"], instant["status"]) == (
        next_at,
        "SUBMITTED",
        "PENDING",
    )
    assert shown["schedule"]["last_job_id"] == instant["job_id"]


def test_people_pause_resume_and_trigger(server: HttpServer, operator: str) -> None:
    paused = post(server, operator, "a/pause", reason="deploy")
    assert (paused.status, paused.json["schedule"]["paused_by"]) == (200, "ana")
    assert post(server, operator, "a/pause", reason="deploy").status == 409
    assert post(server, operator, "a/resume", reason="done").json["schedule"]["paused_at"] is None
    done = post(server, operator, "a/trigger", reason="now")
    assert done.status == 200
    (instant,) = server.get("/v1/schedules/a", token=operator).json["instants"]
    assert (instant["job_id"], instant["is_manual"]) == (done.json["job_id"], True)
    query = (
        "SELECT subtype, data->>'by' AS by FROM cortex.fact WHERE source = 'schedule:a' ORDER BY id"
    )
    assert [tuple(row) for row in sql(server.dsn, query)] == [
        ("schedule_applied", "li"),
        ("schedule_paused", "ana"),
        ("schedule_resumed", "ana"),
        ("schedule_triggered", "ana"),
    ]


def test_an_unknown_schedule_is_not_found(server: HttpServer, operator: str) -> None:
    assert server.get("/v1/schedules/x", token=operator).status == 404
    for verb in ("pause", "resume", "trigger"):
        assert post(server, operator, f"x/{verb}", reason="y").status == 404


def test_viewer_can_read_schedules_only(server: HttpServer, operator: str) -> None:
    viewer = server.token("viewer", name="li")
    assert server.get("/v1/schedules", token=viewer).status == 200
    assert post(server, viewer, "a/pause", reason="x").status == 403
    assert post(server, operator, "a/pause").status == 422
