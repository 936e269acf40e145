"""Pauses, rules and deadlines on the command line and over HTTP."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.queueing.pauses import Pausable
from cortex.domain.queueing.submit_rules import Singleton
from cortex.store import jobs, pauses, screen_head
from cortex.view import doctor
from cortex.view.doctor import Grade
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.rows import move_clock
from tests.support.servers.http_server import HttpServer, http_server

TYPE = "digest"


@pytest.fixture
def cortex(tmp_path: Path, clean: Life) -> Cortex:
    clean.type(TYPE)
    return Cortex(tmp_path, clean.dsn)


@pytest.fixture(scope="module")
def server(shared_database: str) -> Iterator[HttpServer]:
    with http_server(shared_database) as running:
        yield running


@pytest.fixture(scope="module")
def operator(server: HttpServer) -> str:
    return server.token("operator", "submitter", "viewer", name="olga")


def test_a_type_is_paused_listed_explained_and_resumed(cortex: Cortex, clean: Life) -> None:
    job_id = clean.job(TYPE)
    why = ("--reason", "new prompt", "--as", "ana")
    (paused,) = cortex("pause", f"type:{TYPE}", *why, "--json").document["pauses"]
    assert (paused["target"], paused["paused_by"]) == (f"type:{TYPE}", me("ana"))
    assert paused["reason"] == "new prompt"
    assert "nothing was done" in cortex("pause", f"type:{TYPE}", *why).err
    output = cortex("why", str(job_id), "--json").document
    assert output["cause"] == "paused"
    assert output["sentence"].startswith(f"its type {TYPE} was paused by {me('ana')}: new prompt")
    assert output["ways_out"] == [f"cortex resume type:{TYPE}"]
    assert len(cortex("pauses", "--json").document["pauses"]) == 1
    assert cortex("resume", f"type:{TYPE}", "--json").document["pauses"] == []
    assert "was not paused" in cortex("resume", f"type:{TYPE}").err


def test_a_job_is_paused_by_the_end_of_its_id(cortex: Cortex, clean: Life) -> None:
    job_id = str(clean.job(TYPE))
    done = cortex("pause", f"job:{job_id[-6:]}", "--reason", "look at it", "--json")
    assert [each["target"] for each in done.document["pauses"]] == [f"job:{job_id}"]
    assert cortex("why", job_id, "--json").document["sentence"].startswith("it was paused by")


@pytest.mark.parametrize(
    "target, message",
    [
        ("everything", "hint: write all, or type:NAME, tenant:NAME, queue:NAME or job:ID"),
        ("type:gone", "no pod has had a job type 'gone'"),
        ("tenant:nobody", "no job or cap is of tenant 'nobody'"),
        ("job:00000000-0000-0000-0000-000000000000", "does not exist"),
    ],
)
def test_a_wrong_target_is_one_line(cortex: Cortex, target: str, message: str) -> None:
    done = cortex("pause", target, "--reason", "x")
    assert done.code != 0
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "given, message",
    [
        ("soon", "'soon' is not a time such as 2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00 has no time zone"),
        ("2020-01-31T12:00:00Z", "due_by 2020-01-31 12:00:00+00 is in the past"),
        ("9026-01-31T12:00:00Z", "due_by 9026-01-31 12:00:00+00 is more than ten years away"),
        ("12026-01-31T12:00:00Z", "is not a time such as"),
        ("9999-12-31T23:59:59-23:00", "is not an instant of the years 1 to 9999"),
    ],
)
def test_a_wrong_deadline_is_one_line(cortex: Cortex, given: str, message: str) -> None:
    done = cortex("jobs", "submit", TYPE, "--due-by", given)
    assert done.code != 0
    assert message in done.err


def test_the_command_says_that_a_job_is_not_new(cortex: Cortex, clean: Life) -> None:
    clean.call(jobs.ensure_rules, {TYPE: Singleton("{customer}")})
    first = cortex("jobs", "submit", TYPE, "customer=7", "--json").document["job"]
    again = cortex("jobs", "submit", TYPE, "customer=7", "--json").document["job"]
    assert (first["is_new"], again["is_new"]) == (True, False)
    assert again["id"] == first["id"]
    assert "not a new job" in cortex("jobs", "submit", TYPE, "customer=7").err


def test_http_pauses_and_says_that_a_job_is_not_new(
    server: HttpServer, operator: str, clean: Life
) -> None:
    clean.type("other")
    clean.call(jobs.ensure_rules, {"other": Singleton("{customer}")})

    def post(path: str, **body: Any) -> Any:
        return server.post(path, token=operator, json_body=body)

    body = {"type": "other", "payload": {"customer": 7}}
    first, again = (post("/v1/jobs", **body) for _ in range(2))
    assert (first.status, again.status) == (201, 200)
    assert (first.json["is_new"], again.json["is_new"]) == (True, False)
    assert first.json["id"] == again.json["id"]
    target = f"job:{first.json['id']}"
    paused = post("/v1/pauses", target=target, reason="look at it")
    assert [each["target"] for each in paused.json["pauses"]] == [target]
    assert server.get("/v1/pauses", token=operator).json == paused.json
    assert post("/v1/pauses/resume", target=target, reason="seen").json["pauses"] == []
    assert post("/v1/pauses", target="pod:vm", reason="x").status == 400
    late = post("/v1/jobs", type="other", due_by="9999-12-31T23:59:59-23:00")
    assert "body.due_by must be an instant of the years 1 to 9999" in late.json["detail"]
    assert post("/v1/pauses", target="type:gone", reason="x").status == 404


def test_a_job_gets_another_priority(cortex: Cortex, clean: Life) -> None:
    job_id = str(clean.job(TYPE))
    done = cortex("jobs", "priority", job_id[-6:], "-7", "--json")
    assert done.document["job"] == {"id": job_id, "priority": -7, "priority_before": 0}
    (task,) = clean.sql("SELECT priority FROM cortex_worker.task")
    assert task["priority"] == -7
    clean.call(jobs.cancel, UUID(job_id), by="ana", reason="x")
    ended = cortex("jobs", "priority", job_id, "1")
    assert (ended.code, "is CANCELLED already" in ended.err) == (5, True)
    assert cortex("jobs", "priority", job_id, "40000").code == 2


def test_a_late_job_says_so(cortex: Cortex, clean: Life) -> None:
    (soon,) = clean.sql("SELECT cortex.now() + interval '1 minute' AS at")
    job_id = clean.job(TYPE, due_by=soon["at"])
    assert "late" not in cortex("why", str(job_id)).out
    move_clock(clean.dsn, 3600)
    assert (
        "it is late: its deadline was" in cortex("why", str(job_id), "--json").document["sentence"]
    )
    which = f"id:{job_id}"
    (shown,) = cortex("jobs", "ls", which, "--json", "--columns", "id,is_late").document["jobs"]
    assert shown["is_late"] is True
    assert cortex("jobs", "show", str(job_id), "--json").document["job"]["is_late"] is True
    assert "late by 59m" in cortex("jobs", "ls", which).out


def test_the_risen_priority_is_explained(cortex: Cortex, clean: Life) -> None:
    low = clean.job(TYPE, priority=50)
    move_clock(clean.dsn, 700)
    clean.job(TYPE, priority=1)
    clean.call(pauses.age, limit=10)
    sentence = cortex("why", str(low), "--json").document["sentence"]
    assert "its priority has risen from 50 to 1" in sentence


def test_the_head_of_screens_counts_pauses(clean: Life) -> None:
    who = {"by": "ana", "reason": "x"}
    assert clean.call(screen_head.head).pauses == 0
    clean.call(pauses.pause, Pausable.parse("tenant:default"), **who)
    seen = clean.call(screen_head.head)
    assert (seen.pauses, seen.is_paused) == (1, False)
    clean.call(pauses.pause, Pausable.parse("all"), **who)
    seen = clean.call(screen_head.head)
    assert (seen.pauses, seen.is_paused) == (2, True)


def test_the_doctor_finds_a_pause_that_was_forgotten(clean: Life) -> None:
    clean.type(TYPE)
    clean.call(pauses.pause, Pausable.parse(f"type:{TYPE}"), by="ana", reason="soon over")
    assert doctor.of_pauses(clean.call(pauses.page)).grade is Grade.OK
    move_clock(clean.dsn, 3 * 86_400)
    found = doctor.of_pauses(clean.call(pauses.page))
    assert found.grade is Grade.WARN
    assert found.found == f"type:{TYPE} has been paused for 3d 0h by ana: soon over"
    assert found.fix == f"cortex resume type:{TYPE}"
