"""Limits on real pods: which one fires, its receipt, and how the job continues."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.pods import Pod, Pods, Ran, end_of_pod, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_row,
    move_clock,
    postpone_retries,
    steps,
    submit,
    until_job,
    until_status,
)
from tests.support.scripted_agent import NAME, ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import MODEL, program

LATE_S = 10.0
"""What a loaded machine may take from a limit's end to the end in the record."""

DRAIN_S, CLOSE_S = 1.0, 30.0


def apply(agent: ScriptedAgent, *tools: str, **limits: object) -> None:
    """Apply the agent with these tools and limits."""
    agent.pods.environment |= agent.model.environment
    commands = {"interrupted": "rerun"} if "run_command" in tools else {}
    document: dict[str, object] = {"name": NAME, "model": MODEL, "system": "You test."}
    document |= {"tools": tools}
    document |= {"commands": commands} if commands else {}
    file = agent.folder / "agent.yaml"
    file.write_text(json.dumps({**document, "limits": limits}))
    ran = run_cli("agents", "apply", str(file), dsn=agent.pods.dsn, folder=agent.folder)
    assert ran.exit_code == 0, ran.stderr


def start_warm(pods: Pods, **settings: object) -> Pod:
    """Start a pod and let it ask a model once: its first call has to load the SDK."""
    pod = pods.start(**settings)
    prompt = program({"text": "warm"}, mark=f"{pod.name} ")
    asked = submit(pods.dsn, "ask", {"model": "another", "prompt": prompt})
    until_status(pods.dsn, asked, "COMPLETED")
    return pod


def receipts(pods: Pods, job_id: UUID) -> list[dict[str, Any]]:
    """The receipts of a job, as machines read them."""
    ran = run_cli("jobs", "timeouts", str(job_id), "--jsonl", dsn=pods.dsn, folder=pods.folder)
    assert ran.exit_code == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def failures(pods: Pods, job_id: UUID) -> list[tuple[str, str, str, float]]:
    """(code, class, scope, limit) of each recorded failure of a job."""
    query = "SELECT subtype, data FROM cortex.fact WHERE job_id = $1 AND type = 'error' ORDER BY id"
    rows = [(row["subtype"], json.loads(row["data"])) for row in sql(pods.dsn, query, job_id)]
    return [(code, data["class"], data["scope"], data["limit_s"]) for code, data in rows]


def output(receipt: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(receipt[name] for name in names)


def ran_s(row: dict[str, Any]) -> float:
    """Seconds from a job's first start to its end, without those between its attempts."""
    return float((row["finished_at"] - row["started_at"]).total_seconds() - row["waited_s"])


# --- the job's own limit


@pytest.mark.smoke("Each job reaches exactly one terminal state")
def test_a_job_out_of_time_fails_and_leaves_a_letter_and_a_receipt(pods: Pods, gate: Path) -> None:
    pods.start()
    job_id = submit(pods.dsn, "slow", {"gate": str(gate)})
    row = until_status(pods.dsn, job_id, "FAILED")
    assert row["error_message"] == "Job timed out after 2 seconds"
    assert (row["error_code"], row["error_class"]) == ("job_timed_out", "TRANSIENT_APP")
    assert 2.0 <= ran_s(row) < 2.0 + LATE_S
    (letter,) = sql(pods.dsn, "SELECT state FROM cortex.dead_letter WHERE job_id = $1", job_id)
    assert letter["state"] == "OPEN"
    assert failures(pods, job_id) == [("job_timed_out", "TRANSIENT_APP", "job", 2)]
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "limit_s", "attempt", "final_action") == ("job", 2, 1, "failed")
    assert output(receipt, "phase", "step_key", "partial_text") == ("handler", None, None)
    assert output(receipt, "checkpoint_seq", "checkpoint_key", "retry_count") == (1, "begun", 0)
    assert 2.0 <= receipt["elapsed_s"] < 2.0 + LATE_S
    assert [step["key"] for step in receipt["transcript"]] == ["begun"]
    assert output(receipt, "is_clean", "recommended_choice") == (True, "retry_step")
    assert_one_truth(pods.dsn)


def test_job_deadline_survives_its_pod_and_counts_only_running_time(pods: Pods, gate: Path) -> None:
    limit_s = 12
    first = pods.start()
    job_id = submit(pods.dsn, "gated", {"gate": str(gate)}, timeout_s=limit_s)
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    until_job(
        pods.dsn,
        job_id,
        lambda r: (r["now"] - r["started_at"]).total_seconds() > limit_s / 2,
        "a while old",
    )
    first.kill()
    killed_at = job_row(pods.dsn, job_id)["now"]
    second = pods.start()
    row = until_job(pods.dsn, job_id, lambda row: row["attempt"] == 2, "taken over")
    resumed_at = row["now"]
    row = until_status(pods.dsn, job_id, "FAILED")
    assert (row["error_code"], row["attempt"], row["pod"]) == ("job_timed_out", 2, second.name)
    absent_s = (resumed_at - killed_at).total_seconds()
    assert absent_s > 0.3, "so long no pod had it"
    assert row["waited_s"] > absent_s - 0.3
    assert limit_s <= ran_s(row) < 1.5 * limit_s
    assert (row["finished_at"] - resumed_at).total_seconds() < limit_s
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "attempt", "checkpoint_key") == ("job", 2, "begun")
    assert limit_s <= receipt["elapsed_s"] < 1.5 * limit_s


@pytest.mark.parametrize("how, pause_s", [("infra", 5), ("asked", 300)])
def test_the_time_between_attempts_does_not_count(pods: Pods, how: str, pause_s: int) -> None:
    pods.start()
    job_id = submit(pods.dsn, "flaky", {"how": how}, timeout_s=3)
    until_job(pods.dsn, job_id, lambda row: row["suspended_at"] is not None, "between attempts")
    move_clock(pods.dsn, pause_s)
    row = until_status(pods.dsn, job_id, "COMPLETED", "FAILED")
    assert (row["status"], row["attempt"]) == ("COMPLETED", 2)
    assert row["waited_s"] > pause_s - 1
    assert receipts(pods, job_id) == []


def test_a_time_without_any_pod_does_not_count(pods: Pods, gate: Path) -> None:
    first = pods.start()
    job_id = submit(pods.dsn, "gated", {"gate": str(gate)}, timeout_s=30)
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    first.kill()
    move_clock(pods.dsn, 100)
    gate.touch()
    pods.start()
    row = until_status(pods.dsn, job_id, "COMPLETED", "FAILED")
    assert (row["status"], row["result"]) == ("COMPLETED", 2)


# --- limits inside the job


def test_a_steps_limit_ends_the_attempt_and_not_the_job(pods: Pods, gate: Path) -> None:
    postpone_retries(pods.dsn)
    pods.start()
    job_id = submit(pods.dsn, "slow_step", {"gate": str(gate), "limit_s": 1.0})
    row = until_status(pods.dsn, job_id, "RETRY")
    assert (row["retry_count"], row["waiting_on"]) == (1, None)
    assert failures(pods, job_id) == [("timed_out", "TRANSIENT_APP", "step", 1)]
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "limit_s", "final_action") == ("step", 1, "retry")
    assert output(receipt, "phase", "step_key", "checkpoint_key") == ("step", "waits", "begun")
    assert 1.0 <= receipt["step_elapsed_s"] < 1.0 + LATE_S


STALL: dict[str, Any] = {
    "text": "this much was said, and then nothing",
    "fault": "stall",
    "fault_after": 2,
}
SLOW: dict[str, Any] = {"text": "so slow", "chunks": 7, "delay_s": 0.3}


@pytest.mark.parametrize(
    "turn, scope, code", [(STALL, "idle", "idle_timeout"), (SLOW, "call", "total_timeout")]
)
def test_a_model_that_takes_too_long_is_an_application_error(
    pods: Pods, agent: ScriptedAgent, turn: dict[str, Any], scope: str, code: str
) -> None:
    """The step has no time for another call: the application layer tries again."""
    postpone_retries(pods.dsn)
    pods.environment["POD_APP_CALL_PAUSE_S"] = "300"
    apply(agent, step_timeout_seconds=60, **{f"{scope}_timeout_seconds": 0.5})
    start_warm(pods)
    job_id = agent.submit(turn)
    row = until_status(pods.dsn, job_id, "RETRY")
    assert (row["retry_count"], row["waiting_on"]) == (1, None)
    assert failures(pods, job_id) == [(code, "TRANSIENT_APP", scope, 0.5)]
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "limit_s", "final_action") == (scope, 0.5, "retry")
    assert output(receipt, "phase", "step_key", "checkpoint_seq") == ("model", "1 model", 0)
    assert 0.5 <= receipt["elapsed_s"] < 0.5 + LATE_S
    assert receipt["partial_text"]
    assert turn["text"].startswith(receipt["partial_text"])


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port on loopback that never accepts connections."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield listening.getsockname()[1]


def test_a_model_that_cannot_be_reached_is_an_infrastructure_error(
    pods: Pods, agent: ScriptedAgent, deaf_port: int
) -> None:
    pods.environment["POD_APP_CALL_PAUSE_S"] = "300"
    apply(agent, step_timeout_seconds=60, connect_timeout_seconds=0.5)
    pods.environment["ANTHROPIC_BASE_URL"] = f"https://127.0.0.1:{deaf_port}"
    pods.start()
    warm = agent.submit({"text": "never"})  # the first call of a pod has to load the SDK
    until_job(pods.dsn, warm, lambda row: row["suspended_at"] is not None, "between attempts")
    job_id = agent.submit({"text": "never"})
    row = until_job(pods.dsn, job_id, lambda r: r["task_state"] == "LATER", "to be tried again")
    assert (row["status"], row["retry_count"]) == ("RUNNING", 0)
    assert failures(pods, job_id) == [("connect_timeout", "TRANSIENT_INFRA", "connect", 0.5)]
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "limit_s", "final_action") == ("connect", 0.5, "released")
    assert output(receipt, "phase", "step_key", "partial_text") == ("model", "1 model", None)
    assert 0.5 <= receipt["elapsed_s"] < 0.5 + LATE_S


def test_a_call_that_is_made_again_in_its_step_leaves_a_receipt(
    pods: Pods, agent: ScriptedAgent
) -> None:
    apply(agent, idle_timeout_seconds=0.5)
    start_warm(pods)
    job_id = agent.submit({**STALL, "times": 1})
    row = until_status(pods.dsn, job_id, "COMPLETED")
    assert (row["attempt"], row["result"]["text"]) == (1, STALL["text"])
    assert failures(pods, job_id) == [("idle_timeout", "TRANSIENT_APP", "idle", 0.5)]
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "final_action", "nth") == ("idle", "retried_call", 1)
    assert STALL["text"].startswith(receipt["partial_text"])
    assert output(receipt, "is_clean", "transcript") == (True, None)


def test_a_time_out_that_opens_the_breaker_ends_the_attempt(
    pods: Pods, agent: ScriptedAgent
) -> None:
    apply(agent, idle_timeout_seconds=0.3)
    start_warm(pods)
    job_id = agent.submit(STALL)
    row = until_status(pods.dsn, job_id, "RETRY")
    assert (row["waiting_on"], row["retry_count"]) == (f"llm:{MODEL}", 0)
    found = [output(each, "nth", "final_action", "step_key") for each in receipts(pods, job_id)]
    assert found == [
        (1, "retried_call", "1 model"),
        (2, "retried_call", "1 model"),
        (3, "retry", "1 model"),
    ]


def test_tool_timeout_goes_to_the_model(pods: Pods, agent: ScriptedAgent, gate: Path) -> None:
    apply(agent, "wait_in_thread", tool_timeouts={"wait_in_thread": 0.5})
    start_warm(pods)
    asked = {"name": "wait_in_thread", "input": {"gate": str(gate)}}
    job_id = agent.submit({"tools": [asked]}, {"text": "then not"})
    row = until_status(pods.dsn, job_id, "COMPLETED")
    gate.touch()
    assert row["result"]["text"] == "then not"
    assert failures(pods, job_id) == [("timed_out", "TRANSIENT_APP", "call", 0.5)]
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "limit_s", "final_action") == ("call", 0.5, "told_model")
    assert output(receipt, "phase", "step_key", "checkpoint_key") == (
        "tool",
        "1 wait_in_thread",
        "1 model",
    )


# --- the outer limit holds


def test_step_limit_is_capped_by_the_remaining_time_of_the_job(pods: Pods, gate: Path) -> None:
    pods.start()
    payload = {"gate": str(gate), "limit_s": 600.0}
    job_id = submit(pods.dsn, "slow_step", payload, timeout_s=2)
    row = until_status(pods.dsn, job_id, "FAILED")
    assert (row["error_code"], row["attempt"]) == ("job_timed_out", 1)
    assert 2.0 <= ran_s(row) < 2.0 + LATE_S
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "limit_s", "phase", "step_key") == ("job", 2, "step", "waits")


@pytest.mark.parametrize("phase", ["model", "tool"])
def test_call_limit_is_capped_by_the_remaining_time_of_its_step(
    pods: Pods, agent: ScriptedAgent, gate: Path, phase: str
) -> None:
    postpone_retries(pods.dsn)
    apply(
        agent,
        "wait_for",
        step_timeout_seconds=1,
        call_timeout_seconds=400,
        tool_timeouts={"wait_for": 500},
    )
    start_warm(pods)
    asked = {"tools": [{"name": "wait_for", "input": {"gate": str(gate)}}]}
    job_id = agent.submit(STALL if phase == "model" else asked)
    until_status(pods.dsn, job_id, "RETRY")
    assert failures(pods, job_id) == [("timed_out", "TRANSIENT_APP", "step", 1)]
    (receipt,) = receipts(pods, job_id)
    key = {"model": "1 model", "tool": "1 wait_for"}[phase]
    assert output(receipt, "scope", "limit_s", "final_action") == ("step", 1, "retry")
    assert output(receipt, "phase", "step_key") == (phase, key)
    assert 1.0 <= receipt["elapsed_s"] < 1.0 + LATE_S


# --- tools that do not hear


def deaf_tool(how: str, gate: Path) -> dict[str, Any]:
    if how == "run_command":
        script = f"trap '' TERM; while [ ! -e {gate} ]; do sleep 0.05; done"
        return {"name": how, "input": {"argv": ["sh", "-c", script]}}
    return {"name": how, "input": {"gate": str(gate)}}


@pytest.mark.parametrize(
    "how, held_s", [("wait_in_thread", 0), ("run_command", 2), ("shield_itself", 8)]
)
def test_a_tool_that_ignores_its_cancellation_does_not_hold_job_or_pod(
    pods: Pods, agent: ScriptedAgent, gate: Path, how: str, held_s: float
) -> None:
    apply(agent, how, timeout_seconds=2)
    pod = start_warm(pods, **end_of_pod(DRAIN_S, close_s=CLOSE_S))
    job_id = agent.submit({"tools": [deaf_tool(how, gate)]}, {"text": "never"})
    row = until_status(pods.dsn, job_id, "FAILED")
    assert row["error_message"] == "Job timed out after 2 seconds"
    assert 2.0 <= ran_s(row) < 2.0 + held_s + LATE_S
    (receipt,) = receipts(pods, job_id)
    assert output(receipt, "scope", "phase", "step_key") == ("job", "tool", f"1 {how}")
    until_status(pods.dsn, submit(pods.dsn, "noop"), "COMPLETED")
    pod.signal(signal.SIGTERM)
    assert pod.exit_code(within_s=CLOSE_S) == 0
    assert "exiting hard" not in pod.log
    left_behind = "1 tool that ignored its cancellation was left behind" in pod.log
    assert left_behind is (how == "shield_itself")
    assert_one_truth(pods.dsn)


# --- going on


def resume(pods: Pods, job_id: UUID, *arguments: str) -> Ran:
    return run_cli(
        "jobs",
        "resume",
        str(job_id),
        "--json",
        "--as",
        "ana",
        *arguments,
        dsn=pods.dsn,
        folder=pods.folder,
    )


def test_timed_out_job_without_leftovers_resumes_at_its_checkpoint(
    pods: Pods, agent: ScriptedAgent, gate: Path
) -> None:
    apply(agent, "wait_for", timeout_seconds=2)
    start_warm(pods)
    open_gate = gate.with_name("open")
    open_gate.touch()
    job_id = agent.submit(
        {"tools": [{"name": "wait_for", "input": {"gate": str(open_gate)}}]},
        {"tools": [{"name": "wait_for", "input": {"gate": str(gate)}}]},
        {"text": "done"},
    )
    until_status(pods.dsn, job_id, "FAILED")
    gate.touch()
    resumed = resume(pods, job_id).document
    assert resumed["choice"] == "retry_step"
    row = until_status(pods.dsn, UUID(resumed["resumed_as"]), "COMPLETED")
    assert (row["origin_id"], row["result"]["text"]) == (job_id, "done")
    assert [turn for turn, _ in agent.calls()] == [0, 1, 2], "no answer was asked for twice"
    of_the_old = [(seq, 0, kind, key) for seq, _, kind, key in steps(pods.dsn, job_id)]
    assert steps(pods.dsn, row["id"])[: len(of_the_old)] == of_the_old
    assert job_row(pods.dsn, job_id)["status"] == "FAILED"
    assert attempts(pods.dsn, job_id) == []


@pytest.fixture
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git work tree with one commit, outside of the pods' data."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "a.py").write_text("one\n")
    person = ("-c", "user.name=ana", "-c", "user.email=ana@example.org")
    for arguments in (("init", "-q"), ("add", "."), (*person, "commit", "-q", "-m", "begin")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


@pytest.fixture
def opening(checkout: Path) -> Path:
    """A gate that a confined program sees, and that is no work."""
    return checkout / ".git" / "opening"


@pytest.fixture
def half_done(pods: Pods, agent: ScriptedAgent, opening: Path, checkout: Path) -> UUID:
    """A job that timed out in a command that had written to the work tree, and waited then."""
    apply(agent, "run_command", timeout_seconds=4)
    start_warm(pods)
    # The kernel's clock of files lags by some ms: what is as old as the step's beginning stays.
    wait = f"until [ -e {opening} ]; do sleep 0.05; done"
    script = f"sleep 0.1; echo half >> a.py; echo new > new.py; {wait}"
    asked = {"name": "run_command", "input": {"argv": ["sh", "-c", script]}}
    prompt = program({"tools": [asked]}, {"text": "done"}, mark=f"{agent.mark}  ")
    payload = {"prompt": prompt, "folder": str(checkout)}
    job_id = submit(pods.dsn, "run_agent", payload, agent=NAME)
    until_status(pods.dsn, job_id, "FAILED")
    return job_id


def test_uncommitted_work_is_shown_and_demands_a_choice_and_may_be_kept(
    pods: Pods, half_done: UUID, checkout: Path, opening: Path
) -> None:
    (receipt,) = receipts(pods, half_done)
    (tree,) = receipt["work_trees"]
    assert output(tree, "root", "branch", "change_count", "problem") == (
        str(checkout),
        tree["branch"],
        2,
        None,
    )
    assert {(each["path"], each["state"]) for each in tree["changes"]} == {
        ("a.py", ".M"),
        ("new.py", "??"),
    }
    assert "+half" in tree["diff"]
    assert output(receipt, "is_clean", "recommended_choice") == (False, "retry_step")
    error = resume(pods, half_done).refused(exit_code=2)
    assert "recommended: retry_step" in error["message"]
    assert (checkout / "a.py").read_text() == "one\nhalf\n", "nothing was touched"
    opening.touch()
    resumed = resume(pods, half_done, "--choice", "retry_step").document
    until_status(pods.dsn, UUID(resumed["resumed_as"]), "COMPLETED")
    assert (checkout / "a.py").read_text() == "one\nhalf\nhalf\n"


def test_discarded_work_is_in_a_stash_and_the_step_runs_again(
    pods: Pods, agent: ScriptedAgent, half_done: UUID, checkout: Path, opening: Path
) -> None:
    opening.touch()
    resumed = resume(pods, half_done, "--choice", "discard_and_retry").document
    (stash,) = resumed["set_aside"]["stashes"]
    row = until_status(pods.dsn, UUID(resumed["resumed_as"]), "COMPLETED")
    assert row["result"]["text"] == "done"
    assert (checkout / "a.py").read_text() == "one\nhalf\n", "once, by the new job"
    assert [turn for turn, _ in agent.calls()] == [0, 1]
    shown = ["git", "show", f"{stash['commit']}:a.py"]
    kept = subprocess.run(shown, cwd=checkout, check=True, capture_output=True).stdout
    assert kept == b"one\nhalf\n"


def test_an_escalated_job_waits_for_an_operator(
    pods: Pods, half_done: UUID, checkout: Path
) -> None:
    escalated = resume(pods, half_done, "--choice", "escalate", "--reason", "who knows").document
    assert escalated["resumed_as"] is None
    query = "SELECT state, reason FROM cortex.dead_letter WHERE job_id = $1"
    (letter,) = sql(pods.dsn, query, half_done)
    assert tuple(letter.values()) == ("ESCALATED", "who knows")
    assert (checkout / "new.py").exists()
