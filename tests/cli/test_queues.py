"""`cortex queues`: what people see of worker queues, and pausing them."""

import json

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.records.rows import submit


def test_a_queue_is_paused_and_resumed(cortex: Cortex, life: Life) -> None:
    submit(life.dsn, "work")
    job_id = submit(life.dsn, "work", queue_name="mail")
    done = cortex("pause", "queue:mail", "--reason", "deploy", "--as", "ana", "--json")
    (paused,) = done.document["pauses"]
    assert (paused["target"], paused["name"]) == ("queue:mail", "mail")
    assert (paused["paused_by"], paused["reason"]) == (me("ana"), "deploy")

    output = cortex("why", str(job_id), "--json").document
    assert output["cause"] == "paused"
    assert f"paused by {me('ana')}: deploy" in output["sentence"]
    assert output["ways_out"] == ["cortex resume queue:mail"]

    terminal = cortex.on_terminal("queues", "ls", columns=120, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    lines = {line.split()[0]: " ".join(line.split()) for line in terminal.text.splitlines()}
    assert list(lines) == ["queue", "default", "mail"]
    assert lines["default"].startswith("default ● open 1 0 0")
    assert f"◆ paused by {me('ana')}" in lines["mail"]
    assert '"deploy"' in lines["mail"]

    resumed = cortex("resume", "queue:mail", "--as", "ben", "--json").document["pauses"]
    assert resumed == []
    rows = life.sql("SELECT subtype, data FROM cortex.fact WHERE source = 'queue:mail' ORDER BY id")
    acts = [(row["subtype"], json.loads(row["data"])["by"]) for row in rows]
    assert acts == [("queue_paused", me("ana")), ("queue_resumed", me("ben"))]


def test_repeated_pause_or_resume_is_reported_and_changes_nothing(
    cortex: Cortex, life: Life
) -> None:
    submit(life.dsn, "work")
    assert cortex("resume", "queue:default").err.endswith("queue:default was not paused\n")
    cortex("pause", "queue:default", "--reason", "one", "--as", "ana")
    again = cortex("pause", "queue:default", "--reason", "two", "--as", "ben", "--json")
    (row,) = again.document["pauses"]
    assert (row["name"], row["paused_by"], row["reason"]) == ("", me("ana"), "one")
    assert "was paused already" in again.err


def test_a_queue_without_tasks_may_be_a_typing_error(cortex: Cortex, life: Life) -> None:
    submit(life.dsn, "work", queue_name="mail")
    done = cortex("pause", "queue:mial", "--reason", "deploy")
    assert "no task waits in 'queue mial'" in done.err


def test_invalid_queue_name_is_refused(cortex: Cortex) -> None:
    refused = cortex("pause", "queue:" + "x" * 101, "--reason", "deploy")
    assert refused.code == 2
    assert "is not a name of 1 to 100 characters" in refused.err


def test_a_named_queue_is_made_strict_and_relaxed(cortex: Cortex, life: Life) -> None:
    why = ("--reason", "in order", "--as", "ana")
    (row,) = cortex("queues", "order", "mail", "strict", *why, "-o", "json").document["queues"]
    assert (row["queue"], row["state"]) == ("mail", "open")
    (listed,) = [
        each
        for each in cortex("queues", "ls", "--columns", "queue,is_strict", "--json").document[
            "queues"
        ]
        if each["queue"] == "mail"
    ]
    assert listed["is_strict"] is True, "it is listed without tasks"
    assert "was strict already" in cortex("queues", "order", "mail", "strict", *why).err
    assert cortex("queues", "order", "mail", "relaxed", *why).code == 0
    for name, error in (("default", "in no order"), ("bulk", "take turns")):
        refused = cortex("queues", "order", name, "strict", *why)
        assert (refused.code, error in refused.err) == (2, True)
