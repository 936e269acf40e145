"""A whole job of an agent in a process beside the pod, and kill -9 of the one that forks these."""

import os
import signal
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods
from tests.support.records.rows import assert_one_truth, attempts, steps, until_status
from tests.support.scripted_agent import ScriptedAgent
from tests.support.servers.postgres import sql

LAST = "written from beside the pod"
SCRIPT = "echo ran >> runs; until [ -e go ]; do sleep 0.02; done; echo done"


def suspect(agent: ScriptedAgent) -> tuple[UUID, Path]:
    """A job that two pods' deaths have made a suspect before it is claimed; its workspace."""
    agent.apply("run_command", "write_file")
    job_id = agent.submit(
        {"tools": [{"name": "run_command", "input": {"argv": ["sh", "-c", SCRIPT]}}]},
        {"tools": [{"name": "write_file", "input": {"path": "report.md", "content": LAST}}]},
        {"text": LAST},
    )
    sql(
        agent.pods.dsn,
        "UPDATE cortex_worker.task SET is_suspect = true WHERE job_id = $1",
        job_id,
    )
    return job_id, agent.pods.folder / "workspaces" / str(job_id)


def child(pid: int) -> int | None:
    """The only child of a process."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if len(found) == 1 else None


def until_it_has_a_runner(pod: Pod) -> tuple[int, int]:
    """The numbers of the process that forks and of the runner that it has forked."""

    def family() -> tuple[int, int] | None:
        fork_server = child(pod.process.pid)
        runner = None if fork_server is None else child(fork_server)
        return None if fork_server is None or runner is None else (fork_server, runner)

    return eventually(family, what="a job runs beside the pod") or (0, 0)


@pytest.mark.smoke
def test_an_agent_works_in_a_process_of_its_own(pods: Pods, agent: ScriptedAgent) -> None:
    job_id, workspace = suspect(agent)
    pod = pods.start()
    until_it_has_a_runner(pod)
    eventually((workspace / "runs").exists, what="the command runs")
    (workspace / "go").touch()
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"]["text"] == LAST
    assert (workspace / "report.md").read_text() == LAST
    keys = [kind for _, _, kind, _ in steps(pods.dsn, job_id)]
    assert keys == ["model", "tool", "model", "tool", "model"]
    assert_one_truth(pods.dsn)


def test_isolated_agent_continues_after_its_fork_server_is_killed(
    pods: Pods, agent: ScriptedAgent
) -> None:
    job_id, workspace = suspect(agent)
    pod = pods.start()
    eventually((workspace / "runs").exists, what="the command runs")
    fork_server, runner = until_it_has_a_runner(pod)
    os.kill(fork_server, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{runner}").exists(), what="its runner dies with it")
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"]["text"] == LAST
    assert (workspace / "runs").read_text() == "ran\n", "the model learned that it may have run"
    assert [outcome for _, outcome in attempts(pods.dsn, job_id)] == ["handed_back"]
    assert (row["process_deaths"], pod.is_alive) == (0, True)
    assert "fork server replaced" in pod.log
    assert_one_truth(pods.dsn)
