"""`cortex freeze`: no effect starts until a person unfreezes; everyone sees who froze, and why."""

import getpass
from typing import Any

import pytest

from cortex.store import breakers, facts, retries
from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me, user
from tests.support.records.effects import Doers
from tests.support.records.rows import job_row, move_clock
from tests.support.servers.postgres import sql

WHY = ("--reason", "an \x1b[31maudit")
TOLD = "an ⟦U+001B⟧[31maudit"
CLAIMED_MAX = 500
WAIT = """
    WITH gone AS (DELETE FROM cortex_worker.task WHERE state = 'LOCKED' RETURNING job_id, attempt)
    UPDATE cortex.job_record SET status = 'RETRY', worker_job_id = NULL,
        next_retry_at = cortex.now(), waiting_on = 'effects:all', attempt = gone.attempt
    FROM gone WHERE id = gone.job_id
"""
IDLE_S = 2 * 86_400.0


@pytest.fixture
def doers(life: Life) -> Doers:
    return Doers(life.call, life.dsn)


def verdict(doers: Doers) -> str:
    found = doers.intend(doers.claimed())
    assert found is not None
    return found.verdict


def frozen(doers: Doers) -> str:
    """A job that came to an effect in a freeze, and waits."""
    claim = doers.claimed()
    doers.suspend(claim, delay_s=0.0, waiting_on="effects:all")
    return str(claim.lease.job_id)


def test_effects_are_frozen_and_freed(cortex: Cortex, doers: Doers) -> None:
    assert cortex("freeze", "status").out == "● effects may begin\n"
    on = cortex("freeze", "on", *WHY, "--as", "ana")
    assert (on.code, on.err) == (0, "")
    assert verdict(doers) == "frozen"
    frozen(doers)
    status = cortex("freeze", "status")
    assert status.code == 0
    head, output = status.out.splitlines()
    assert head == "✗ effects are frozen · 1 job waits"
    assert output.startswith(f"  frozen by {me('ana')} 20")
    assert output.endswith(f": {TOLD}")
    document = cortex("freeze", "status", "--json").document
    assert (document["is_frozen"], document["by"], document["waiting_jobs"]) == (True, me("ana"), 1)
    assert cortex("freeze", "status", "-o", "name").out == "frozen\n"

    off = cortex("freeze", "off", "--reason", "it is over", "--yes", "--json")
    assert off.document | {"schema_version": 1} == {
        "schema_version": 1,
        "is_frozen": False,
        "by": None,
        "reason": None,
        "frozen_at": None,
        "waiting_jobs": 1,
    }
    assert verdict(doers) == "go"
    assert doers.call(retries.due, limit=10).count == 1
    rows = doers.call(facts.page, types=["lifecycle"], since_s=60, source="effects:all")
    assert [(row.subtype, row.data["by"], row.data["reason"]) for row in rows] == [
        ("breaker_forced_closed", getpass.getuser(), "it is over"),
        ("breaker_forced_open", me("ana"), WHY[1]),
    ]


def test_frozen_jobs_are_counted_up_to_a_bound(cortex: Cortex, doers: Doers) -> None:
    assert cortex("freeze", "on", *WHY).code == 0
    for _ in range(0, breakers.COUNT_MAX + 1, CLAIMED_MAX):
        doers.claimed_many(CLAIMED_MAX)
    sql(doers.dsn, WAIT)
    status = cortex("freeze", "status")
    assert status.out.splitlines()[0] == "✗ effects are frozen · 1,000+ jobs wait"
    document = cortex("freeze", "status", "--json").document
    assert document["waiting_jobs"] == breakers.COUNT_MAX


def test_last_person_to_freeze_is_recorded(cortex: Cortex, doers: Doers) -> None:
    for name in ("ana", "bo"):
        assert cortex("freeze", "on", "--reason", f"{name}'s", "--as", name).code == 0
    assert doers.call(breakers.frozen).by == me("bo")
    assert cortex("freeze", "off", *WHY, "--yes").code == 0
    again = cortex("freeze", "off", *WHY, "--yes", "--json")
    assert again.code == 5
    assert again.error["message"] == "effects are not frozen"


def test_freeze_needs_a_reason_and_unfreezing_a_confirmation(cortex: Cortex, doers: Doers) -> None:
    assert "--reason" in cortex("freeze", "on").err
    assert "it is empty" in cortex("freeze", "on", "--reason", "  ").err
    assert cortex("freeze", "on", *WHY).code == 0
    ended = cortex("freeze", "off", *WHY)
    assert (ended.code, "hint: add --yes" in ended.err) == (2, True)
    for answer, code, left in (("n\n", 1, True), ("y\n", 0, False)):
        asking = cortex.on_terminal("freeze", "off", *WHY)
        asking.read_until(lambda text: "[y/N]" in text, what="the question")
        asking.type(answer)
        assert asking.end() == code, asking.text
        assert doers.call(breakers.frozen).is_frozen is left


def test_freeze_under_a_key_happens_once(cortex: Cortex, doers: Doers) -> None:
    key = ("--idempotency-key", "k-1")
    assert cortex("freeze", "on", *WHY, *key).code == 0
    doers.call(breakers.unfreeze, by=user("bo"), reason="over")
    again = cortex("freeze", "on", *WHY, *key)
    assert (again.code, "nothing was done" in again.err) == (0, True)
    assert not doers.call(breakers.frozen).is_frozen


def test_frozen_job_names_the_person_and_the_way_out(cortex: Cortex, doers: Doers) -> None:
    cortex("freeze", "on", *WHY, "--as", "ana")
    job = frozen(doers)
    words = f"waits until effects may begin: {me('ana')} froze them at 20"
    why = cortex("why", job)
    assert f"it {words}" in why.out
    assert f": {TOLD} · for " in why.out
    assert "  cortex freeze off --reason TEXT\n" in why.out
    assert cortex("why", job, "-o", "name").out == "freeze\n"
    assert words in cortex("jobs", "ls").out
    shown = cortex("jobs", "show", job)
    assert words in shown.out
    assert "waits for the end of the freeze of effects" in shown.out
    assert "↻ attempt 1: suspended" in shown.out
    assert "goes on when effects may begin, no retry used" in shown.out
    retried = cortex("jobs", "retry", job)
    assert retried.code == 0
    assert "cortex freeze off --reason TEXT" in retried.err


def test_freeze_is_not_a_circuit_breaker(cortex: Cortex, doers: Doers) -> None:
    cortex("freeze", "on", *WHY)
    assert cortex("breakers", "ls").out == ""
    for verb in ("open", "close"):
        ended = cortex("breakers", verb, "effects:all", "--reason", "r", "--yes")
        assert ended.code == 2
        assert "effects:all is the freeze of effects and no circuit breaker" in ended.err
        assert "cortex freeze" in ended.err
    move_clock(doers.dsn, IDLE_S)
    frozen(doers)
    assert doers.call(breakers.forget, idle_s=IDLE_S / 2, limit=10) == 0
    assert doers.call(retries.due, limit=10).count == 0, "nobody probes it, however long it lasts"
    assert verdict(doers) == "frozen"
    cortex("freeze", "off", *WHY, "--yes")
    move_clock(doers.dsn, 2 * IDLE_S)
    assert doers.call(breakers.forget, idle_s=IDLE_S / 2, limit=10) == 1
    assert (verdict(doers), doers.call(retries.due, limit=10).count) == ("go", 1)


def test_freeze_status_refuses_columns(cortex_nowhere: Cortex) -> None:
    ended = cortex_nowhere("freeze", "status", "--columns", "by")
    assert (ended.code, "the freeze has no columns" in ended.err) == (2, True)


def test_a_job_that_retries_in_a_freeze_does_not_run_in_circles(doers: Doers) -> None:
    """It waits without a task until the end, whatever its delay was."""
    doers.call(breakers.freeze, by="ana", reason="audit")
    job: Any = frozen(doers)
    for _ in range(3):
        assert doers.call(retries.due, limit=10).count == 0
    assert job_row(doers.dsn, job)["worker_job_id"] is None
