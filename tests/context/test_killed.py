"""A pod that dies while an agent sums up: nothing is asked twice but the call under way."""

from pathlib import Path

from tests.support.eventually import eventually
from tests.support.pods import Pods
from tests.support.records.rows import assert_one_truth, steps, until_status
from tests.support.scripted_agent import ScriptedAgent

TERMS = """
max_tokens: 1000
max_context_tokens: 8000
compaction: {at: 0.8, keep_turns: 1}
"""
LONG = "thought " * 250
STALL = {"text": "Four turns are done.", "fault": "stall", "fault_after": 1, "times": 1}


def test_a_kill_during_a_summary_repeats_only_the_summary(
    pods: Pods, agent: ScriptedAgent, gate: Path
) -> None:
    agent.apply("wait_for", more=TERMS)
    first = pods.start()
    gate.touch()
    waits = [{"name": "wait_for", "input": {"gate": str(gate)}}]
    turns = [{"text": f"{number} {LONG}", "tools": waits} for number in range(6)]
    job_id = agent.submit(*turns, {"text": "done"}, summary=STALL)

    def is_summing_up() -> bool:
        return any("make room" in name for *_, name in steps(pods.dsn, job_id))

    eventually(is_summing_up, what="the agent makes room")
    eventually(
        lambda: any(outcome == "open" for _, outcome in agent.calls()), what="the summary stalls"
    )
    pods.start()
    first.kill()
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"]["text"] == "done"
    names = [name for *_, name in steps(pods.dsn, job_id)]
    assert len(names) == len(set(names))
    summaries = sum(name.endswith("compact") for name in names)
    answers = sum(name.endswith("model") for name in names)
    assert summaries >= 1
    assert answers == 7
    assert "4 loop" in names  # the same call four times
    outcomes = [outcome for _, outcome in agent.calls()]
    assert outcomes.count("disconnected") == 1
    assert outcomes.count("answered") == answers + summaries
    assert_one_truth(pods.dsn)
