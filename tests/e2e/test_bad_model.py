"""A model server or a tool that misbehaves: one clear line, the right state, nothing lost."""

from typing import Any

from tests.support.pods import Pods
from tests.support.postgres import sql
from tests.support.rows import (
    assert_one_truth,
    attempts,
    move_clock,
    steps,
    submit,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.scripted_agent import ScriptedAgent

GARBAGE = {
    "malformed": "malformed_answer",
    "not_utf8": "malformed_answer",
    "html": "not_a_stream",
    "empty": "ended_early",
    "early_end": "ended_early",
    "cut": "connection_lost",
    "drop": "connection_",
    "error_event": "overloaded_error",
}


def test_a_broken_answer_is_asked_for_again_and_never_taken_for_whole(
    pods: Pods, agent: ScriptedAgent
) -> None:
    agent.apply()
    pod = pods.start()
    once: dict[str, Any] = {"text": "all is well", "fault_after": 1, "times": 1}
    ids = {kind: agent.submit({**once, "fault": kind}, label=kind) for kind in GARBAGE}
    busy = agent.submit({"text": "all is well", "status": 529, "times": 1}, label="busy")
    for kind, type_ in GARBAGE.items():
        until_job(pods.dsn, ids[kind], lambda row: row["task_state"] == "LATER", "to be retried")
        error = "SELECT error FROM cortex.job_attempt WHERE job_id = $1"
        (failed,) = sql(pods.dsn, error, ids[kind])
        assert type_ in failed["error"], kind
        assert "'scripted' at 127.0.0.1" in failed["error"]
        assert "\n" not in failed["error"]
        assert steps(pods.dsn, ids[kind]) == [], "half an answer is none"
    until_job(pods.dsn, busy, lambda row: row["task_state"] == "LATER", "to be retried")
    move_clock(pods.dsn, 10)
    for kind, job_id in (*ids.items(), ("busy", busy)):
        row = until_status(pods.dsn, job_id, "COMPLETED")
        assert row["result"]["text"] == "all is well"
        assert attempts(pods.dsn, job_id) == [(1, "failed")]
        assert [turn for turn, _ in agent.calls(kind)] == [0, 0]
    assert pod.is_alive
    assert_one_truth(pods.dsn)


def test_a_model_that_never_answers_well_fails_the_job_when_its_attempts_are_spent(
    pods: Pods, agent: ScriptedAgent
) -> None:
    agent.apply()
    pods.start()
    job_id = agent.submit({"fault": "html"})
    for number, later_s in ((1, 5), (2, 20)):
        failed = f"heartbeat_at IS NULL AND attempt = {number} AND status = 'RUNNING'"
        until_jobs(pods.dsn, failed, count=1)
        move_clock(pods.dsn, later_s)
    row = until_status(pods.dsn, job_id, "FAILED")
    assert row["error_code"] == "model_unavailable"
    assert "answered with text/html, not with an event stream" in row["error_message"]
    assert len(agent.calls()) == 3
    until_status(pods.dsn, submit(pods.dsn, "noop"), "COMPLETED")
    assert_one_truth(pods.dsn)


def test_a_model_that_refuses_is_not_asked_again(pods: Pods, agent: ScriptedAgent) -> None:
    agent.apply()
    pods.start()
    refusals = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
    ids = {
        status: agent.submit(
            {"status": status, "error_type": type_, "message": "no, because"}, label=str(status)
        )
        for status, type_ in refusals.items()
    }
    for status, type_ in refusals.items():
        row = until_status(pods.dsn, ids[status], "FAILED")
        assert (row["error_code"], row["attempt"]) == ("model_rejected", 1)
        assert f"{status} {type_}: no, because" in row["error_message"]
        assert len(agent.calls(str(status))) == 1
    assert_one_truth(pods.dsn)


def test_tools_that_fail_are_told_to_the_model(pods: Pods, agent: ScriptedAgent) -> None:
    agent.apply("break_down", "not_json", "wait_for")
    pods.start()
    asked = [
        {"name": "break_down", "input": {"why": "out of paper\x00"}},
        {"name": "not_json", "input": {}},
        {"name": "wait_for", "input": {"gate": 3}},
        {"name": "wait_for", "raw_input": "{not json"},
        {"name": "write_file", "input": {}},
    ]
    row = until_status(
        pods.dsn, agent.submit({"tools": asked}, {"text": "I give up"}), "COMPLETED", "FAILED"
    )
    assert row["status"] == "COMPLETED", row["error_message"]
    outputs = sql(pods.dsn, "SELECT key, output->>'tool_error' AS error FROM cortex.job_step")
    told = {each["key"]: each["error"] for each in outputs}
    assert told["1 break_down"] == "RuntimeError: out of paper\N{REPLACEMENT CHARACTER}"
    assert "tool 'not_json'" in told["1 not_json"]
    assert "gate" in told["1 wait_for"]
    assert told["1 wait_for#2"]
    assert "write_file" in told["1 write_file"]
    assert row["result"]["text"] == "I give up"
    assert_one_truth(pods.dsn)


def test_an_agent_with_a_tool_that_the_pod_lacks_fails_in_one_line(
    pods: Pods, agent: ScriptedAgent
) -> None:
    agent.apply("from_another_app")
    pods.start()
    row = until_status(pods.dsn, agent.submit({"text": "hello"}), "FAILED")
    assert (row["error_code"], row["attempt"]) == ("usage", 1)
    assert row["error_message"] == "this pod has no tool 'from_another_app'"
    assert agent.calls() == []


def test_an_agent_that_never_ends_is_ended(pods: Pods, agent: ScriptedAgent) -> None:
    agent.apply("break_down")
    pods.start()
    turn = {"tools": [{"name": "break_down", "input": {"why": "again"}}]}
    row = until_status(pods.dsn, agent.submit(*([turn] * 51)), "FAILED", within_s=30)
    assert "used all its 50 steps" in row["error_message"]
    assert len(agent.calls()) == 50
    assert_one_truth(pods.dsn)
