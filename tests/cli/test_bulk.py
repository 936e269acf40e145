"""Commands on all that match a filter: counted, confirmed, done by a job, followed, reported."""

from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import BULK
from cortex.domain.phrases import short_id
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me
from tests.support.pods import Pods
from tests.support.records.dead_letters import fail, letter
from tests.support.records.rows import job_count, job_row, submit, submit_many
from tests.support.servers.postgres import sql

CANCEL = ("jobs", "cancel", "--filter", "age<1h type:work")
WHY = ("--reason", "mended", "--as", "ana", "--yes")
UNREADABLE: dict[str, Any] = {
    "error_code": "invalid_value",
    "error_message": "payload of 'x' lacks url",
}
REFUSE = """
    CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END $$
"""
REFUSED = """
    CREATE TRIGGER refuse BEFORE UPDATE ON cortex.job_record FOR EACH ROW
    WHEN (OLD.queue_name = 'bad') EXECUTE FUNCTION public.refuse()
"""


def left(dsn: str) -> int:
    return job_count(dsn, "status = 'PENDING' AND type = 'work'")


def operations(dsn: str) -> list[UUID]:
    """The jobs that carried operations out, in order."""
    rows = sql(dsn, "SELECT id FROM cortex.job WHERE type = $1 ORDER BY id", BULK)
    return [row["id"] for row in rows]


# --- before anything is done


def test_dry_run_counts_and_changes_nothing(cortex: Cortex, life: Life) -> None:
    for queue in ("mail", "mail", None):
        submit(life.dsn, "work", queue_name=queue)
    done = cortex("jobs", "cancel", "--filter", "queue:mail", "--dry-run")
    assert (done.code, done.out) == (0, "dry run: 2 would be cancelled\n")
    found = cortex("jobs", "retry", "--filter", "type:work", "--dry-run", "--json").document
    assert (found["is_dry_run"], found["count"], found["refused"]) == (True, 0, {"untried": 3})
    assert (left(life.dsn), operations(life.dsn)) == (3, [])


def test_dry_run_counts_letters_of_every_cause(cortex: Cortex, database: str) -> None:
    fail(database, 40, error_message="page 4 is gone")
    fail(database, 3, **UNREADABLE)
    dry = cortex("dead", "retry", "--type", "work", "--limit", "30", "--dry-run")
    assert "dry run: 30 letters would be retried; more match: raise --limit" in dry.err
    assert "page 4 is gone" in dry.out
    dry = cortex("dead", "retry", "--type", "work", "--dry-run")
    assert "43 letters would be retried" in dry.err
    both = ("--filter", "class:permanent,transient_infra type:w*", "--dry-run")
    assert "43 letters would be" in cortex("dead", "retry", *both).err
    same = cortex("jobs", "retry", "--filter", "letter:unresolved type:work", "--dry-run")
    assert same.out == "dry run: 43 would try again now, 43 of them in new jobs\n"
    ended = cortex("jobs", "cancel", "--filter", "letter:open", "--dry-run")
    assert (ended.code, "no job that is FAILED can be cancelled" in ended.err) == (2, True)
    assert "43 letters would be" in cortex("dead", "discard", "--type", "work", "--dry-run").err
    assert operations(database) == []


def test_empty_match_submits_no_job(cortex: Cortex, database: str) -> None:
    done = cortex(*CANCEL, "--yes")
    assert (done.code, done.out) == (0, "0 cancelled\n")
    assert "no dead letter has code" in cortex("dead", "retry", "--code", "job_failed", *WHY).err
    assert operations(database) == []


@pytest.mark.parametrize("typed", ["y", "99"])
def test_over_a_hundred_the_number_is_typed(cortex: Cortex, life: Life, typed: str) -> None:
    submit_many(life.dsn, 101, "work", {})
    assert "needs confirmation, but there is no terminal" in cortex(*CANCEL).err
    terminal = cortex.on_terminal(*CANCEL)
    terminal.read_until(lambda text: "type 101 to go on" in text, what="it asks")
    terminal.type(f"{typed}\r")
    assert terminal.end() == 1
    assert "nothing was done" in terminal.text
    assert (left(life.dsn), operations(life.dsn)) == (101, [])


@pytest.mark.parametrize(
    "words, output",
    [
        ((), "no jobs given"),
        (("--filter", " "), "no jobs given"),
        (("aaaa", "--filter", "age<1h"), "give ids or a filter, not both"),
        (("aaaa", "--dry-run"), "--dry-run goes with --filter"),
        (("aaaa", "--rate", "1"), "--rate goes with --filter"),
        (("--filter", "age<1h", "--rate", "0"), "is not from 0.001"),
        (("--filter", "age<1h", "--rate", "nan"), "is not from 0.001"),
        (("--filter", "agee<1h"), "did you mean 'age'?"),
        (("--filter", "age<1h", "--limit", "10001"), "10001"),
    ],
)
def test_contradictory_bulk_options_are_refused(
    cortex: Cortex, words: tuple[str, ...], output: str
) -> None:
    for verb in ("cancel", "retry"):
        done = cortex("jobs", verb, *words)
        assert done.code == 2
        assert output in done.err


def test_a_bulk_operation_is_not_submitted_by_hand(cortex: Cortex) -> None:
    done = cortex("jobs", "submit", BULK, "--arg", 'request={"verb": "cancel", "jobs": ""}')
    assert done.code == 2
    assert "cortex jobs cancel --filter" in done.err
    done = cortex("jobs", "submit", "work", "--queue", BULK)
    assert done.code == 2
    assert "queue 'bulk' is for bulk operations" in done.err


# --- done by a pod


def test_jobs_are_cancelled_counted_and_kept_in_the_record(
    cortex: Cortex, life: Life, pods: Pods
) -> None:
    submit_many(life.dsn, 149, "work", {})
    bad = submit(life.dsn, "work", queue_name="bad")
    sql(life.dsn, REFUSE)
    sql(life.dsn, REFUSED)
    pods.start()
    done = cortex(*CANCEL, "--limit", "120", *WHY, "--rate", "10000")
    assert done.code == 0, done.err
    first, second, last = done.out.splitlines()
    assert (first, "no" in second) == ("119 cancelled, 1 failed", True)
    assert last == "more may match: raise --limit, or run it again"
    assert left(life.dsn) == 31
    sql(life.dsn, "DROP TRIGGER refuse ON cortex.job_record")
    key = ("--idempotency-key", "k-1", *WHY, "--json")
    done = cortex(*CANCEL, *key)
    assert done.code == 0, done.err
    document = done.document
    assert (document["count"], document["failed_count"], document["left_count"]) == (31, 0, 0)
    assert job_row(life.dsn, bad)["cancelled_by"] == me("ana")
    again = cortex(*CANCEL, *key).document
    assert (again["replayed"], again["job"], again["count"]) == (True, document["job"], 31)
    assert len(operations(life.dsn)) == 2
    listed = cortex("jobs", "ls", "type:bulk", "--json").document["jobs"]
    assert {each["id"] for each in listed} == {str(each) for each in operations(life.dsn)}


def test_bulk_cancel_leaves_jobs_submitted_during_the_question(
    cortex: Cortex, life: Life, pods: Pods
) -> None:
    ended, other = submit(life.dsn, "work"), submit(life.dsn, "work")
    terminal = cortex.on_terminal(*CANCEL, "--reason", "mended", "--as", "ana")
    terminal.read_until(lambda text: "cancel 2 jobs" in text, what="it asks")
    later = submit(life.dsn, "work")
    assert cortex("jobs", "cancel", str(ended), "--yes", "--as", "li").code == 0
    pods.start()
    terminal.type("y\r")
    assert terminal.end() == 0, terminal.text
    assert "1 cancelled, 1 had ended meanwhile" in terminal.text
    assert job_row(life.dsn, other)["cancelled_by"] == me("ana")
    assert job_row(life.dsn, later)["status"] == "PENDING"


def test_letters_are_retried_and_discarded(cortex: Cortex, database: str, pods: Pods) -> None:
    pods.start()
    ids = fail(database, 60, error_message="page 4 is gone")
    (other,) = fail(database)
    fingerprint = letter(database, ids[0])["fingerprint"]
    fast = ("--rate", "10000", *WHY)
    done = cortex("dead", "retry", "--fingerprint", fingerprint, "--limit", "40", *fast)
    assert (done.code, done.out.splitlines()[0]) == (0, "40 go on in new jobs"), done.err
    assert job_count(database, "origin_id IS NOT NULL") == 40
    assert letter(database, other)["state"] == "OPEN"
    found = letter(database, min(ids))
    assert (found["resolved_by"], found["reason"]) == (me("ana"), "mended")
    done = cortex("dead", "discard", "--code", "job_failed", *fast, "-o", "name")
    assert done.out == "21\n"
    assert letter(database, other)["state"] == "DISCARDED"


def test_interrupted_command_names_its_job_and_the_pod_continues(
    cortex: Cortex, life: Life, pods: Pods
) -> None:
    submit_many(life.dsn, 30, "work", {})
    terminal = cortex.on_terminal(*CANCEL, *WHY, "--rate", "4", columns=200)
    terminal.read_until(lambda text: "waits for a pod" in text, what="that no pod is alive")
    pods.start()
    terminal.read_until(lambda text: "of 30 · Ctrl-C" in text, what="its progress")
    terminal.interrupt()
    assert terminal.end() == 130, terminal.text
    (job_id,) = operations(life.dsn)
    assert f"to stop it: cortex jobs cancel {short_id(job_id)}" in terminal.text
    assert cortex("jobs", "cancel", str(job_id), "--yes", "--as", "li", "--wait").code == 0
    changed = 30 - left(life.dsn)
    assert 0 < changed < 30
    rest = cortex(*CANCEL, *WHY).out
    assert rest == f"{30 - changed} cancelled\n"


def test_cancelled_operation_reports_its_progress(cortex: Cortex, life: Life, pods: Pods) -> None:
    submit_many(life.dsn, 30, "work", {})
    pods.start()
    terminal = cortex.on_terminal(*CANCEL, *WHY, "--rate", "4", columns=200)
    terminal.read_until(lambda text: "of 30 · Ctrl-C" in text, what="its progress")
    (job_id,) = operations(life.dsn)
    assert cortex("jobs", "cancel", str(job_id), "--yes", "--as", "li").code == 0
    assert terminal.end() == 5, terminal.text
    assert f"job {job_id} is CANCELLED: cancelled by {me('li')}" in terminal.text
    assert "not begun" in terminal.text
