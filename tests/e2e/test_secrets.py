"""Canaries: secrets that tools and jobs emit in every way are in nothing that is kept or shown."""

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import assert_one_truth, job_row, submit, until_job, until_status
from tests.support.scripted_agent import NAME, ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import MODEL

APP = "tests.support.apps.leaky_app"
CANARY = 'c4nary/"quöted" +5e7d0a91'
FILE_CANARY = "fil3-canary-0b6f8d2e4c"
MARKERS = ("[secret CANARY, 25 characters]", "[secret FILE_CANARY, 22 characters]")


def forms(value: str) -> dict[str, str]:
    """How a value must not be found. Shares no code with the system."""
    octets = value.encode()
    inside = {
        f"base64 at {before}": base64.b64encode(b"x" * before + octets).decode()[4:-4]
        for before in range(3)
    }
    return {
        "plain": value,
        "JSON": json.dumps(value)[1:-1],
        "JSON of bytes": json.dumps(value, ensure_ascii=False)[1:-1],
        "percent": quote(value, safe=""),
        **inside,
    }


def found_in(text: str) -> list[str]:
    """The encodings of a canary in a text."""
    return [
        f"{how} of {value[:4]}: {text[max(0, text.find(form) - 60) :][:160]!r}"
        for value in (CANARY, FILE_CANARY)
        for how, form in forms(value).items()
        if form in text
    ]


def everything(dsn: str) -> Iterator[tuple[str, str]]:
    """Each table's rows as text; bytes too, as the text that they may be."""
    tables = sql(
        dsn,
        "SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON "
        "n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND n.nspname LIKE 'cortex%'",
    )
    for table in tables:
        for row in sql(dsn, f"SELECT * FROM {table['name']}"):  # noqa: S608 -- of the catalogue
            values = [
                value.decode("latin-1") if isinstance(value, bytes) else str(value)
                for value in row.values()
            ]
            yield table["name"], "\n".join(values)


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers that it got."""

    def do_POST(self) -> None:
        body = str(self.headers).encode()
        self.server.asked.append(body.decode())  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("X-Echo", self.headers["X-Key"])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def echo_server() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Echo)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def echo() -> Iterator[HTTPServer]:
    with echo_server() as server:
        yield server


@pytest.fixture
def leaky(agent: ScriptedAgent, echo: HTTPServer, tmp_path: Path) -> ScriptedAgent:
    """An agent with two secrets, and pods that have them; the command line has not."""
    file = tmp_path / "secret"
    file.write_text(FILE_CANARY + "\n")
    agent.pods.environment |= agent.model.environment | {
        "CANARY_VALUE": CANARY,
        "CORTEX_HTTP_ALLOW": "127.0.0.1/32",
    }
    hosts = [f"http://127.0.0.1:{echo.server_port}"]
    spec = {
        "name": NAME,
        "model": MODEL,
        "system": "You test.",
        "tools": ["leak", "http_request", "read_file", "run_command", "write_file"],
        "secrets": {
            "CANARY": {"env": "CANARY_VALUE"},
            "FILE_CANARY": {"file": str(file), "hosts": hosts},
            "ABSENT": {"env": "CANARY_ABSENT"},
        },
    }
    path = tmp_path / "agent.yaml"
    path.write_text(json.dumps(spec))
    ran = run_cli("agents", "apply", str(path), dsn=agent.pods.dsn, folder=tmp_path)
    assert ran.exit_code == 0, ran.stderr
    return agent


def receipts(pods: Pods, job_id: UUID) -> list[dict[str, Any]]:
    """The receipts of a job's time-outs as JSON."""
    ran = run_cli("jobs", "timeouts", str(job_id), "--jsonl", dsn=pods.dsn, folder=pods.folder)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def use(tool: str, **given: object) -> dict[str, Any]:
    return {"tools": [{"name": tool, "input": given}]}


TOOL_WAYS = ("result", "large result", "error", "rejected", "cut", "unfit", "log", "hang")
JOB_WAYS = {
    "result": "COMPLETED",
    "error": "FAILED",
    "group": "FAILED",
    "step": "COMPLETED",
    "failed step": "FAILED",
    "step's name": "FAILED",
    "answer": "COMPLETED",
}


def shown(pods: Pods, job_ids: list[UUID]) -> Iterator[tuple[str, str]]:
    """The output of the command line about these jobs, for people and machines."""
    commands = [("dead", "ls"), ("facts",), ("jobs", "ls"), ("agents", "show", NAME)]
    for job_id in map(str, job_ids):
        commands += [("jobs", "show", job_id), ("why", job_id), ("dead", "show", job_id)]
        commands += [("facts", "--job", job_id), ("jobs", "timeouts", job_id)]
    people = [
        command for command in commands if command[1:] in (("ls",), ("show", str(job_ids[0])))
    ]
    for command in (*people, *((*command, "--json") for command in commands)):
        ran = run_cli(*command, dsn=pods.dsn, folder=pods.folder)
        assert ran.exit_code in (0, 3), (command, ran.stderr)
        yield " ".join(command), ran.stdout + ran.stderr


@pytest.mark.smoke("Secrets stay out of the record")
def test_no_canary_is_in_the_record_the_logs_or_on_a_screen(
    leaky: ScriptedAgent, echo: HTTPServer, tmp_path: Path
) -> None:
    pods = leaky.pods
    pod = pods.start("--app", APP)
    file = str(tmp_path / "secret")
    turns = [use("leak", how=how, name=name) for how in TOOL_WAYS for name in ("CANARY",)]
    turns += [
        use("leak", how="result", name="FILE_CANARY"),
        use("leak", how="result", name="ABSENT"),
        use("leak", how="result", name="CANARY_VALUE"),
        use("run_command", argv=["cat", file]),
        use(
            "http_request",
            url=f"http://127.0.0.1:{echo.server_port}/",
            method="POST",
            headers={"X-Key": "{secret:FILE_CANARY}"},
            body="{}",
        ),
        {"text": "that was all"},
    ]
    talk = leaky.submit(*turns)
    jobs = {
        how: submit(pods.dsn, "leak_job", {"how": how}, agent=NAME)
        for how in (*JOB_WAYS, "half an answer")
    }
    row = until_status(pods.dsn, talk, "COMPLETED", "FAILED")
    assert row["status"] == "COMPLETED", row["error_message"]
    for how, status in JOB_WAYS.items():
        row = until_status(pods.dsn, jobs[how], "COMPLETED", "FAILED")
        assert (how, row["status"]) == (how, status), row["error_message"]
    (receipt,) = eventually(lambda: receipts(pods, jobs["half an answer"])[:1], what="a receipt")
    assert receipt["partial_text"].startswith("you said [secret CANARY")
    assert pod.stop() == 0

    # They were used, and what happened can be read.
    assert FILE_CANARY in echo.asked[0]  # type: ignore[attr-defined]
    assert "{secret" not in echo.asked[0]  # type: ignore[attr-defined]
    record = "\n".join(text for _, text in everything(pods.dsn))
    for marker in MARKERS:
        assert marker in record
    assert MARKERS[0] in pod.log
    assert "environment variable CANARY_ABSENT is not set" in record
    assert "declares no secret 'CANARY_VALUE'" in record
    assert "the name of a step holds secret CANARY" in record

    wrong = [f"{table}: {each}" for table, text in everything(pods.dsn) for each in found_in(text)]
    wrong += [f"log: {each}" for each in found_in(pod.log)]
    workspace = job_row(pods.dsn, talk)["result"]["workspace"]
    (artefact,) = Path(workspace, "tool-output").iterdir()
    wrong += [f"artefact: {each}" for each in found_in(artefact.read_text())]
    ids = [talk, jobs["error"], jobs["answer"], jobs["half an answer"]]
    wrong += [f"{what}: {each}" for what, text in shown(pods, ids) for each in found_in(text)]
    assert not wrong, "\n".join(["", *wrong[:20]])
    assert_one_truth(pods.dsn)


def test_replay_sees_the_redacted_record_of_the_first_run(leaky: ScriptedAgent) -> None:
    """Killed after the tools, with markers in the record: no step differs."""
    pods = leaky.pods
    pod = pods.start("--app", APP)
    gate_turn = {"text": "slowly", "chunks": 2, "first_delay_s": 2.0}
    turns = [use("leak", how="result"), use("leak", how="error"), gate_turn]
    talk = leaky.submit(*turns)
    row = until_status(pods.dsn, talk, "RUNNING")
    until_job(pods.dsn, talk, lambda row: (row["checkpoint"] or {}).get("seq", 0) >= 4, "at 4")
    pod.kill()
    other = pods.start("--app", APP)
    row = until_status(pods.dsn, talk, "COMPLETED", "FAILED")
    assert row["status"] == "COMPLETED", row["error_message"]
    assert row["attempt"] == 2
    assert other.stop() == 0
    assert [each for _, text in everything(pods.dsn) for each in found_in(text)] == []


def test_canary_checker_finds_every_form_of_a_secret() -> None:
    """Else a canary that is everywhere would pass."""
    for value in (CANARY, FILE_CANARY):
        for form in forms(value).values():
            assert found_in(f"before{form}after")
        assert found_in(base64.b64encode(f"user:{value}".encode()).decode())
    assert not found_in(os.fspath(Path(__file__)))
