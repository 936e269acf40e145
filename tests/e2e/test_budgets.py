"""Budgets and costs on real pods: a spent one stops before the call, and no call goes unbooked."""

import json
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_count,
    steps,
    submit,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.scripted_agent import NAME, ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import MODEL, scripted_model

RUN = f"agent:{NAME}:usd:run"
DAY = "tenant:acme:tokens:day"
JOBS = 18
SLOTS = 3
"""Slots of each pod: fewer than the calls that fit into the budget at once."""
LIMIT = 60_000
LENGTH = 16_000
"""Characters of a prompt: half of the tokens that its call may take are really used."""


def cortex(pods: Pods, *arguments: str) -> Any:
    """Run a command that must go well; return its JSON."""
    ran = run_cli(*arguments, "--json", dsn=pods.dsn, folder=pods.folder)
    assert ran.exit_code == 0, ran.stderr
    return ran.document


def apply(agent: ScriptedAgent, budget: str) -> None:
    """Apply the agent with this budget."""
    agent.pods.environment |= agent.model.environment
    file = agent.folder / "agent.yaml"
    text = f"name: {NAME}\nmodel: {MODEL}\nsystem: You test.\ntools: [wait_for]\nbudget: {budget}"
    file.write_text(text)
    cortex(agent.pods, "agents", "apply", str(file))


def booked(pods: Pods) -> list[dict[str, Any]]:
    """Each booked call in order: the columns of its fact, with its data."""
    query = "SELECT *, (at AT TIME ZONE 'UTC')::date::text AS day FROM cortex.fact"
    rows = sql(pods.dsn, f"{query} WHERE type = 'cost' ORDER BY id")
    return [{**row, **json.loads(row["data"])} for row in rows]


def outcomes(pods: Pods) -> list[str]:
    return [call["outcome"] for call in booked(pods)]


def tokens(call: Mapping[str, Any]) -> int:
    return sum(call["usage"].values())


def at_once(calls: list[dict[str, Any]]) -> int:
    """How many calls were open at the same moment, at most."""
    ends = [(call["ended_s"], -1) for call in calls]
    begins = [(call["started_s"], 1) for call in calls]
    open_, most = 0, 0
    for _, change in sorted(ends + begins):
        open_ += change
        most = max(most, open_)
    return most


def named(call: Mapping[str, Any], group: str) -> str:
    """The name of the group that this call belongs to."""
    return NAME if group == "agent" else str(call["job_id" if group == "job" else group])


def assert_costs_are_the_facts(pods: Pods) -> None:
    """Check that `cortex costs`, by each group, adds up to the booked facts."""
    calls = booked(pods)
    for group in ("agent", "model", "tenant", "job", "day"):
        shown = cortex(pods, "costs", "--by", group)
        names = [named(call, group) for call in calls]
        assert {row["name"] for row in shown["costs"]} == set(names)
        for row in (*shown["costs"], shown["total"]):
            these = [c for c, name in zip(calls, names, strict=True) if row["name"] in {None, name}]
            assert row["calls"] == len(these)
            assert row["cost_usd"] == pytest.approx(float(sum(call["amount"] for call in these)))
            for kind in ("input_tokens", "output_tokens"):
                assert row[kind] == sum(call["usage"].get(kind, 0) for call in these)
            again = [call for call in these if call["outcome"] != "kept"]
            assert row["again_tokens"] == sum(map(tokens, again))


@pytest.mark.smoke
def test_spent_budget_stops_an_agent_until_a_person_raises_it(
    pods: Pods, agent: ScriptedAgent, gate: Path
) -> None:
    apply(agent, "{usd: 0.000001}")
    pods.start()
    gate.touch()
    use = {"tools": [{"name": "wait_for", "input": {"gate": str(gate)}}]}
    job_id = agent.submit(use, use, {"text": "done"})

    row = until_status(pods.dsn, job_id, "WAITING_FOR_APPROVAL")
    assert (row["waiting_on"], row["task_state"]) == (f"budget:{RUN}", None)
    assert agent.calls() == [(0, "answered")]
    assert [key for *_, key in steps(pods.dsn, job_id)] == ["1 model", "1 wait_for"]
    assert attempts(pods.dsn, job_id) == [(1, "suspended")]
    why = run_cli("why", str(job_id), dsn=pods.dsn, folder=pods.folder)
    assert RUN in why.stdout
    (spent,) = cortex(pods, "budgets", "ls")["budgets"]
    assert (spent["name"], spent["waiting_jobs"], spent["reserved"]) == (RUN, 1, 0)
    assert spent["spent"] == float(sum(call["amount"] for call in booked(pods)))

    def raise_to(usd: float) -> int:
        why = ("--reason", "it is worth it")
        done = cortex(pods, "budgets", "raise", RUN, "--to", f"{usd:.8f}", *why)
        return int(done["budgets"][0]["woken_jobs"])

    assert raise_to(spent["spent"]) == 0, "nothing is left yet"
    assert raise_to(spent["spent"] + 0.000001) == 1
    until_job(
        pods.dsn,
        job_id,
        lambda row: row["status"] == "WAITING_FOR_APPROVAL" and row["attempt"] == 2,
        "stopped before its third call",
    )
    assert raise_to(5) == 1
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert agent.calls() == [(0, "answered"), (1, "answered"), (2, "answered")]
    assert outcomes(pods) == ["kept"] * 3
    assert Decimal(row["result"]["cost_usd"]) == sum(call["amount"] for call in booked(pods))
    assert cortex(pods, "costs")["total"]["again_calls"] == 0
    assert (row["retry_count"], row["attempt"]) == (0, 3)
    assert_one_truth(pods.dsn)


def test_a_fleet_overspends_no_budget_by_more_than_one_call(pods: Pods) -> None:
    slowly = {"first_delay_s": 0.3}
    with scripted_model("echo", rules=[slowly]) as model:
        pods.environment |= model.environment
        why = ("--reason", "a test")
        limit = ("--tokens", str(LIMIT), "--per", "day")
        cortex(pods, "budgets", "set", "--tenant", "acme", *limit, *why)
        for _ in range(2):
            pods.start(slots=SLOTS)
        for number in range(JOBS):
            prompt = f"{number:04} " + "word " * (LENGTH // 5)
            submit(pods.dsn, "ask", {"model": "one", "prompt": prompt}, tenant="acme")
        other = submit(pods.dsn, "ask", {"model": "two", "prompt": "hello"}, tenant="zeta")

        waits = f"status = 'RETRY' AND waiting_on = 'budget:{DAY}' AND worker_job_id IS NULL"
        settled = f"tenant = 'acme' AND (status = 'COMPLETED' OR ({waits}))"
        # The last calls wait their turn for the room that is left, with pauses in between.
        until_jobs(pods.dsn, settled, count=JOBS)
        until_status(pods.dsn, other, "COMPLETED")
        calls = [call for call in booked(pods) if call["tenant"] == "acme"]
        assert set(outcomes(pods)) == {"kept"}
        (row,) = cortex(pods, "budgets", "ls")["budgets"]
        assert row["spent"] == sum(map(tokens, calls))
        assert row["reserved"] == 0
        assert LIMIT <= row["spent"] <= LIMIT + max(map(tokens, calls))
        assert row["waiting_jobs"] == job_count(pods.dsn, waits) == JOBS - len(calls) > 0
        assert len({call["pod_id"] for call in calls}) == 2, "both pods called"
        assert at_once(model.calls()) > 1, "what fits runs at the same time"

        cortex(pods, "budgets", "raise", DAY, "--to", "1000000", *why)
        until_jobs(pods.dsn, "status = 'COMPLETED'", count=JOBS + 1)
        asked = Counter(call["prompt"] for call in model.calls())
        assert len(asked) == JOBS + 1
        assert set(asked.values()) == {1}, "no call was made twice"
    assert job_count(pods.dsn, "retry_count > 0") == 0
    assert_one_truth(pods.dsn)


def test_call_lost_with_its_pod_is_booked_as_paid_again(pods: Pods, agent: ScriptedAgent) -> None:
    apply(agent, "{usd: 5, tokens: 1000000, per: day}")
    first = pods.start()
    job_id = agent.submit({"text": "never the end", "fault": "stall", "fault_after": 1, "times": 1})
    eventually(lambda: agent.is_streaming(turn=0), what="the call streams")
    assert booked(pods) == []
    first.kill()
    second = pods.start()
    until_status(pods.dsn, job_id, "COMPLETED")
    lost, kept = booked(pods)
    assert [call["outcome"] for call in (lost, kept)] == ["lost", "kept"]
    assert [call["estimated"] for call in (lost, kept)] == [True, False]
    assert [call["attempt"] for call in (lost, kept)] == [1, 2]
    assert lost["usage"]["input_tokens"] > 0
    assert lost["amount"] > 0
    for row in cortex(pods, "budgets", "ls")["budgets"]:
        amount = "amount" if row["name"].endswith("usd:day") else None
        spent = sum(float(call[amount]) if amount else tokens(call) for call in (lost, kept))
        assert row["spent"] == pytest.approx(spent)
        assert row["reserved"] == 0
    assert_costs_are_the_facts(pods)
    total = cortex(pods, "costs")["total"]
    assert (total["again_calls"], total["estimated_calls"]) == (1, 1)
    assert total["again_tokens"] == tokens(lost)
    assert second.is_alive
    assert_one_truth(pods.dsn)


def test_failed_and_cancelled_calls_are_booked_with_their_usage(
    pods: Pods, agent: ScriptedAgent
) -> None:
    agent.apply()
    pods.start()
    broken = {"text": "one two three", "fault": "cut", "fault_after": 1, "times": 1}
    repeated = agent.submit(broken, label="repeated")
    until_status(pods.dsn, repeated, "COMPLETED")
    failed, kept = booked(pods)
    assert (failed["outcome"], failed["code"]) == ("failed", "connection_lost")
    assert kept["outcome"] == "kept"
    assert failed["usage"]["input_tokens"] == kept["usage"]["input_tokens"] > 0

    hanging = {"text": "never the end", "fault": "stall", "fault_after": 1}
    job_id = agent.submit(hanging, label="cancelled")
    eventually(lambda: agent.is_streaming(turn=0), what="the call streams")
    cortex(pods, "jobs", "cancel", str(job_id), "--reason", "no need", "--yes")
    until_status(pods.dsn, job_id, "CANCELLED")
    cancelled = booked(pods)[-1]
    assert (cancelled["job_id"], cancelled["outcome"]) == (job_id, "cancelled")
    assert cancelled["usage"]["input_tokens"] > 0
    assert cancelled["amount"] > 0
    assert cancelled["estimated"] is False
    assert_costs_are_the_facts(pods)
    total = cortex(pods, "costs")["total"]
    assert total["again_tokens"] == tokens(failed) + tokens(cancelled)
    assert sql(pods.dsn, "SELECT FROM cortex.reservation") == []
