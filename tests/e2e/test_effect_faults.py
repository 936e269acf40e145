"""Effects while pods pause and leave, databases restart, replies get lost and answers are bad."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from tests.support.doom import Payments
from tests.support.eventually import eventually
from tests.support.pods import Pods, end_of_pod
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_row,
    steps,
    until_job,
    until_status,
)
from tests.support.servers.ledger import running_ledger
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres
from tests.support.servers.proxy import Proxy, proxy

SILENT: dict[str, float] = {"heartbeat_s": 0.2, "zombie_s": 2.5, "sweep_s": 0.2}


def held(payments: Payments, kind: str, *, when: str, type_: str = "pay") -> UUID:
    """A job whose first call the ledger holds, before or after it applied it; it is there now."""
    payments.ledger.set(kind, honours_key=kind == "keyed", held=when, times=1, is_fenced=True)
    job_id = payments.submit(kind, kind, type_)
    eventually(lambda: payments.ledger.request_count(kind) == 1, what=f"{kind} is called")
    return job_id


def paid_once(payments: Payments, kind: str, *, attempt: int) -> int:
    """The payment made once, by this attempt, under the effect's id."""
    (application,) = payments.ledger.applied(kind)
    effect = payments.effect(payments.accounts[kind])
    assert (application.key, application.attempt) == (str(effect["id"]), attempt)
    assert effect["status"] == "COMPLETED"
    return application.result


# --- pods


@pytest.mark.smoke("An effect is applied once, or a person decides")
def test_paused_pod_can_neither_pay_nor_report_afterwards(payments: Payments) -> None:
    paused = payments.start(**SILENT)
    keyed = held(payments, "keyed", when="after")
    asked = held(payments, "asked", when="before")
    blind = held(payments, "blind", when="after")
    paused.signal(signal.SIGSTOP)
    heir = payments.start(**SILENT)
    payments.until(2, "COMPLETED")
    payments.until(1, "WAITING_FOR_APPROVAL")
    for kind in payments.accounts:
        payments.ledger.release(kind)
    paused.signal(signal.SIGCONT)
    gone = "SELECT FROM cortex.pod WHERE name = $1 AND running = 0 AND heartbeat_at > $2"
    (now,) = sql(payments.dsn, "SELECT cortex.now() AS at")
    idle = lambda: sql(payments.dsn, gone, paused.name, now["at"])  # noqa: E731
    eventually(idle, what="the paused pod has stopped the lost jobs")
    heirs = {job_id: payments.effect(job_id)["attempt"] for job_id in (keyed, asked)}
    assert min(heirs.values()) > 1
    assert job_row(payments.dsn, keyed)["result"] == paid_once(payments, "keyed", attempt=1)
    paid = paid_once(payments, "asked", attempt=heirs[asked])
    assert job_row(payments.dsn, asked)["result"] == paid
    assert payments.ledger.request_count("asked") == 2, "the late one was refused by its number"
    for job_id, attempt in heirs.items():
        assert steps(payments.dsn, job_id) == [(1, attempt, "tool", "pay")]
    assert payments.effect(blind)["status"] == "UNKNOWN", "the late outcome changes nothing"
    assert paused.is_alive
    assert heir.is_alive
    assert_one_truth(payments.dsn)


def test_effect_cut_off_by_a_drain_is_reconciled_elsewhere(payments: Payments) -> None:
    leaving = payments.start(**end_of_pod(0.3))
    ids = {kind: held(payments, kind, when="after") for kind in ("keyed", "asked", "blind")}
    assert leaving.stop() == 0
    for job_id in ids.values():
        assert payments.effect(job_id)["status"] == "PENDING"
        assert attempts(payments.dsn, job_id) == [(1, "handed_back")]
    payments.start()
    payments.until(2, "COMPLETED")
    for kind in ("keyed", "asked"):
        paid = paid_once(payments, kind, attempt=1)
        assert job_row(payments.dsn, ids[kind])["result"] == paid
    assert payments.ledger.request_count("asked") == 1
    until_status(payments.dsn, ids["blind"], "WAITING_FOR_APPROVAL")
    assert payments.effect(ids["blind"])["status"] == "UNKNOWN"
    assert_one_truth(payments.dsn)


# --- the database


def test_a_database_that_restarts_during_the_call_is_waited_for(
    private_postgres: PrivatePostgres, tmp_path: Path
) -> None:
    with running_ledger() as ledger:
        pods = Pods(private_postgres.dsn, tmp_path, environment={"LEDGER_URL": ledger.url})
        payments = Payments(pods, ledger)
        try:
            payments.start()
            job_id = held(payments, "blind", when="after")
            private_postgres.stop_immediate()
            ledger.release("blind")
            private_postgres.start()
            row = until_status(payments.dsn, job_id, "COMPLETED")
            assert row["result"] == paid_once(payments, "blind", attempt=1)
            assert row["attempt"] == 1
            assert ledger.request_count("blind") == 1
            assert_one_truth(payments.dsn)
        finally:
            pods.close()


# How they begin; the server shows no more than a kilobyte.
STATEMENTS = {"intent": "WITH asked AS MATERIALIZED (", "outcome": "SET checkpoint = coalesce("}
COMMITTED = {
    "intent": "SELECT FROM cortex.effect WHERE job_id = $1",
    "outcome": "SELECT FROM cortex.effect WHERE job_id = $1 AND status = 'COMPLETED'",
}


@pytest.mark.smoke("An effect is applied once, or a person decides", case="outcome")
@pytest.mark.parametrize("what", STATEMENTS)
def test_commit_with_a_lost_reply_counts_once(
    database: str, tmp_path: Path, gate: Path, what: str
) -> None:
    with running_ledger() as ledger, proxy(database) as network:
        pods = Pods(network.dsn, tmp_path, environment={"LEDGER_URL": ledger.url})
        payments = Payments(pods, ledger)
        try:
            pod = payments.start()
            ledger.set("blind", honours_key=False, held="before")
            job_id = payments.submit("blind", "blind", "pay_gated", gate=str(gate))
            if what == "outcome":
                gate.touch()
                eventually(lambda: ledger.request_count("blind"), what="it is called")
                lose_reply(database, network, job_id, what, lambda: ledger.release("blind"))
            else:
                until_job(database, job_id, lambda row: row["status"] == "RUNNING", "running")
                lose_reply(database, network, job_id, what, gate.touch)
                ledger.release("blind")
            row = until_status(database, job_id, "COMPLETED")
            assert (row["result"], row["attempt"]) == (paid_once(payments, "blind", attempt=1), 1)
            assert payments.effect(job_id)["calls_count"] == 1
            assert "commit delayed" in pod.log, "its outcome was unknown"
            assert ledger.request_count("blind") == 1
            assert_one_truth(database)
        finally:
            pods.close()


def lose_reply(
    dsn: str, network: Proxy, job_id: UUID, what: str, begin: Callable[[], None]
) -> None:
    """Hold back the statement by its job's lock; let it commit when its reply cannot pass."""

    async def hold() -> None:
        holder = await asyncpg.connect(dsn)
        held = holder.transaction()
        await held.start()
        await holder.fetch("SELECT FROM cortex_worker.task WHERE job_id = $1 FOR UPDATE", job_id)
        begin()
        waiting = (
            "SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock' AND position($1 in query) > 0"
        )
        eventually(lambda: sql(dsn, waiting, STATEMENTS[what]), what=f"the {what} waits")
        network.blackhole()
        await held.rollback()
        await holder.close()

    run_asyncio(hold)
    eventually(lambda: sql(dsn, COMMITTED[what], job_id), what=f"the {what} is committed")
    network.reset()
    network.heal()


# --- the other side


def test_each_answer_of_the_other_side_leads_to_its_outcome(payments: Payments) -> None:
    terms: dict[str, dict[str, Any]] = {
        "refused": {"refusal": 422},
        "refused-told": {"refusal": 422},
        "applied-503": {"answer": "error", "honours_key": False},
        "applied-cut": {"answer": "drop", "honours_key": False},
        "busy": {"refusal": 503, "times": 1, "honours_key": False},
        "keyed-503": {"answer": "error", "times": 1},
        "keyed-cut": {"answer": "drop", "times": 1},
        "blind-503": {"answer": "error", "honours_key": False},
    }
    for account, words in terms.items():
        payments.ledger.set(account, **words)
        kind = account.partition("-")[0] if account.startswith(("keyed", "blind")) else "asked"
        payments.submit(kind, account, "pay_and_tell" if account.endswith("told") else "pay")
    payments.start()
    payments.until(6, "COMPLETED")
    payments.until(1, "FAILED")
    payments.until(1, "WAITING_FOR_APPROVAL")
    counts = {
        account: (
            job_row(payments.dsn, job_id)["status"],
            payments.effect(job_id)["status"],
            len(payments.ledger.applied(account)),
            payments.ledger.request_count(account),
        )
        for account, job_id in payments.accounts.items()
    }
    assert counts == {
        "refused": ("FAILED", "FAILED", 0, 1),
        "refused-told": ("COMPLETED", "FAILED", 0, 1),
        "applied-503": ("COMPLETED", "COMPLETED", 1, 1),
        "applied-cut": ("COMPLETED", "COMPLETED", 1, 1),
        "busy": ("COMPLETED", "COMPLETED", 1, 2),
        "keyed-503": ("COMPLETED", "COMPLETED", 1, 2),
        "keyed-cut": ("COMPLETED", "COMPLETED", 1, 2),
        "blind-503": ("WAITING_FOR_APPROVAL", "UNKNOWN", 1, 1),
    }
    assert "422" in job_row(payments.dsn, payments.accounts["refused-told"])["result"]["told"]
    assert_one_truth(payments.dsn)


def test_failed_reconcile_is_repeated_or_left_to_a_person(payments: Payments, gate: Path) -> None:
    for account in ("closed", "buggy", "vague"):
        payments.ledger.set(account, answer="drop", honours_key=False)
        payments.submit("asked", account)
    payments.start()
    closed = payments.accounts["closed"]
    eventually(
        lambda: attempts(payments.dsn, closed) == [(1, "failed")], what="it is to be asked later"
    )
    assert job_row(payments.dsn, closed)["status"] == "RUNNING", "no person knows either"
    assert payments.effect(closed)["status"] == "PENDING"
    gate.touch()
    for account, why in (("buggy", "KeyError"), ("vague", "two payments look like it")):
        job_id = payments.accounts[account]
        until_status(payments.dsn, job_id, "WAITING_FOR_APPROVAL")
        effect = payments.effect(job_id)
        assert effect["status"] == "UNKNOWN"
        assert why in effect["why"]
    row = until_status(payments.dsn, closed, "COMPLETED")
    assert row["result"] == paid_once(payments, "closed", attempt=1)
    assert payments.ledger.request_count("closed") == 1
    assert_one_truth(payments.dsn)


def test_calls_at_once_ask_for_all_decisions_at_once(payments: Payments) -> None:
    payments.start()
    accounts = ["one", "two", "three"]
    job_id = payments.submit("both", "one", "pay_both", accounts=accounts)
    until_status(payments.dsn, job_id, "WAITING_FOR_APPROVAL")
    assert payments.requests(job_id) == ["PENDING"] * 3
    payments.approve("two")
    eventually(lambda: payments.ledger.applied("two"), what="what was approved is paid")
    until_status(payments.dsn, job_id, "WAITING_FOR_APPROVAL")
    payments.approve()
    row = until_status(payments.dsn, job_id, "COMPLETED")
    assert len(set(row["result"])) == 3
    for account in accounts:
        assert len(payments.ledger.applied(account)) == 1
    assert payments.requests(job_id) == ["APPROVED"] * 3
    assert_one_truth(payments.dsn)
