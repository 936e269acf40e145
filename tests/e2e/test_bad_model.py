"""A model server or a tool that misbehaves: one clear line, the right state, nothing lost."""

import json
from typing import Any
from uuid import UUID

import pytest

from tests.support.pods import Pods, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    job_row,
    steps,
    submit,
    until_status,
)
from tests.support.scripted_agent import ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import program

GARBAGE = {
    "malformed": "malformed_answer",
    "not_utf8": "malformed_answer",
    "html": "not_a_stream",
    "empty": "malformed_answer",
    "early_end": "ended_early",
    "cut": "connection_lost",
    "drop": "connection_lost",
    "error_event": "overloaded",
}


def ask(agent: ScriptedAgent, label: str, turn: dict[str, Any]) -> UUID:
    """Submit a job with one question to a model of that name: each has a breaker of its own."""
    prompt = program(turn, mark=f"{agent.mark} {label} ")
    return submit(agent.pods.dsn, "ask", {"model": label, "prompt": prompt})


def errors(pods: Pods, job_id: UUID) -> list[tuple[str, str]]:
    """(code, message) of each recorded failure of a job."""
    query = "SELECT subtype, data FROM cortex.fact WHERE job_id = $1 AND type = 'error' ORDER BY id"
    rows = sql(pods.dsn, query, job_id)
    return [(row["subtype"], json.loads(row["data"])["message"]) for row in rows]


@pytest.mark.smoke("A tool call runs only if it is whole")
def test_a_broken_answer_is_asked_for_again_and_never_taken_for_whole(
    pods: Pods, agent: ScriptedAgent
) -> None:
    agent.apply()
    pod = pods.start()
    once: dict[str, Any] = {"text": "all is well again", "fault_after": 1, "times": 1}
    ids = {kind: ask(agent, kind, {**once, "fault": kind}) for kind in GARBAGE}
    ids["busy"] = ask(agent, "busy", {"text": "all is well again", "status": 529, "times": 1})
    for kind, code in (*GARBAGE.items(), ("busy", "overloaded")):
        row = until_status(pods.dsn, ids[kind], "COMPLETED")
        assert (row["result"], row["attempt"]) == ("all is well again", 1), kind
        *before, (found, message) = errors(pods, ids[kind])
        # The call may have taken a kept connection that the fault of another job had cut.
        assert [code for code, _ in before] in ([], ["connection_lost"]), (kind, before)
        assert found.startswith(code), kind
        assert f"'{kind}' at 127.0.0.1" in message
        assert [step[3] for step in steps(pods.dsn, ids[kind])] == ["ask"]
    resolved = "SELECT e.job_id FROM cortex.fact e JOIN cortex.fact r ON r.resolves = e.id"
    assert {row["job_id"] for row in sql(pods.dsn, resolved)} == set(ids.values())
    costs = "SELECT job_id, count(*) AS n FROM cortex.fact WHERE type = 'cost' GROUP BY job_id"
    booked = {row["job_id"]: row["n"] for row in sql(pods.dsn, costs)}
    assert booked.keys() == set(ids.values())
    assert min(booked.values()) == 2, "the call that failed is booked, too"
    assert pod.is_alive
    assert_one_truth(pods.dsn)


def test_model_that_never_answers_well_makes_its_jobs_wait(
    pods: Pods, agent: ScriptedAgent
) -> None:
    agent.apply()
    pods.start()
    job_id = ask(agent, "lost", {"text": "one two", "fault": "cut"})
    paid_id = ask(agent, "paid", {"text": "one two", "fault": "early_end"})
    foreign_id = ask(agent, "foreign", {"fault": "html"})
    row = until_status(pods.dsn, job_id, "RETRY")
    assert (row["waiting_on"], row["retry_count"]) == ("llm:lost", 0)
    ((outcome, report),) = [
        tuple(each.values())
        for each in sql(
            pods.dsn, "SELECT outcome, error FROM cortex.job_attempt WHERE job_id = $1", job_id
        )
    ]
    assert outcome == "suspended"
    assert "connection_lost" in report
    assert len(agent.calls("lost")) == 3
    row = until_status(pods.dsn, paid_id, "RETRY")
    assert (row["waiting_on"], row["retry_count"], row["broken_answers"]) == ("llm:paid", 0, 1)
    assert len(agent.calls("paid")) == 3
    row = until_status(pods.dsn, foreign_id, "FAILED")
    assert (row["error_code"], row["attempt"]) == ("not_messages_api", 1)
    assert "'foreign' at 127.0.0.1" in row["error_message"]
    assert "does not speak the Messages API" in row["error_message"]
    assert len(agent.calls("foreign")) == 2
    until_status(pods.dsn, submit(pods.dsn, "noop"), "COMPLETED")
    assert_one_truth(pods.dsn)


def test_a_model_that_refuses_is_not_asked_again(pods: Pods, agent: ScriptedAgent) -> None:
    agent.apply()
    pods.start()
    refusals = {
        400: ("invalid_request_error", "invalid_request"),
        401: ("authentication_error", "authentication"),
        404: ("not_found_error", "not_found"),
    }
    ids = {
        status: agent.submit(
            {"status": status, "error_type": type_, "message": "no, because"}, label=str(status)
        )
        for status, (type_, _) in refusals.items()
    }
    for status, (type_, code) in refusals.items():
        row = until_status(pods.dsn, ids[status], "FAILED")
        assert (row["error_code"], row["attempt"]) == (code, 1)
        assert (row["error_class"], row["error_source"]) == ("PERMANENT", "llm:scripted")
        assert f"{status} {type_}: no, because" in row["error_message"]
        assert len(agent.calls(str(status))) == 1
    assert_one_truth(pods.dsn)


def test_failures_of_tools_go_to_the_model(pods: Pods, agent: ScriptedAgent) -> None:
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
    report = {each["key"]: each["error"] for each in outputs}
    assert report["1 break_down"] == "RuntimeError: out of paper\N{REPLACEMENT CHARACTER}"
    assert "tool 'not_json'" in report["1 not_json"]
    assert "gate" in report["1 wait_for"]
    assert report["1 wait_for#2"]
    assert "write_file" in report["1 write_file"]
    assert row["result"]["text"] == "I give up"
    assert_one_truth(pods.dsn)


@pytest.mark.smoke("A change of the code fails no job")
def test_an_agent_with_a_tool_that_the_pod_lacks_waits_for_one_that_has_it(
    pods: Pods, agent: ScriptedAgent
) -> None:
    agent.apply("from_another_app")
    pods.start()
    needy = agent.submit({"text": "hello"})
    agent.apply("break_down")
    until_status(pods.dsn, agent.submit({"text": "hello"}), "COMPLETED")
    row = job_row(pods.dsn, needy)
    assert (row["status"], row["attempt"]) == ("PENDING", 0)
    report = run_cli("why", str(needy), dsn=pods.dsn, folder=pods.folder).stdout
    assert "no ready pod has its tool from_another_app" in report
    assert_one_truth(pods.dsn)


def test_an_agent_that_never_ends_is_ended(pods: Pods, agent: ScriptedAgent) -> None:
    agent.apply("break_down", more="loops: {same_call: 0, no_news: 0}\n")
    pods.start()
    turn = {"tools": [{"name": "break_down", "input": {"why": "again"}}]}
    row = until_status(pods.dsn, agent.submit(*([turn] * 51)), "FAILED")
    assert "used all its 50 steps" in row["error_message"]
    assert len(agent.calls()) == 50
    assert_one_truth(pods.dsn)
