"""`cortex dead acts`: operations begun by a filter run by themselves, are followed and paused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from cortex.store import bulk_operations, dead_letters
from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.pods import Pods
from tests.support.records.dead_letters import fail, letter, lifecycle
from tests.support.records.rows import assert_one_truth, job_count, new_id
from tests.support.servers.postgres import sql

WHY = ("--reason", "mended", "--as", "ana", "--yes")
FAST = ("--rate", "10000")
UNREADABLE: dict[str, Any] = {
    "error_code": "invalid_value",
    "error_message": "payload of 'x' lacks url",
}


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    """Pods on the same database."""
    started = Pods(database, tmp_path)
    yield started
    started.close()


def work_off(dsn: str) -> None:
    """Do what pods would."""
    with open_session(Profile(dsn=dsn)) as call:
        while (due_s := call(bulk_operations.work_off, new_id=new_id)) is not None:
            call.pause(due_s)


def test_letters_that_fit_a_filter_are_an_act_of_pods(cortex: Cortex, database: str) -> None:
    ids = fail(database, 60, error_message="page 4 is gone")
    (other,) = fail(database)
    fingerprint = letter(database, ids[0])["fingerprint"]
    dry = cortex("dead", "retry", "--fingerprint", fingerprint, "--dry-run")
    assert dry.code == 0
    assert "dry run: 60 letters would be retried" in dry.err
    assert "page 4 is gone" in dry.out
    assert sql(database, "SELECT FROM cortex.dead_act") == []
    some = ("--fingerprint", fingerprint, "--limit", "40", *FAST)
    assert "more match: raise --limit" in cortex("dead", "retry", *some, "--dry-run").err
    begun = cortex("dead", "retry", *some, *WHY)
    assert begun.code == 0
    assert "act 1 waits for a pod: none is alive" in begun.err
    assert "follow it: cortex dead acts watch 1" in begun.err
    assert job_count(database, "origin_id IS NOT NULL") == 0
    work_off(database)
    assert job_count(database, "origin_id IS NOT NULL") == 40
    assert letter(database, other)["state"] == "OPEN"
    found = letter(database, min(ids))
    assert (found["resolved_by"], found["reason"]) == ("ana", "mended")
    (act,) = cortex("dead", "acts", "ls", "--json").document["acts"]
    assert act["which"] == f"--fingerprint {fingerprint} --limit 40"
    assert (act["state"], act["done_count"], act["left"], act["asked_by"]) == ("DONE", 40, 0, "ana")
    begun = cortex("dead", "discard", "--code", "job_failed", *FAST, *WHY, "-o", "name")
    assert begun.out == "2\n"
    work_off(database)
    assert [subtype for subtype, _ in lifecycle(database, other)] == ["dead_letter_discarded"]
    assert "no dead letter matches" in cortex("dead", "retry", "--code", "job_failed", *WHY).err


def test_what_no_retry_could_help_is_left_out_and_told(cortex: Cortex, database: str) -> None:
    good, bad = fail(database, 2), fail(database, 3, **UNREADABLE)
    dry = cortex("dead", "retry", "--type", "work", "--dry-run")
    assert "2 letters would be retried, 3 not (undecodable)" in dry.err
    cortex("dead", "retry", "--type", "work", *FAST, *WHY)
    work_off(database)
    assert {letter(database, each)["state"] for each in good} == {"RETRIED"}
    assert {letter(database, each)["state"] for each in bad} == {"OPEN"}
    none = cortex("dead", "retry", "--code", "invalid_value", *WHY)
    assert (none.code, "no retry could help, 3 not (undecodable)" in none.err) == (0, True)
    assert cortex("dead", "retry", str(bad[0]), *WHY).code == 0
    assert "3 letters would be" not in cortex("dead", "discard", "--type", "work", "--dry-run").err
    assert "2 letters would be" in cortex("dead", "discard", "--type", "work", "--dry-run").err


def test_under_a_key_one_act_begins(cortex: Cortex, database: str) -> None:
    fail(database, 3)
    ask = ("dead", "retry", "--code", "job_failed", *FAST, *WHY, "--idempotency-key", "k1")
    (first,) = cortex(*ask, "--json").document["acts"]
    work_off(database)
    fail(database, 2)
    second = cortex(*ask, "--json").document
    assert second["replayed"] is True
    assert [act["id"] for act in second["acts"]] == [first["id"]]
    assert len(sql(database, "SELECT FROM cortex.dead_act")) == 1


def test_more_than_a_hundred_want_their_number_typed(cortex: Cortex, database: str) -> None:
    fail(database, 120)
    for answer, code in (("y\n", 1), ("120\n", 0)):
        asking = cortex.on_terminal("dead", "discard", "--code", "job_failed", "--reason", "x")
        asking.read_until(lambda text: "type 120 to go on" in text, what="the question")
        asking.type(answer)
        assert asking.end() == code, asking.text
    assert len(sql(database, "SELECT FROM cortex.dead_act")) == 1


def test_one_is_shown_with_what_failed(cortex: Cortex, database: str) -> None:
    ids = fail(database, 4)
    cortex("dead", "retry", "--code", "job_failed", *FAST, *WHY)
    with open_session(Profile(dsn=database)) as call:
        call(dead_letters.discard, ids[:2], by="li", reason="old")
    work_off(database)
    shown = cortex("dead", "acts", "show", "1")
    assert shown.code == 0
    for output in ("act 1  ✓ done", "retried 2 of 4, 2 not, 0 left", "by ana", "mended"):
        assert output in shown.out, output
    assert "was discarded by li" in shown.out
    document = cortex("dead", "acts", "show", "1", "--json").document
    assert document["act"]["failed_count"] == 2
    assert {each["job_id"] for each in document["failures"]} == {str(each) for each in ids[:2]}
    few = cortex("dead", "acts", "show", "1", "--limit", "1").out
    assert "… 1 more: --limit 2" in few
    assert cortex("dead", "acts", "show", "7").code == 3
    assert "there is no act 7" in cortex("dead", "acts", "show", "7").err


def test_it_is_paused_resumed_and_ended(cortex: Cortex, database: str) -> None:
    fail(database, 3)
    cortex("dead", "retry", "--code", "job_failed", *WHY)
    who = ("--as", "li", "--reason", "wait")
    (act,) = cortex("dead", "acts", "pause", "1", *who, "--json").document["acts"]
    assert (act["state"], act["changed_by"], act["change_reason"]) == ("PAUSED", "li", "wait")
    assert 'paused by li: "wait"' in cortex("dead", "acts", "show", "1").out
    again = cortex("dead", "acts", "pause", "1")
    assert (again.code, "act 1 is paused by li: it was not paused" in again.err) == (5, True)
    work_off(database)
    assert cortex("dead", "acts", "resume", "1").code == 0
    assert "add --yes" in cortex("dead", "acts", "cancel", "1").err
    (act,) = cortex("dead", "acts", "cancel", "1", *who, "--yes", "--json").document["acts"]
    assert (act["state"], act["left"]) == ("ENDED", 3)
    work_off(database)
    assert job_count(database, "origin_id IS NOT NULL") == 0
    assert cortex("dead", "acts", "watch", "1").code == 5
    facts = "SELECT subtype FROM cortex.fact WHERE source = 'dead_act:1' ORDER BY id"
    assert [row["subtype"] for row in sql(database, facts)] == [
        *("dead_act_began", "dead_act_paused", "dead_act_resumed", "dead_act_cancelled")
    ]


def test_watching_ends_at_a_time_out(cortex: Cortex, database: str) -> None:
    fail(database)
    cortex("dead", "retry", "--code", "job_failed", *WHY)
    output = cortex("dead", "acts", "watch", "1", "--timeout", "0", "--json")
    assert (output.code, output.error["code"]) == (7, "timed_out")
    ended = cortex("dead", "acts", "watch", "1", "--timeout", "0.1")
    assert ended.code == 7
    assert "0 of 1, 1 left · waits for a pod: none is alive" in ended.err
    assert "it continues by itself" in ended.err


@pytest.mark.timeout(120)
def test_a_pod_goes_on_whoever_watches_leaves(cortex: Cortex, database: str, pods: Pods) -> None:
    fail(database, 200)
    pods.start()
    begun = cortex("dead", "retry", "--code", "job_failed", "--rate", "3", *WHY)
    assert "waits for a pod" not in begun.err
    watching = cortex.on_terminal("dead", "acts", "watch", "1")
    watching.read_until(lambda text: "of 200" in text and "░" in text, what="a bar")
    watching.interrupt()
    assert watching.end() == 130, watching.text
    done = job_count(database, "origin_id IS NOT NULL")
    eventually(
        lambda: job_count(database, "origin_id IS NOT NULL") > done, what="the pod goes on with it"
    )
    assert cortex("dead", "acts", "cancel", "1", "--yes").code == 0
    seen = cortex("dead", "acts", "watch", "1")
    assert (seen.code, "act 1 was ended by" in seen.err) == (5, True)
    assert_one_truth(database)
