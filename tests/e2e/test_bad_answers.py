"""A model response that failed its job is not replayed by a retry: the model is asked again."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.pods import Pods, run_cli
from tests.support.records.rows import assert_one_truth, new_id, steps, until_status
from tests.support.scripted_agent import ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import scripted_model

WHY = ("--reason", "once more", "--as", "ana")
RETRY = ("dead", "retry", "--yes", *WHY)
RESUME = ("jobs", "resume", *WHY)
UNFIT = [{"name": "wait_for", "raw_input": "{not json"}]


@pytest.mark.parametrize(
    "rule, output, command",
    [
        ({"calls": 2, "stop_reason": "refusal", "text": "I won't"}, (2, "I won't"), RETRY),
        ({"calls": 1, "stop_reason": "refusal", "text": "I won't"}, (0, "I won't"), RESUME),
        ({"calls": "2-5", "text": ""}, (5, ""), RETRY),
        ({"calls": "2-4", "tools": UNFIT}, (6, "{not json"), RESUME),
    ],
    ids=["refusal", "refusal of the first", "empty", "unfit input"],
)
def test_a_retry_asks_the_model_again(
    pods: Pods,
    tmp_path: Path,
    rule: dict[str, Any],
    output: tuple[int, str],
    command: tuple[str, ...],
) -> None:
    def cortex(*arguments: str) -> Any:
        ran = run_cli(*arguments, "--json", dsn=pods.dsn, folder=tmp_path)
        assert ran.exit_code == 0, ran.stderr
        return ran.document

    with scripted_model(rules=[rule]) as model:
        agent = ScriptedAgent(pods, model, f"test {new_id().hex[:12]}", tmp_path)
        agent.apply("break_down", "wait_for")
        pods.start()
        turn = {"tools": [{"name": "break_down", "input": {"why": "paper"}}]}
        failed = until_status(pods.dsn, agent.submit(turn, {"text": "well"}), "FAILED")
        before, asked = steps(pods.dsn, failed["id"]), len(agent.calls())
        assert failed["error_class"] == "INVALID_OUTPUT"
        letter = cortex("dead", "show", str(failed["id"]))["letter"]
        kept, raw = output
        prospect = f"asks the model again after step {kept}" if kept else "asks the model again"
        assert (letter["on_retry"], letter["raw"]) == (prospect, raw)
        done = cortex(*command, str(failed["id"]))
        heir_id = UUID(done["resumed_as"] if "job" in done else done["letters"][0]["retried_as"])
        heir = until_status(pods.dsn, heir_id, "COMPLETED", "FAILED")
        assert heir["status"] == "COMPLETED", heir["error_message"]
        assert len(agent.calls()) > asked
        after = steps(pods.dsn, heir_id)
    assert [step for step in after if step[1] == 0] == [
        (seq, 0, kind, key) for seq, _, kind, key in before[:kept]
    ]
    assert [step[0] for step in after] == list(range(1, len(after) + 1))
    assert len(steps(pods.dsn, failed["id"])) == len(before)
    (head,) = sql(pods.dsn, "SELECT checkpoint->>'seq' AS n FROM cortex.job WHERE id = $1", heir_id)
    assert head["n"] == str(len(after))
    assert_one_truth(pods.dsn)
