"""Agents with MCP servers in real pods: kill -9, changed servers, and people."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from tests.mcp.conftest import scripted
from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import assert_one_truth, new_id, submit, until_job, until_status
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import MODEL, ScriptedModel, program, scripted_model

NAME = "clerk"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with scripted_model() as server:
        yield server


class Clerk:
    """An agent whose server is the scripted one."""

    def __init__(self, pods: Pods, model: ScriptedModel) -> None:
        self.pods = pods
        pods.environment |= model.environment
        self.mark = new_id().hex[:12]

    def apply(self, *tools: Any, **terms: Any) -> None:
        server = scripted(*tools, folder="write", **terms).to_json()
        document = {"name": NAME, "model": MODEL, "system": "s", "mcp": {"notes": server}}
        file = self.pods.folder / "clerk.yaml"
        file.write_text(json.dumps(document))
        self("agents", "apply", str(file))

    def __call__(self, *words: str) -> str:
        ran = run_cli(*words, dsn=self.pods.dsn, folder=self.pods.folder)
        assert ran.exit_code == 0, ran.stderr
        return str(ran.stdout)

    def submit(self, tool: str, text: str = "a") -> UUID:
        use = {"name": f"notes__{tool}", "input": {"text": text}}
        prompt = program({"tools": [use]}, {"text": "done"}, mark=self.mark)
        return submit(self.pods.dsn, "run_agent", {"prompt": prompt}, agent=NAME)

    def workspace(self, job_id: UUID) -> Path:
        return self.pods.folder / "workspaces" / str(job_id)

    def marks(self, job_id: UUID) -> list[str]:
        file = self.workspace(job_id) / "marks"
        return file.read_text().split() if file.exists() else []

    def effects(self, job_id: UUID) -> list[tuple[str, str]]:
        rows = sql(
            self.pods.dsn, "SELECT tool, status FROM cortex.effect WHERE job_id = $1", job_id
        )
        return [(row["tool"], row["status"]) for row in rows]


@pytest.fixture
def clerk(pods: Pods, model: ScriptedModel) -> Clerk:
    return Clerk(pods, model)


def programs(workspace: Path) -> list[int]:
    """The processes of the server that works there."""
    found = []
    for each in psutil.process_iter(["cmdline"]):
        words = " ".join(each.info["cmdline"] or ())
        if "mcp_server.py" in words and str(workspace) in words:
            found.append(each.pid)
    return found


@pytest.mark.smoke("An effect is applied once, or a person decides")
def test_effect_of_a_server_is_left_to_a_person_after_a_kill(clerk: Clerk) -> None:
    clerk.apply("create_and_wait")
    doomed = clerk.pods.start()
    job_id = clerk.submit("create_and_wait")
    workspace = clerk.workspace(job_id)
    eventually(lambda: clerk.marks(job_id) == ["a"], what="the tool runs")
    assert programs(workspace)
    doomed.kill()
    eventually(lambda: not programs(workspace), what="the server ends with its pod")
    (workspace / "go").touch()  # were it called again, it would end
    clerk.pods.start()
    unknown = [("notes.create_and_wait", "UNKNOWN")]
    eventually(lambda: clerk.effects(job_id) == unknown, what="nobody knows what it did")
    until_job(clerk.pods.dsn, job_id, lambda row: row["suspended_at"] is not None, "waits")
    assert clerk.marks(job_id) == ["a"]
    assert_one_truth(clerk.pods.dsn)


def test_call_that_only_reads_is_made_again_after_a_kill(clerk: Clerk) -> None:
    clerk.apply("read_and_wait", trusted=True)
    doomed = clerk.pods.start()
    job_id = clerk.submit("read_and_wait")
    eventually(lambda: clerk.marks(job_id) == ["a"], what="the tool runs")
    doomed.kill()
    (clerk.workspace(job_id) / "go").touch()
    clerk.pods.start()
    until_status(clerk.pods.dsn, job_id, "COMPLETED")
    assert clerk.marks(job_id) == ["a", "a"]
    assert clerk.effects(job_id) == []
    assert_one_truth(clerk.pods.dsn)


def test_changed_tool_waits_until_a_person_accepts_it(clerk: Clerk) -> None:
    clerk.apply("create")
    clerk.pods.start()
    first = clerk.submit("create")
    until_status(clerk.pods.dsn, first, "COMPLETED")
    # As if the server had said something else when it was first used.
    change = "UPDATE cortex.mcp_tool SET accepted = replace(accepted, 'an issue', 'a note')"
    sql(clerk.pods.dsn, change)
    job_id = clerk.submit("create")
    until_job(clerk.pods.dsn, job_id, lambda row: row["waiting_on"] is not None, "waits")
    assert "cortex agents trust clerk notes.create" in clerk("why", str(job_id))
    assert "to accept what changed in notes.create" in clerk("jobs", "ls", "status:person")
    assert "create  changed" in clerk("agents", "show", NAME)
    clerk("agents", "trust", NAME, "notes.create", "--reason", "read it", "--yes")
    until_status(clerk.pods.dsn, job_id, "COMPLETED")
    assert clerk.marks(job_id) == ["a"]
    assert clerk.effects(job_id) == [("notes.create", "COMPLETED")]


def test_pod_that_stops_ends_its_servers(clerk: Clerk) -> None:
    clerk.apply("create")
    pod = clerk.pods.start()
    job_id = clerk.submit("create")
    until_status(clerk.pods.dsn, job_id, "COMPLETED")
    assert programs(clerk.workspace(job_id))
    assert pod.stop() == 0
    assert not programs(clerk.workspace(job_id))


def test_job_in_a_process_of_its_own_has_servers_that_end_with_it(clerk: Clerk) -> None:
    clerk.apply("create")
    job_id = clerk.submit("create")
    suspect = "UPDATE cortex_worker.task SET is_suspect = true WHERE job_id = $1"
    sql(clerk.pods.dsn, suspect, job_id)
    clerk.pods.start()
    until_status(clerk.pods.dsn, job_id, "COMPLETED")
    assert clerk.effects(job_id) == [("notes.create", "COMPLETED")]
    assert clerk.marks(job_id) == ["a"]
    (known,) = sql(clerk.pods.dsn, "SELECT agent, tool FROM cortex.mcp_tool")
    assert tuple(known.values()) == (NAME, "create")
    workspace = clerk.workspace(job_id)
    eventually(lambda: not programs(workspace), what="the server ends with the job's process")
    assert_one_truth(clerk.pods.dsn)
