"""A role that may not submit a job of some type cannot start one by another way either."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import BEYOND_TENANT, BULK
from cortex.domain.schedules.schedule import Schedule
from cortex.http.routes.job_rights import REASONS
from cortex.store.background import schedules
from tests.support.records.dead_letters import fail
from tests.support.records.rows import job_count
from tests.support.servers.http_server import Answered, HttpServer

Way = Callable[[HttpServer, str, UUID], Answered]


def post(path: str, **body: Any) -> Way:
    """Send this, with `JOB` in path and body replaced by the failed job."""

    def send(server: HttpServer, token: str, job_id: UUID) -> Answered:
        text = json.dumps({"reason": "x"} | body).replace("JOB", str(job_id))
        where = f"/v1/{path}".replace("JOB", str(job_id))
        return server.post(where, token=token, json_body=json.loads(text))

    return send


def trigger(server: HttpServer, token: str, job_id: UUID) -> Answered:
    """Trigger a schedule of the job's type."""
    job_type = server.get(f"/v1/jobs/{job_id}", token=token).json["job"]["type"]
    made = Schedule.make(name=f"s-{job_id}", cron="0 * * * *", type=job_type, arguments={})
    server.store(lambda db: schedules.apply(db, [made], by="li", reason="x"))
    return server.post(f"/v1/schedules/{made.name}/trigger", token=token, json_body={"reason": "x"})


WAYS: dict[str, Way] = {
    "retry": post("jobs/JOB/retry"),
    "resume": post("jobs/JOB/resume", choice="retry_step"),
    "retry the dead letter": post("dead-letters/JOB/retry"),
    "retry it with a payload": post("dead-letters/JOB/retry", payload={"tool": "b"}),
    "retry it from the start": post("dead-letters/JOB/retry", from_start=True),
    "retry it among others": post("dead-letters/retry", job_ids=["JOB"]),
    "retry by a filter": post("dead-letters/retry", which={"since": "1h"}),
    "trigger": trigger,
}


@pytest.mark.parametrize(
    "job_type, way",
    [
        (job_type, way)
        for job_type in REASONS
        for way in WAYS
        if (job_type, way) != (BULK, "trigger")  # no schedule has this type
    ],
)
def test_an_operator_cannot_start_it(server: HttpServer, job_type: str, way: str) -> None:
    (failed,) = fail(server.dsn, submitted={"type": job_type, "payload": '{"tool": "a"}'})
    before = job_count(server.dsn, "true")
    refused = WAYS[way](server, server.token("operator", name="ana"), failed)
    assert (refused.status, refused.json["code"]) == (403, "forbidden"), refused
    assert "needs a token with role admin" in refused.json["detail"]
    assert job_count(server.dsn, "true") == before


@pytest.mark.parametrize(
    "job_type, way",
    [
        (job_type, way)
        for job_type in sorted(BEYOND_TENANT)
        for way in WAYS
        if way != "trigger" and (job_type in REASONS or way == "retry")
    ],
)
def test_an_admin_of_one_tenant_cannot_start_it(
    server: HttpServer, job_type: str, way: str
) -> None:
    of_all = {"type": job_type, "payload": '{"tool": "a"}', "tenant": "acme"}
    (failed,) = fail(server.dsn, submitted=of_all)
    before = job_count(server.dsn, "true")
    refused = WAYS[way](server, server.token("admin", name="ana", tenant="acme"), failed)
    assert (refused.status, refused.json["code"]) == (403, "forbidden"), refused
    assert "needs a token of all tenants" in refused.json["detail"]
    assert job_count(server.dsn, "true") == before


def test_an_operator_may_start_other_types_of_the_same_selection(server: HttpServer) -> None:
    (failed,) = fail(server.dsn)
    for way in ("retry the dead letter", "trigger"):
        answered = WAYS[way](server, server.token("operator", name="ana"), failed)
        assert answered.status == 200, answered
