"""A job keeps what it began with: agent, prices and policy, whatever is applied in between."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.support.pods import Pod, Pods, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_row,
    move_clock,
    submit,
    until_job,
    until_status,
)
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import scripted_model

PATIENT_S = "3600"
HASTY_S = "0.01"


def apply(pods: Pods, *, model: str, system: str) -> None:
    file = pods.folder / "agent.yaml"
    file.write_text(f"name: tester\nmodel: {model}\nsystem: {system}\n")
    ran = run_cli("agents", "apply", str(file), dsn=pods.dsn, folder=pods.folder)
    assert ran.exit_code == 0, ran.stderr


def start(pods: Pods, *, backoff_s: str, **usd: int) -> Pod:
    """Start a release of the application, with prices of input and output by model."""
    file = pods.folder / f"prices-{len(pods.all)}.toml"
    file.write_text(
        "\n".join(f"[{model}]\ninput = {price}\noutput = {price}" for model, price in usd.items())
    )
    pods.environment |= {"POD_APP_BACKOFF_S": backoff_s}
    return pods.start(prices=file)


def ask(pods: Pods, **payload: Any) -> UUID:
    return submit(pods.dsn, "ask_agent", {"prompt": "hello", **payload}, agent="tester")


def usd_per_million(pods: Pods, job_id: UUID) -> list[tuple[str, int, object]]:
    """(model, attempt, price) of each booked call of a job, in order."""
    query = """
        SELECT data->>'model' AS model, attempt, amount, data->>'usage' AS usage
        FROM cortex.fact WHERE job_id = $1 AND type = 'cost' ORDER BY id
    """
    return [
        (
            row["model"],
            row["attempt"],
            row["amount"] * 1_000_000 / sum(json.loads(row["usage"]).values()),
        )
        for row in sql(pods.dsn, query, job_id)
    ]


def test_a_job_keeps_agent_prices_and_policy_of_its_beginning(pods: Pods, tmp_path: Path) -> None:
    with scripted_model("echo") as model:
        pods.environment |= model.environment
        apply(pods, model="one", system="You are the first.")
        first = start(pods, backoff_s=PATIENT_S, one=1000, two=1000)
        job_id = ask(pods, fails=2)
        began = until_status(pods.dsn, job_id, "RETRY")
        assert (began["next_retry_at"] - began["updated_at"]).total_seconds() >= 270

        first.stop()
        apply(pods, model="two", system="You are the second.")
        start(pods, backoff_s=HASTY_S, one=7, two=2000)
        move_clock(pods.dsn, 7 * 3600)
        again = until_job(
            pods.dsn,
            job_id,
            lambda row: row["status"] == "RETRY" and row["attempt"] == 2,
            "to be tried a third time",
        )
        pause_s = (again["next_retry_at"] - again["updated_at"]).total_seconds()
        assert pause_s > 1, "by the policy that it began with, up to ten hours"
        assert again["config_id"] == began["config_id"]

        younger = ask(pods, fails=2)
        until_status(pods.dsn, younger, "RETRY")
        move_clock(pods.dsn, 48 * 3600)
        row = until_status(pods.dsn, job_id, "COMPLETED")
        new = until_status(pods.dsn, younger, "COMPLETED")
        models = [call["model"] for call in model.calls()]

    assert (row["result"], row["agent_version"]) == ("You are the first.", 1)
    assert row["config_id"] == began["config_id"]
    assert attempts(pods.dsn, job_id) == [(1, "retry"), (2, "retry")]
    assert usd_per_million(pods, job_id) == [("one", 1, 1000), ("one", 3, 1000)]

    assert (new["result"], new["agent_version"]) == ("You are the second.", 2)
    assert new["config_id"] != row["config_id"]
    assert usd_per_million(pods, younger) == [("two", 1, 2000), ("two", 3, 2000)]
    assert sorted(models) == ["one", "one", "two", "two"]
    assert_one_truth(pods.dsn)


def test_a_job_that_waits_for_a_worker_attempt_keeps_its_beginning_too(pods: Pods) -> None:
    """Its pod is killed in the middle of a call: the worker layer, without any retry."""
    hanging = {"calls": "1", "fault": "hang"}
    with scripted_model("echo", rules=[hanging]) as model:
        pods.environment |= model.environment
        apply(pods, model="one", system="You are the first.")
        first = start(pods, backoff_s=HASTY_S, one=1000, two=1000)
        job_id = ask(pods)
        until_job(pods.dsn, job_id, lambda _: model.calls(), "in its first call")
        first.kill()
        apply(pods, model="two", system="You are the second.")
        began = job_row(pods.dsn, job_id)
        start(pods, backoff_s=PATIENT_S, one=7, two=2000)
        row = until_status(pods.dsn, job_id, "COMPLETED")
    assert row["result"] == "You are the first."
    assert row["config_id"] == began["config_id"]
    prices = usd_per_million(pods, job_id)
    assert [(name, attempt) for name, attempt, _ in prices] == [("one", 1), ("one", 2), ("one", 2)]
    assert {price for _, _, price in prices} == {1000}, "the lost call is booked at them, too"
    assert_one_truth(pods.dsn)
