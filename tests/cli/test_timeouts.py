"""`cortex jobs timeouts`: receipts for people and for machines."""

from typing import Any
from uuid import UUID

import pytest

from cortex.domain.timeouts import FinalAction, Phase, Scope, TimeoutReceipt
from cortex.store import timeouts
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.records.receipts import (
    a_change,
    a_receipt,
    a_work_tree,
    an_artefact,
    an_interruption,
)
from tests.support.records.rows import new_id


@pytest.fixture
def timed_out(life: Life) -> UUID:
    """A job with one step that failed in its second."""
    pod = life.pod()
    job_id = life.job()
    claim = life.claim(pod)
    life.step(pod, claim, 1, "1 model", is_paid=True)
    life.finish(pod, claim, error="tool 'write_file' timed out after 30 seconds")
    receipts = [
        interrupted(
            claim.lease, scope=Scope.IDLE, step_key="1 model", final_action=FinalAction.RETRIED_CALL
        ),
        a_receipt(
            interruption=an_interruption(
                lease=claim.lease,
                partial_text="\n".join(["first \x1b[2J", "second", *"345678"]),
                phase=Phase.MODEL,
            ),
            artefacts=(an_artefact("out/\x1b[31mreport"), an_artefact("b")),
            work_trees=(a_work_tree(a_change(), a_change("new", state="??"), diff="+x"),),
            problem="the workspace holds more than 50000 files",
        ),
    ]
    life.call(timeouts.record, receipts)
    return job_id


def interrupted(lease: Any, **fields: Any) -> TimeoutReceipt:
    return a_receipt(interruption=an_interruption(lease=lease, **fields))


def test_people_read_a_block_for_each(cortex: Cortex, timed_out: UUID) -> None:
    terminal = cortex.on_terminal("jobs", "timeouts", str(timed_out), env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    first, second = terminal.text.replace("\r", "").split("\n\n")
    assert "idle time-out after 30s, limit 30s" in first
    assert "called again within the step" in first
    assert "resume" not in first
    for line in (
        "step        turn 2 · write_file · waiting for the model",
        "checkpoint  step 1 · turn 1 · model",
        "then        failed the job · attempt 1",
        "answer      first ⟦U+001B⟧[2J",
        "            … 3 more: --json has them",
        "files       out/⟦U+001B⟧[31mreport  5 B",
        "unknown     the workspace holds more than 50000 files",
        "git         /somewhere/in · main at aaaaaaaaaaaa · 2 uncommitted",
        "            .M a.py  3 B",
        "            ?? new  3 B",
        "resume      retry_step: run the step again",
    ):
        assert line in second
    assert "\x1b[2J" not in terminal.text


@pytest.mark.parametrize("asked", ["--jsonl", "-ojsonl"])
def test_jsonl_output_has_a_whole_timeout_per_line(
    cortex: Cortex, timed_out: UUID, asked: str
) -> None:
    retried, ended = cortex("jobs", "timeouts", str(timed_out), asked).documents
    assert (retried["scope"], retried["transcript"]) == ("idle", None)
    assert ended["schema_version"] == 1
    assert ended["job_id"] == str(timed_out)
    assert (ended["limit_s"], ended["elapsed_s"], ended["final_action"]) == (30.0, 30.25, "failed")
    assert ended["partial_text"].startswith("first \x1b[2J\nsecond")
    assert ended["artefacts"][1]["path"] == "b"
    assert ended["work_trees"][0]["changes"][1]["state"] == "??"
    assert ended["work_trees"][0]["diff"] == "+x"
    assert (ended["is_clean"], ended["recommended_choice"]) == (False, "retry_step")
    assert [(step["seq"], step["output"]) for step in ended["transcript"]] == [(1, "out")]


def test_json_output_has_all_timeouts(cortex: Cortex, timed_out: UUID) -> None:
    document = cortex("jobs", "timeouts", str(timed_out), "--json").document
    assert [each["scope"] for each in document["timeouts"]] == ["idle", "call"]
    names = cortex("jobs", "timeouts", str(timed_out), "-o", "name").out.split()
    assert names == [str(each["id"]) for each in document["timeouts"]]


def test_job_without_timeouts_prints_a_message(cortex: Cortex, life: Life) -> None:
    ended = cortex("jobs", "timeouts", str(life.job()))
    assert (ended.code, ended.out) == (0, "")
    assert "has no time-outs" in ended.err
    for unknown in ("abcdabcd", str(new_id())):
        assert cortex("jobs", "timeouts", unknown).code == 3


@pytest.mark.parametrize(
    "asked, message",
    [
        (("--columns", "scope"), "receipts have no columns"),
        (("--jsonl", "--json"), "two formats"),
        (("-o", "table", "--jsonl"), "two formats"),
        (("-o", "name", "--jsonl"), "two formats"),
    ],
)
def test_ignored_output_options_are_refused(
    cortex: Cortex, life: Life, asked: tuple[str, ...], message: str
) -> None:
    ended = cortex("jobs", "timeouts", str(life.job()), *asked)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
