"""An agent whose calls wait in batches, on pods that are killed: paid once, holding nothing."""

import json

import pytest

from tests.batches.conftest import hurry
from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import assert_one_truth, job_row, steps, submit
from tests.support.scripted_agent import NAME, ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import program


@pytest.mark.parametrize("point", ["before_batch_sent:1", "after_batch_results:2"])
def test_killed_pods_leave_an_agent_that_pays_each_call_once(
    pods: Pods, agent: ScriptedAgent, point: str
) -> None:
    agent.apply("wait_for", more="batch: true\n")
    prompt = program(
        {"tools": [{"name": "wait_for", "input": {"seconds": 0}}]},
        {"text": "done"},
        mark=f"{agent.mark}  ",
    )
    job_id = submit(pods.dsn, "run_agent", {"prompt": prompt}, agent=NAME)
    first = pods.start(crash_at=point)
    eventually(
        lambda: job_row(pods.dsn, job_id)["waiting_on"] == "batch", what="the job waits for a batch"
    )
    shown = run_cli("why", str(job_id), "--json", dsn=pods.dsn, folder=pods.folder).document
    assert shown["cause"] == "batch"
    listed = run_cli("jobs", "ls", "--status", "batch", dsn=pods.dsn, folder=pods.folder)
    assert "waits in a batch" in listed.stdout

    def is_dead() -> bool:
        hurry(pods.dsn)
        return not first.is_alive

    eventually(is_dead, what="the first pod dies")
    pods.start()

    def is_over() -> bool:
        hurry(pods.dsn)
        return bool(job_row(pods.dsn, job_id)["status"] == "COMPLETED")

    eventually(is_over, what="the job completes")
    assert agent.calls() == [(0, "answered"), (1, "answered")]
    assert [key for *_, key in steps(pods.dsn, job_id)] == ["1 model", "1 wait_for", "2 model"]
    costs = sql(pods.dsn, "SELECT data FROM cortex.fact WHERE type = 'cost' ORDER BY id")
    found = [json.loads(row["data"]) for row in costs]
    assert [(each["outcome"], each["usage"]["service_tier"]) for each in found] == [
        ("kept", "batch"),
        ("kept", "batch"),
    ]
    assert_one_truth(pods.dsn)
