"""While a pod drains: jobs it keeps, jobs that continue elsewhere, and its display."""

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.e2e.test_http import address_of, get
from tests.e2e.test_shutdown import assert_handed_back, begin
from tests.support.command_line import Cortex
from tests.support.events import follow
from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods, end_of_pod, run_cli, until_pods
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_count,
    job_row,
    steps,
    submit,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.scripted_agent import ScriptedAgent
from tests.support.servers.postgres import sql

DRAINED = 0
LONG = end_of_pod(30)
"""No test waits for this drain to be over."""
LOOK = {"name": "list_files", "input": {"pattern": "*"}}
HOLDER = """
    SELECT l.pid, p.lock_key AS key FROM cortex.pod p JOIN pg_locks l
    ON l.locktype = 'advisory' AND (l.classid::bigint << 32) + l.objid::bigint = p.lock_key
"""
WAITER = """
    SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
"""


def phases(pod: Pod) -> dict[str, str]:
    """The outcome of each phase, in the order in which the pod's log reports their ends."""
    lines = [json.loads(line) for line in pod.log.splitlines() if '"phase ended"' in line]
    assert all(line["took_s"] <= line["deadline_s"] + 0.5 for line in lines), lines
    return {line["phase"]: line["outcome"] for line in lines}


@pytest.mark.smoke
def test_draining_pod_keeps_a_job_to_its_next_checkpoint(pods: Pods, gate: Path) -> None:
    leaving = pods.start(**LONG)
    between = submit(pods.dsn, "steps", {"count": 3, "gate": str(gate)})
    inside = submit(pods.dsn, "slow_step", {"gate": str(gate), "limit_s": 60})
    at_once = submit(pods.dsn, "steps_at_once", {"gate": str(gate)})
    for job_id in (between, inside, at_once):
        until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    other = pods.start(poll_s=30)
    leaving.signal(signal.SIGTERM)
    until_pods(pods.dsn, DRAINING=1)
    gate.touch()
    assert leaving.exit_code() == DRAINED
    for job_id in (between, at_once):
        assert until_status(pods.dsn, job_id, "COMPLETED")["pod"] == other.name
        assert attempts(pods.dsn, job_id) == [(1, "handed_back")]
    assert [(seq, attempt) for seq, attempt, _, _ in steps(pods.dsn, between)] == [
        (1, 1),
        (2, 2),
        (3, 2),
    ]
    # What was under way is in the record; what would have been next was not begun here.
    done = {key: attempt for _, attempt, _, key in steps(pods.dsn, at_once)}
    assert done == {"begun": 1, "slow": 1, "nested": 1, "next": 2}
    row = job_row(pods.dsn, inside)
    assert (row["status"], row["attempt"]) == ("COMPLETED", 1), "after its last step it just ends"
    ended = phases(leaving)
    assert {*list(ended)[:2]} == {"intake", "jobs"}, "they go on beside each other"
    assert list(ended)[2:] == ["hand_back", "writers", "liveness", "pool"]
    assert {*ended.values()} == {"clean"}
    assert_one_truth(pods.dsn)


def test_model_call_finished_while_draining_is_kept_and_streamed(
    pods: Pods, agent: ScriptedAgent, tmp_path: Path
) -> None:
    agent.apply("list_files")
    made = Cortex(tmp_path, pods.dsn)("tokens", "create", "--name", "ana", "--role", "viewer")
    leaving = pods.start(**LONG)
    other = pods.start("--http", "127.0.0.1:0")
    other.signal(signal.SIGSTOP)  # so that the job begins on the one that leaves
    answer = {"text": "let me look", "chunks": 20, "delay_s": 0.1, "tools": [LOOK]}
    job_id = agent.submit(answer, {"text": "done"})
    eventually(lambda: agent.is_streaming(turn=0), what="the model call streams")
    other.signal(signal.SIGCONT)
    leaving.signal(signal.SIGTERM)
    until_pods(pods.dsn, DRAINING=1)
    path = f"/v1/jobs/{job_id}/events"
    with follow(address_of(other), path, token=made.out.strip()) as events:
        assert "step" not in {event.name for event in events.until("token")}, "while it is said"
    assert leaving.exit_code() == DRAINED
    assert until_status(pods.dsn, job_id, "COMPLETED")["pod"] == other.name
    found = [(attempt, kind) for _, attempt, kind, _ in steps(pods.dsn, job_id)]
    assert found == [(1, "model"), (2, "tool"), (2, "model")]
    assert agent.calls() == [(0, "answered"), (1, "answered")]
    row = job_row(pods.dsn, job_id)
    assert (row["attempt"], row["retry_count"]) == (2, 0)
    assert_one_truth(pods.dsn)


def test_drain_progress_is_shown_and_jobs_stay_cancellable(
    pods: Pods, gate: Path, tmp_path: Path
) -> None:
    leaving = pods.start("--http", "127.0.0.1:0", **LONG)
    job_id = begin(pods, gate)
    assert get(leaving, "/readyz")[1]["phase"] is None
    leaving.signal(signal.SIGTERM)

    def row() -> dict[str, Any]:
        ran = run_cli("pods", "ls", "--json", dsn=pods.dsn, folder=tmp_path)
        (found,) = ran.document["pods"]
        return found if found["phase"] == "jobs" else {}

    output = eventually(row, what="pods ls shows the phase")
    assert (output["state"], output["running"]) == ("DRAINING", 1)
    assert output["draining_at"] <= output["phase_at"] < output["abort_at"] < output["closed_at"]
    status, ready = get(leaving, "/readyz")
    assert (status, ready["phase"], ready["jobs_left"]) == (503, "jobs", 1)
    assert 0 < ready["abort_in_s"] <= 30
    assert ready["closed_in_s"] == pytest.approx(ready["abort_in_s"] + 4, abs=0.2)
    ran = run_cli(
        "jobs", "cancel", str(job_id), "--reason", "x", "--yes", dsn=pods.dsn, folder=tmp_path
    )
    assert ran.exit_code == 0, ran.stderr
    until_status(pods.dsn, job_id, "CANCELLED")
    assert leaving.exit_code() == DRAINED
    (left,) = sql(pods.dsn, "SELECT state, phase FROM cortex.pod")
    assert (left["state"], left["phase"]) == ("STOPPED", None)


TURNS = 3
PODS = 3
JOBS_AT_FIRST = 9
JOBS_EACH_TIME = 3


def test_rolling_restart_under_load_loses_and_repeats_nothing(
    pods: Pods, agent: ScriptedAgent
) -> None:
    """Pods, one after the other: nothing is lost, doubled or paid for twice."""
    agent.apply("list_files")
    turns = [{"first_delay_s": 0.3, "tools": [LOOK]}] * (TURNS - 1) + [{"text": "done"}]
    asked: dict[str, UUID] = {}

    def load(count: int) -> None:
        for _ in range(count):
            label = f"job {len(asked)};"
            asked[label] = agent.submit(*turns, label=label)
            submit(pods.dsn, "noop")

    load(JOBS_AT_FIRST)
    fleet = [pods.start(slots=6, **LONG) for _ in range(PODS)]
    for place in range(PODS):
        load(JOBS_EACH_TIME)
        leaving = fleet[place]
        leaving.signal(signal.SIGTERM)
        assert leaving.exit_code() == DRAINED
        fleet[place] = pods.start(slots=6, **LONG)
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=2 * len(asked))
    for label, job_id in asked.items():
        assert agent.calls(label) == [(turn, "answered") for turn in range(TURNS)], job_id
    ends = sql(pods.dsn, "SELECT outcome, count(*) AS n FROM cortex.job_attempt GROUP BY outcome")
    assert [row["outcome"] for row in ends] == ["handed_back"], ends
    assert job_count(pods.dsn, "retry_count > 0 OR pod_deaths > 0") == 0
    assert_one_truth(pods.dsn)


def test_job_cut_at_the_abort_restarts_elsewhere_within_a_second(pods: Pods, gate: Path) -> None:
    leaving = pods.start(**end_of_pod(0.3))
    job_id = begin(pods, gate)
    other = pods.start(poll_s=30)
    leaving.signal(signal.SIGTERM)
    assert leaving.exit_code() == DRAINED
    assert_handed_back(pods.dsn, job_id, to=other)
    assert phases(leaving)["jobs"] == "aborted"


@contextmanager
def lock_of_another(dsn: str) -> Iterator[None]:
    """The lock of the only pod is another session's: the pod cannot be sure of its jobs."""

    async def take() -> "asyncpg.Connection[asyncpg.Record]":
        connection = await asyncpg.connect(dsn)
        (holder,) = sql(dsn, HOLDER)
        async with asyncio.TaskGroup() as group:
            group.create_task(connection.execute("SELECT pg_advisory_lock($1)", holder["key"]))
            while not await asyncio.to_thread(sql, dsn, WAITER):
                pass
            sql(dsn, "SELECT pg_terminate_backend($1)", holder["pid"])  # who waits gets it first
        return connection

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        connection = runner.run(take())
        yield
        runner.run(connection.close())


def test_self_fenced_job_is_handed_back_when_its_pod_leaves(pods: Pods, gate: Path) -> None:
    leaving = pods.start(zombie_s=4, **LONG)
    job_id = begin(pods, gate)
    with lock_of_another(pods.dsn):
        eventually(lambda: "all jobs stopped" in leaving.log, what="it fences itself")
        assert leaving.stop() == DRAINED
    assert attempts(pods.dsn, job_id) == [(1, "handed_back")]
    query = "SELECT p.state, t.state::text AS task FROM cortex.pod p, cortex_worker.task t"
    (left,) = sql(pods.dsn, query)
    assert (left["state"], left["task"]) == ("STOPPED", "READY")
