"""NUL and halves of surrogate pairs from job code: each fails only its job, with an error."""

import re

import pytest

from tests.support.apps.unstorable_app import WAYS
from tests.support.pods import Pods
from tests.support.records.rows import assert_one_truth, job_row, submit, until_status

BECOMES_VISIBLE = {"result", "step", "tool's result", "effect's input", "effect's result"}
WAITS = {"suspended", "effect's error"}
HOLDS = r"holds (a NUL character|half of a surrogate pair)|without NUL and lone surrogates|\ufffd"
TOLD = {
    "waiting on": "surrogates not allowed",
    "tool's name": r"no tool 'a\\x00b'",
    "model": r"the request to model 'xa\\ud800b' cannot be sent",
}


@pytest.mark.smoke("No job ends its pod")
def test_no_text_of_a_job_stops_a_pod(pods: Pods) -> None:
    pod = pods.start("--app", "tests.support.apps.unstorable_app")
    ids = {where: submit(pods.dsn, "unstorable", {"where": where}) for where in WAYS}
    for where, job_id in ids.items():
        expected = (
            "COMPLETED"
            if where in BECOMES_VISIBLE
            else "WAITING_FOR_APPROVAL"
            if where in WAITS
            else "FAILED"
        )
        row = until_status(pods.dsn, job_id, "COMPLETED", "FAILED", "WAITING_FOR_APPROVAL")
        assert (where, row["status"]) == (where, expected), row["error_message"]
        if expected == "FAILED":
            assert re.search(TOLD.get(where, HOLDS), row["error_message"]), (where, row)
            assert "\n" not in row["error_message"]
    assert job_row(pods.dsn, ids["result"])["result"] == {"a\ufffdb": "a\ufffdb"}
    assert pod.is_alive
    assert "crashed" not in pod.log
    assert_one_truth(pods.dsn)
