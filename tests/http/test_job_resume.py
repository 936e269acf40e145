"""`/v1/jobs/{id}/timeouts` and `/resume`: as the command line does it, in the caller's name."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.timeouts import TimeoutReceipt
from cortex.store import facts, timeouts
from tests.support.life import Life
from tests.support.records.receipts import (
    a_change,
    a_receipt,
    a_work_tree,
    an_artefact,
    an_interruption,
)
from tests.support.records.rows import new_id
from tests.support.servers.http_server import Answered, HttpServer, http_server
from tests.support.servers.postgres import sql


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[HttpServer]:
    roots = [tmp_path / "open"]
    with http_server(database, workspaces=tmp_path / "workspaces", folder_roots=roots) as running:
        yield running


@pytest.fixture
def operator(server: HttpServer) -> str:
    return server.token("operator", name="ana")


def failed(life: Life, **left: Any) -> UUID:
    """A job that failed in its second step, by a time-out if something is `left` of it."""
    pod, job_id = life.pod(), life.job()
    claim = life.claim(pod)
    life.step(pod, claim, 1, "1 model")
    life.finish(pod, claim, error="Job timed out after 60 seconds")
    if left:
        receipt: TimeoutReceipt = a_receipt(interruption=an_interruption(lease=claim.lease), **left)
        life.call(timeouts.record, [receipt])
    return job_id


def resume(server: HttpServer, token: str, job_id: UUID, **body: Any) -> Answered:
    key = body.pop("key", None)
    headers = {} if key is None else {"Idempotency-Key": key}
    path = f"/v1/jobs/{job_id}/resume"
    return server.post(path, token=token, json_body=body, headers=headers)


def noted(life: Life, job_id: UUID, subtype: str) -> list[dict[str, Any]]:
    return [each.data for each in life.call(facts.of_job, job_id) if each.subtype == subtype]


def test_receipts_list_leftovers(server: HttpServer, life: Life) -> None:
    viewer = server.token("viewer")
    job_id = failed(
        life, artefacts=(an_artefact("report.md"),), work_trees=(a_work_tree(a_change("a.py")),)
    )
    found = server.get(f"/v1/jobs/{job_id}/timeouts", token=viewer)
    assert (found.status, found.json["next_after"]) == (200, None)
    (receipt,) = found.json["timeouts"]
    assert (receipt["scope"], receipt["limit_s"], receipt["step_key"]) == (
        "call",
        30.0,
        "2 write_file",
    )
    assert [each["path"] for each in receipt["artefacts"]] == ["report.md"]
    assert receipt["work_trees"][0]["changes"][0]["path"] == "a.py"
    assert (receipt["is_clean"], receipt["recommended_choice"]) == (False, "retry_step")
    after = server.get(f"/v1/jobs/{job_id}/timeouts?after={receipt['id']}", token=viewer)
    assert after.json["timeouts"] == []
    assert server.get(f"/v1/jobs/{new_id()}/timeouts", token=viewer).status == 404


def test_a_clean_job_retries_its_step_once(server: HttpServer, operator: str, life: Life) -> None:
    job_id = failed(life)
    first, again = (resume(server, operator, job_id, reason="r", key="k") for _ in range(2))
    assert (first.status, first.json) == (again.status, again.json)
    assert (first.json["choice"], first.json["by"]) == ("retry_step", "ana")
    (note,) = noted(life, job_id, "job_resumed")
    assert (note["by"], note["reason"], note["retried_as"]) == (
        "ana",
        "r",
        first.json["resumed_as"],
    )
    assert resume(server, operator, job_id).status == 409
    origin = sql(
        server.dsn, "SELECT origin_id FROM cortex.job WHERE id = $1", UUID(first.json["resumed_as"])
    )
    assert origin[0]["origin_id"] == job_id


def test_a_person_chooses_the_fate_of_half_done_work(
    server: HttpServer, operator: str, life: Life, tmp_path: Path
) -> None:
    job_id = failed(life, artefacts=(an_artefact("report.md"),))
    refused = resume(server, operator, job_id)
    assert refused.status == 400
    assert "recommended: discard_and_retry" in json.dumps(refused.json)
    away = resume(server, operator, job_id, choice="discard_and_retry")
    assert away.status == 409
    assert "is not on this machine" in json.dumps(away.json)
    workspace = tmp_path / "workspaces" / str(job_id)
    workspace.mkdir(parents=True)
    (workspace / "report.md").write_text("half")
    done = resume(server, operator, job_id, choice="discard_and_retry")
    assert done.status == 200, done
    assert done.json["set_aside"]["files"] == ["report.md"]
    assert not (workspace / "report.md").exists()
    assert (Path(done.json["set_aside"]["into"]) / "report.md").read_text() == "half"


def test_work_outside_the_folders_for_http_stays_untouched(
    server: HttpServer, operator: str, life: Life, tmp_path: Path
) -> None:
    """The folder that is open to HTTP is not on this machine, which is found later."""
    inside = tmp_path / "workspaces"
    folders = {"open/tree": 409, "closed/tree": 403, f"{inside}/x/../../closed": 403}
    jobs = [
        failed(life, work_trees=(a_work_tree(a_change(), folder=str(tmp_path / folder)),))
        for folder in folders
    ]
    for job_id, status in zip(jobs, folders.values(), strict=True):
        refused = resume(server, operator, job_id, choice="discard_and_retry")
        assert refused.status == status, refused
        again = resume(server, operator, job_id, choice="retry_step")
        assert again.status == 200, "nobody holds the job"


def test_a_job_is_escalated_to_an_operator(server: HttpServer, operator: str, life: Life) -> None:
    job_id = failed(life)
    done = resume(server, operator, job_id, choice="escalate", reason="look")
    assert (done.status, done.json["resumed_as"]) == (200, None)
    assert len(noted(life, job_id, "job_escalated")) == 1


def test_other_roles_and_other_states_are_refused(
    server: HttpServer, operator: str, life: Life
) -> None:
    job_id = failed(life)
    assert resume(server, server.token("viewer", name="vi"), job_id).status == 403
    assert resume(server, operator, new_id()).status == 404
    assert resume(server, operator, job_id, choice="again").status == 422
    waiting = life.job()
    assert resume(server, operator, waiting).status == 409
    assert noted(life, job_id, "job_resumed") == []
