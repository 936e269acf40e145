"""A provider that is down: no job loses a retry to it, and no call disturbs it until it is back."""

import json

from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    job_count,
    job_row,
    submit,
    submit_many,
    until_jobs,
)
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import scripted_model

JOBS = 40
OUTAGE_S = 5
RETRY_AFTER_S = 2
OTHERS = 3
"""So many wait beside a call that always fails."""
HANDFUL = 12
"""A few of each pod before the first refusal came back, and one probe each two seconds after."""


def test_provider_outage_costs_no_retries_and_few_calls(pods: Pods) -> None:
    outage = {"for_s": OUTAGE_S, "status": 429, "retry_after": RETRY_AFTER_S}
    with scripted_model("echo", rules=[outage]) as model:
        pods.environment |= model.environment
        pods.start()
        pods.start()
        submit_many(pods.dsn, JOBS, "ask", {"model": "one", "prompt": "hello", "questions": 2})
        until_jobs(pods.dsn, "status = 'COMPLETED'", count=JOBS)
        statuses = [call["status"] for call in model.calls()]
    assert 1 <= statuses.count(429) <= HANDFUL
    assert statuses.count(200) == 2 * JOBS
    assert job_count(pods.dsn, "retry_count > 0") == 0
    assert job_count(pods.dsn, "rate_limit_count > 0") == 0
    outcomes = sql(pods.dsn, "SELECT DISTINCT outcome FROM cortex.job_attempt")
    assert [row["outcome"] for row in outcomes] == ["suspended"]
    changes = "SELECT subtype FROM cortex.fact WHERE type = 'lifecycle' ORDER BY id"
    output = [row["subtype"] for row in sql(pods.dsn, changes)]
    assert output[0] == "breaker_opened"
    assert output[-1] == "breaker_closed"
    shown = run_cli("breakers", "ls", "--json", dsn=pods.dsn, folder=pods.folder).stdout
    (breaker,) = json.loads(shown)["breakers"]
    assert {error["code"] for error in breaker["errors"]} == {"rate_limit"}
    assert breaker["turns"][0]["after"] == "OPEN"
    assert breaker["turns"][-1]["after"] == "CLOSED"
    assert_one_truth(pods.dsn)


def test_a_breaker_that_is_forced_open_holds_the_jobs_until_a_person_closes_it(
    pods: Pods,
) -> None:
    with scripted_model("echo") as model:
        pods.environment |= model.environment
        pods.start()

        def breakers(*arguments: str) -> None:
            ran = run_cli(
                "breakers",
                *arguments,
                "--yes",
                "--reason",
                "why not",
                dsn=pods.dsn,
                folder=pods.folder,
            )
            assert ran.exit_code == 0, ran.stderr

        breakers("open", "llm:one")
        held = submit(pods.dsn, "ask", {"model": "one", "prompt": "hello"})
        other = submit(pods.dsn, "ask", {"model": "two", "prompt": "hello"})
        until_jobs(pods.dsn, f"id = '{other}' AND status = 'COMPLETED'", count=1)
        until_jobs(pods.dsn, f"id = '{held}' AND waiting_on = 'llm:one'", count=1)
        shown = run_cli("why", str(held), dsn=pods.dsn, folder=pods.folder)
        assert "llm:one" in shown.stdout
        breakers("close", "llm:one")
        until_jobs(pods.dsn, f"id = '{held}' AND status = 'COMPLETED'", count=1)
        assert [call["model"] for call in model.calls()] == ["two", "one"]


def test_a_call_that_always_fails_does_not_hold_the_others_for_ever(pods: Pods) -> None:
    poison = {"prompt": "poison", "status": 529, "retry_after": 1}
    with scripted_model("echo", rules=[poison]) as model:
        pods.environment |= model.environment
        pods.start()
        bad = submit(pods.dsn, "ask", {"model": "one", "prompt": "poison"}, max_retries=1)

        def has_ended() -> int:
            """Look, and let another caller through meanwhile."""
            if job_count(pods.dsn, f"id <> '{bad}' AND status <> 'COMPLETED'") < OTHERS:
                submit(pods.dsn, "ask", {"model": "one", "prompt": "hello"})
            return job_count(pods.dsn, f"id = '{bad}' AND status = 'FAILED'")

        eventually(has_ended, what="the job has used its retry")
        until_jobs(pods.dsn, f"id <> '{bad}' AND status <> 'COMPLETED'", count=0)
    row = job_row(pods.dsn, bad)
    assert (row["retry_count"], row["error_code"]) == (1, "overloaded")
    assert job_count(pods.dsn, f"id <> '{bad}' AND retry_count > 0") == 0
    assert_one_truth(pods.dsn)
