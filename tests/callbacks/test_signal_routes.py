"""Signals over HTTP: to a job, to a key, and what of them is listed."""

from typing import Any

import pytest

from cortex.domain.job import JobStatus
from tests.callbacks.conftest import CallbackStage
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql


def path_of(job_id: object) -> str:
    return f"/v1/jobs/{job_id}/signals"


def test_signals_of_a_job_are_sent_and_listed(stage: CallbackStage) -> None:
    token = stage.server.token("operator", name="ana")
    claim = stage.stage.running()
    path = path_of(claim.lease.job_id)
    paid = {"name": "paid", "payload": {"euros": 48}, "reason": "by hand"}
    bodies = (paid, {"name": "paid"}, {"name": "other"})
    answers = [stage.server.post(path, token=token, json_body=body) for body in bodies]
    assert [each.status for each in answers] == [201, 201, 201]
    taken = stage.stage.take(claim, step="pay", name="paid")
    assert taken is not None
    listed = stage.server.get(path, token=token).json
    first, second, third = listed["signals"]
    assert (first["name"], first["payload"], first["taken_step"]) == ("paid", {"euros": 48}, "pay")
    assert (first["sent_by"], first["taken_by"]) == ("ana", str(claim.lease.job_id))
    assert (second["payload"], second["taken_at"]) == (None, None)
    assert (third["name"], listed["next_after"]) == ("other", None)
    assert third["id"] == answers[2].json["id"]
    job = stage.server.get(path.removesuffix("/signals"), token=token).json
    assert [each["data"]["reason"] for each in job["changes"]] == ["by hand"]
    page = stage.server.get(f"{path}?limit=1&waiting=true", token=token).json
    assert [each["id"] for each in page["signals"]] == [second["id"]]
    rest = stage.server.get(f"{path}?waiting=true&after={page['next_after']}", token=token).json
    assert [each["id"] for each in rest["signals"]] == [third["id"]]


def test_a_signal_to_a_key_reaches_the_job_that_asks(stage: CallbackStage) -> None:
    token = stage.server.token("operator", name="ana")
    body = {"name": "paid", "key": "order-1", "payload": 1}
    assert stage.server.post("/v1/signals", token=token, json_body=body).status == 201
    claim = stage.stage.running()
    taken = stage.stage.take(claim, step="pay", name="paid", key="order-1")
    assert taken is not None
    (listed,) = stage.server.get(path_of(claim.lease.job_id), token=token).json["signals"]
    assert (listed["key"], listed["taken_step"]) == ("order-1", "pay")


def test_an_idempotency_key_sends_one_signal(stage: CallbackStage) -> None:
    token = stage.server.token("operator")
    job_id, headers = stage.stage.submit(), {"Idempotency-Key": str(new_id())}

    def send(payload: Any) -> Any:
        body = {"name": "paid", "payload": payload}
        return stage.server.post(path_of(job_id), token=token, json_body=body, headers=headers)

    first, again, changed = send(1), send(1), send(2)
    assert first.json == again.json
    assert again.headers["idempotent-replayed"] == "true"
    assert (changed.status, changed.json["code"]) == (422, "key_reused")
    assert len(stage.received(job_id)) == 1


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("nameless", {}, 422, "body.name is missing"),
    ("blank", {"name": " "}, 422, "body.name is blank"),
    ("control", {"name": "a\x1bb"}, 400, "signal name 'a\\x1bb' is not text"),
    ("long", {"name": "x" * 101}, 422, "body.name is 101 characters, not 1 to 100"),
    ("nul", {"name": "x", "payload": "\0"}, 422, "body"),
    (
        "large",
        {"name": "x", "payload": "x" * 300_000},
        422,
        "signal 'x' is 300,002 bytes of JSON, more than 262,144",
    ),
    ("megabyte", {"name": "x", "payload": "x" * 1_048_576}, 413, "the body is larger than"),
    ("unknown", {"name": "x", "key": "k"}, 422, "body.key is unknown"),
]


@pytest.mark.parametrize(
    "body, status, message", [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED]
)
def test_an_unfit_signal_is_refused_in_one_line(
    stage: CallbackStage, body: dict[str, Any], status: int, message: str
) -> None:
    token, job_id = stage.server.token("operator"), stage.stage.submit()
    answer = stage.server.post(path_of(job_id), token=token, json_body=body)
    assert (answer.status, answer.json["detail"][: len(message)]) == (status, message)
    assert stage.received(job_id) == []


def test_a_signal_to_no_job_or_an_ended_one_is_refused(stage: CallbackStage) -> None:
    token, body = stage.server.token("operator"), {"name": "x"}
    unknown = new_id()
    answer = stage.server.post(path_of(unknown), token=token, json_body=body)
    assert (answer.status, answer.json["detail"]) == (404, f"job {unknown} does not exist")
    assert stage.server.get(path_of(unknown), token=token).status == 404
    claim, _ = stage.open()
    stage.end(claim, JobStatus.COMPLETED)
    answer = stage.server.post(path_of(claim.lease.job_id), token=token, json_body=body)
    assert (answer.status, answer.json["detail"]) == (
        409,
        f"job {claim.lease.job_id} is COMPLETED: it has ended and receives no signals",
    )


@pytest.mark.parametrize("role", ["viewer", "approver", "submitter", "metrics"])
def test_a_token_that_changes_no_jobs_signals_none(stage: CallbackStage, role: str) -> None:
    token, job_id = stage.server.token(role), stage.stage.submit()
    for path, body in (
        (path_of(job_id), {"name": "x"}),
        ("/v1/signals", {"name": "x", "key": f"k-{job_id}"}),
    ):
        assert stage.server.post(path, token=token, json_body=body).status == 403
        assert stage.server.post(path, json_body=body).status == 401
    assert stage.received(job_id) == []
    query = "SELECT FROM cortex.signal WHERE key = $1"
    assert sql(stage.server.dsn, query, f"k-{job_id}") == []


def test_a_tenant_signals_and_sees_its_own_jobs_only(stage: CallbackStage) -> None:
    token = stage.server.token("operator", name="eva", tenant="acme")
    foreign = stage.stage.submit()
    claim = stage.stage.running(tenant="acme")
    for answer in (
        stage.server.post(path_of(foreign), token=token, json_body={"name": "x"}),
        stage.server.get(path_of(foreign), token=token),
    ):
        assert (answer.status, answer.json["detail"]) == (404, f"job {foreign} does not exist")
    body = {"name": "x", "key": "order-7"}
    own = stage.server.post(path_of(claim.lease.job_id), token=token, json_body={"name": "x"})
    assert own.status == 201
    for more, status in (({"tenant": "default"}, 403), ({"tenant": "acme"}, 201), ({}, 201)):
        answer = stage.server.post("/v1/signals", token=token, json_body=body | more)
        assert answer.status == status
    assert stage.stage.take(stage.stage.running(), name="x", key="order-7") is None
    assert stage.stage.take(claim, name="x", key="order-7") is not None
