"""kill -9 of a pod whose agent runs a command: it is not silently run again, unless it may be."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import assert_one_truth, job_row, until_job, until_status
from tests.support.scripted_agent import NAME, ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import MODEL

SCRIPT = "echo ran >> runs; until [ -e go ]; do sleep 0.02; done; echo done"
LAST = "the answer is no pod's"


def killed_while_it_ran(agent: ScriptedAgent, **commands: object) -> tuple[UUID, Path]:
    """A job whose pod died in the middle of its command; its workspace."""
    agent.pods.environment |= agent.model.environment
    document = {"name": NAME, "model": MODEL, "system": "You test.", "tools": ["run_command"]}
    file = agent.folder / "agent.yaml"
    file.write_text(json.dumps({**document, "commands": commands}))
    applied = run_cli("agents", "apply", str(file), dsn=agent.pods.dsn, folder=agent.folder)
    assert applied.exit_code == 0, applied.stderr
    doomed = agent.pods.start()
    asked = {"name": "run_command", "input": {"argv": ["sh", "-c", SCRIPT]}}
    job_id = agent.submit({"tools": [asked]}, {"text": LAST})
    workspace = agent.pods.folder / "workspaces" / str(job_id)
    eventually((workspace / "runs").exists, what="the command runs")
    doomed.kill()
    return job_id, workspace


def runs(workspace: Path) -> int:
    return (workspace / "runs").read_text().count("ran")


def result_of_command(pods: Pods, job_id: UUID) -> dict[str, object]:
    """The command's result as the model received it."""
    query = "SELECT output FROM cortex.job_step WHERE job_id = $1 AND kind = 'tool'"
    (row,) = sql(pods.dsn, query, job_id)
    found: dict[str, object] = json.loads(row["output"])
    return found


def effects(pods: Pods, job_id: UUID) -> list[str]:
    rows = sql(pods.dsn, "SELECT status FROM cortex.effect WHERE job_id = $1", job_id)
    return [row["status"] for row in rows]


@pytest.mark.parametrize("terms", [{"interrupted": "tell"}, {}], ids=["tell", "default"])
def test_model_learns_that_an_interrupted_command_may_have_run(
    pods: Pods, agent: ScriptedAgent, terms: dict[str, object]
) -> None:
    job_id, workspace = killed_while_it_ran(agent, **terms)
    (workspace / "go").touch()  # were it run again, it would end
    pods.start()
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"]["text"] == LAST
    assert runs(workspace) == 1
    assert "interrupted" in str(result_of_command(pods, job_id))
    assert "may have run" in str(result_of_command(pods, job_id))
    assert_one_truth(pods.dsn)


@pytest.mark.parametrize(
    "terms", [{"interrupted": "rerun"}, {"read_only": ["sh -c"]}], ids=["rerun", "read_only"]
)
def test_repeatable_command_runs_again_after_a_kill(
    pods: Pods, agent: ScriptedAgent, terms: dict[str, object]
) -> None:
    job_id, workspace = killed_while_it_ran(agent, **terms)
    (workspace / "go").touch()
    pods.start()
    until_status(pods.dsn, job_id, "COMPLETED")
    assert runs(workspace) == 2
    assert "done" in str(result_of_command(pods, job_id))
    assert effects(pods, job_id) == []
    assert_one_truth(pods.dsn)


@pytest.mark.smoke("An effect is applied once, or a person decides")
def test_interrupted_command_can_be_left_to_a_person(pods: Pods, agent: ScriptedAgent) -> None:
    job_id, workspace = killed_while_it_ran(agent, interrupted="ask")
    (workspace / "go").touch()
    pods.start()
    eventually(lambda: effects(pods, job_id) == ["UNKNOWN"], what="nobody knows what it did")
    until_job(pods.dsn, job_id, lambda row: row["suspended_at"] is not None, "waits")
    assert runs(workspace) == 1
    assert job_row(pods.dsn, job_id)["finished_at"] is None
    assert_one_truth(pods.dsn)
