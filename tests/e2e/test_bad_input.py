"""Invalid submissions are refused in one line; a fault inside a job ends only that job."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.pods import APP, Pods, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_count,
    move_clock,
    submit,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import sql

SUBMIT = ("jobs", "submit", "--json", "--app", APP)


def deep(levels: int) -> str:
    return '{"x": ' + "[" * levels + "]" * levels + "}"


# --- at the door


@pytest.mark.parametrize(
    "payload, report",
    [
        (b'{"how": "a\\u0000b"}', "NUL character"),
        (b'{"how": NaN}', "payload is not JSON"),
        (b'{"how": "\\ud800"}', "payload"),
        (b'{"how": "\xff"}', "payload is not JSON"),
        (b'{"how": 1e999}', "payload"),
        (b"{", "payload is not JSON"),
        (b"", "payload"),
        (b"[1]", "must be a JSON object, not list"),
        (deep(100).encode(), "deeper than 64 levels"),
        (deep(100_000).encode(), "payload is not JSON"),
        (b'{"how": "%s"}' % (b"x" * 10_000_000), "larger than 262,144 bytes"),
        (b"{}", "lacks how"),
        (b'{"how": "raise", "haw": 1}', "unknown key 'haw'"),
        (b'{"how": 3}', "how"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_payload_that_cannot_be_run_is_refused(
    database: str, tmp_path: Path, payload: bytes, report: str
) -> None:
    command = (*SUBMIT, "misbehave", "--payload", "-")
    ran = run_cli(*command, dsn=database, folder=tmp_path, stdin=payload)
    error = ran.refused(exit_code=2)
    assert report in error["message"]
    assert len(error["message"]) < 300
    assert job_count(database, "true") == 0


def test_a_type_that_the_named_app_lacks_and_an_unknown_agent_are_refused(
    database: str, tmp_path: Path
) -> None:
    ran = run_cli(*SUBMIT, "misbehav", dsn=database, folder=tmp_path)
    error = ran.refused(exit_code=2)
    assert error["message"] == "unknown job type 'misbehav'"
    assert "'misbehave'" in error["hint"]
    ran = run_cli(*SUBMIT, "noop", "--agent", "nobody", dsn=database, folder=tmp_path)
    assert "nobody" in ran.refused(exit_code=3)["message"]
    assert job_count(database, "true") == 0


def test_valid_job_is_submitted_and_awaited(pods: Pods, tmp_path: Path) -> None:
    pods.start()
    ran = run_cli(*SUBMIT, "noop", "--wait", dsn=pods.dsn, folder=tmp_path)
    assert ran.exit_code == 0, ran.stderr
    assert '"COMPLETED"' in ran.stdout


# --- inside a pod


UNSTORABLE = "\N{REPLACEMENT CHARACTER}"
FAILS_AFTER_RETRIES = {
    "raise": "RuntimeError: broken in attempt 2 with a second line",
    "raise_hostile": f"RuntimeError: nul {UNSTORABLE} half {UNSTORABLE} escape \x1b[31m",
    "raise_group": "KeyError: 'one of two'",
    "exit": "SystemExit: 3",
}
FAILS_AT_ONCE = {
    "nan": "result of job type 'misbehave' holds nan, which JSON does not have",
    "nan_in_a_step": "output of step 'nan' holds nan, which JSON does not have",
    "deep": "result of job type 'misbehave' is nested deeper than 64 levels",
    "huge": "result of job type 'misbehave' is 50,000,002 bytes of JSON, more than 4,194,304",
    "strange": "result of job type 'misbehave' is not JSON: object",
    "bytes": "result of job type 'misbehave' is not JSON: bytes",
}
IS_MADE_VISIBLE: dict[str, Any] = {
    "nul": {f"x{UNSTORABLE}": f"a{UNSTORABLE}b"},
    "surrogate": f"half {UNSTORABLE} pair",
}


@pytest.mark.smoke("No job ends its pod")
def test_bad_handlers_end_their_own_job_only(pods: Pods, tmp_path: Path) -> None:
    pod = pods.start()
    ids = {
        how: submit(pods.dsn, "misbehave", {"how": how})
        for how in (*FAILS_AFTER_RETRIES, *FAILS_AT_ONCE, *IS_MADE_VISIBLE)
    }
    for how, report in FAILS_AT_ONCE.items():
        row = until_status(pods.dsn, ids[how], "FAILED", "COMPLETED")
        assert row["status"] == "FAILED", how
        assert row["error_message"].startswith(report), how
        assert (row["attempt"], row["task_state"]) == (1, None), how
    for how, result in IS_MADE_VISIBLE.items():
        assert until_status(pods.dsn, ids[how], "COMPLETED")["result"] == result

    for how in FAILS_AFTER_RETRIES:
        row = until_job(pods.dsn, ids[how], lambda row: row["task_state"] == "LATER", "to retry")
        assert (row["status"], row["attempts_spent"], row["pod_id"]) == ("RUNNING", 1, None), how
        assert 1.0 < (row["task_run_at"] - row["updated_at"]).total_seconds() < 3.0
    move_clock(pods.dsn, 5)
    for how, report in FAILS_AFTER_RETRIES.items():
        row = until_status(pods.dsn, ids[how], "FAILED")
        assert (row["error_message"], row["attempt"]) == (report, 2)
        assert attempts(pods.dsn, ids[how]) == [(1, "failed")]

    last = submit(pods.dsn, "noop")
    until_status(pods.dsn, last, "COMPLETED")
    assert pod.is_alive
    assert_one_truth(pods.dsn)
    shown = run_cli("jobs", "show", str(ids["raise_hostile"]), dsn=pods.dsn, folder=tmp_path)
    assert shown.exit_code == 0
    assert "\x1b" not in shown.stdout
    assert "U+001B" in shown.stdout


def test_unchecked_payloads_affect_only_their_own_job(pods: Pods) -> None:
    """By plain SQL anything that Postgres holds as JSON can be submitted."""
    pod = pods.start()
    unfit = {
        '{"haw": 1}': "payload of 'misbehave' lacks how; has an unknown key 'haw'",
        '{"how": 1, "more": 2}': "unknown key 'more'; invalid type",
        '{"how": {"x": 1}}': "payload.how",
    }
    bad = {
        deep(5_000): "payload of 'misbehave' cannot be read",
        "[1]": "payload of 'misbehave' is not a JSON object",
        '"text"': "payload of 'misbehave' is not a JSON object",
        "null": "payload of 'misbehave' is not a JSON object",
        '{"how": 1e400}': "payload of 'misbehave' cannot be read",
        '{"how": "no such misdeed"}': "KeyError",
    }
    ids = {text: submit(pods.dsn, "misbehave", json_text=text) for text in [*bad, *unfit]}
    until_jobs(pods.dsn, "status = 'FAILED' OR heartbeat_at IS NULL", count=len(ids))
    move_clock(pods.dsn, 5)
    for text, report in bad.items():
        row = until_status(pods.dsn, ids[text], "FAILED")
        assert report in row["error_message"], text[:40]
    last = submit(pods.dsn, "noop")
    until_status(pods.dsn, last, "COMPLETED")
    for text, report in unfit.items():  # other code may take these
        row = until_job(
            pods.dsn, ids[text], lambda row: row["waiting_on"] == "code", "to wait for code"
        )
        assert (row["status"], row["attempt"]) == ("RETRY", 1)
        why = sql(pods.dsn, "SELECT error FROM cortex.job_attempt WHERE job_id = $1", ids[text])
        assert report in why[0]["error"], text
    assert pod.is_alive
    assert_one_truth(pods.dsn)
