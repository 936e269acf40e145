"""A killed pod: its jobs continue elsewhere within two seconds, and nothing is paid for twice."""

import os
import signal
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods, until_pods
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_row,
    steps,
    submit,
    submit_many,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.scripted_agent import ScriptedAgent

TAKEN_OVER_WITHIN_S = 20.0
"""Far below what silence takes to be noticed; `chaos` checks the two seconds that are promised."""


def until_taken_over(dsn: str, job_id: UUID, *, by: str) -> None:
    """Wait, no longer than is promised, until the second attempt runs on that pod."""
    row = until_job(
        dsn,
        job_id,
        lambda row: row["attempt"] == 2 and row["task_state"] == "LOCKED",
        "taken over",
        within_s=TAKEN_OVER_WITHIN_S,
    )
    assert row["pod"] == by


def test_a_kill_during_a_model_call_repeats_only_that_call(
    pods: Pods, agent: ScriptedAgent, gate: Path
) -> None:
    agent.apply("wait_for")
    first = pods.start()
    gate.touch()
    job_id = agent.submit(
        {"text": "one", "tools": [{"name": "wait_for", "input": {"gate": str(gate)}}]},
        {"text": "two, and never the end", "fault": "stall", "fault_after": 1, "times": 1},
    )
    second = pods.start()
    eventually(lambda: agent.is_streaming(turn=1), what="the second model call streams")
    assert job_row(pods.dsn, job_id)["pod"] == first.name
    first.kill()
    until_taken_over(pods.dsn, job_id, by=second.name)
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert agent.calls() == [(0, "answered"), (1, "disconnected"), (1, "answered")]
    assert steps(pods.dsn, job_id) == [
        (1, 1, "model", "1 model"),
        (2, 1, "tool", "1 wait_for"),
        (3, 2, "model", "2 model"),
    ]
    assert row["result"]["steps"] == 2
    assert attempts(pods.dsn, job_id) == [(1, "pod_died")]
    assert_one_truth(pods.dsn)


@pytest.mark.smoke("Each step is recorded once")
def test_a_kill_during_the_tools_does_not_ask_the_model_again(
    pods: Pods, agent: ScriptedAgent, gate: Path
) -> None:
    agent.apply("wait_for")
    first = pods.start()
    open_gate = gate.with_name("open")
    open_gate.touch()
    job_id = agent.submit(
        {
            "tools": [
                {"name": "wait_for", "input": {"gate": str(open_gate)}},
                {"name": "wait_for", "input": {"gate": str(gate)}},
            ]
        },
        {"text": "done"},
    )
    eventually(
        lambda: len(steps(pods.dsn, job_id)) == 2,
        what="the model and one of its tools are recorded",
    )
    second = pods.start()
    first.kill()
    until_taken_over(pods.dsn, job_id, by=second.name)
    gate.touch()
    until_status(pods.dsn, job_id, "COMPLETED")
    assert agent.calls() == [(0, "answered"), (1, "answered")]
    assert [(seq, attempt, kind) for seq, attempt, kind, _ in steps(pods.dsn, job_id)] == [
        (1, 1, "model"),
        (2, 1, "tool"),
        (3, 2, "tool"),
        (4, 2, "model"),
    ]
    assert_one_truth(pods.dsn)


@pytest.mark.smoke("A dead pod's jobs go on within two seconds")
def test_all_jobs_of_a_killed_pod_continue_and_lose_no_attempt(pods: Pods, gate: Path) -> None:
    first = pods.start()
    submit_many(pods.dsn, 50, "gated", {"gate": str(gate)})
    until_jobs(pods.dsn, "checkpoint->'seq' = '1'", count=50)
    second = pods.start()
    first.kill()
    again = "attempt = 2 AND status = 'RUNNING' AND pod_id IS NOT NULL AND pod_deaths = 1"
    until_jobs(pods.dsn, again, count=50, within_s=TAKEN_OVER_WITHIN_S)
    until_pods(pods.dsn, READY=1, DEAD=1)
    gate.touch()
    until_jobs(pods.dsn, "status = 'COMPLETED' AND result = '2'", count=50)
    assert second.is_alive
    assert_one_truth(pods.dsn)


@pytest.mark.smoke("A dead pod's jobs go on within two seconds")
def test_a_killed_pod_without_heirs_is_taken_over_by_the_next_one(pods: Pods, gate: Path) -> None:
    first = pods.start()
    job_id = submit(pods.dsn, "gated", {"gate": str(gate)})
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    first.kill()
    gate.touch()
    pods.start()
    assert until_status(pods.dsn, job_id, "COMPLETED")["result"] == 2


@pytest.mark.smoke("No innocent job is condemned")
def test_a_job_that_kills_its_pods_ends_as_poison_and_the_others_live(pods: Pods) -> None:
    bad = submit(pods.dsn, "misbehave", {"how": "kill"})
    assert pods.launch().exit_code() == -signal.SIGKILL
    neighbour = submit(pods.dsn, "noop", priority=1)
    assert pods.launch().exit_code() == -signal.SIGKILL
    last = pods.start()
    row = until_status(pods.dsn, bad, "FAILED")
    assert row["error_code"] == "poison"
    assert "its own process died 3 times in a row: it was killed by" in row["error_message"]
    until_status(pods.dsn, neighbour, "COMPLETED")
    assert last.is_alive
    died = [*(["pod_died"] * 2), *(["process_died"] * 2)]
    assert [outcome for _, outcome in attempts(pods.dsn, bad)] == died
    assert_one_truth(pods.dsn)


def test_a_pod_that_dies_with_its_whole_session_group_leaves_no_lock(pods: Pods) -> None:
    """`kill -9` of the process group, as a container runtime does it."""
    first = pods.start()
    os.killpg(first.process.pid, signal.SIGKILL)
    first.process.wait()
    second = pods.start()
    until_pods(pods.dsn, READY=1, DEAD=1)
    assert second.is_alive
