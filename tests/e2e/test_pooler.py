"""Two pods behind PgBouncer: everything works, and the jobs of a killed, silent one continue."""

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.support.doom import Payments
from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods, run_cli
from tests.support.records.rows import (
    assert_one_truth,
    job_row,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.servers.pgbouncer import PgBouncer, pgbouncer
from tests.support.servers.postgres import sql

ZOMBIE_S = 4.0
SWEPT_WITHIN_S = 20.0


@pytest.fixture
def pooler(database: str, server_home: Path) -> Iterator[PgBouncer]:
    """Fewer sessions than the pods and their clients would have."""
    with pgbouncer(database, server_home, sessions=4) as running:
        yield running


def started(payments: Payments, pooler: PgBouncer, **settings: object) -> Pod:
    pod = payments.launch("--dsn", pooler.dsn, zombie_s=ZOMBIE_S, **settings)
    pod.until_ready()
    return pod


def readiness(pod: Pod) -> Any:
    address = pod.ready["http"].removeprefix("http://")
    with closing(HTTPConnection(address, timeout=10)) as connection:
        connection.request("GET", "/readyz")
        return json.load(connection.getresponse())


def test_pods_behind_a_pooler_work_and_detect_death_by_silence(
    payments: Payments, pods: Pods, pooler: PgBouncer, gate: Path
) -> None:
    first = started(payments, pooler, http="127.0.0.1:0")
    assert first.log.count("behind a pooler") == 1
    assert readiness(first)["liveness"] == "heartbeat"

    waits = payments.submit("keyed", "waits", "pay_gated", gate=str(gate))
    stopped = payments.submit("keyed", "stopped", "pay_gated", gate=str(gate))
    done = [payments.submit(kind, kind) for kind in ("keyed", "asked", "effect", "approved")]
    for job_id in done[:-1]:
        until_status(pods.dsn, job_id, "COMPLETED")
    until_jobs(pods.dsn, "status = 'WAITING_FOR_APPROVAL'", count=1)
    payments.approve()
    until_status(pods.dsn, done[-1], "COMPLETED")

    def cli(*words: str) -> str:
        ran = run_cli(*words, dsn=pooler.dsn, folder=pods.folder)
        assert ran.exit_code == 0, ran.stderr
        return ran.stdout

    cli("jobs", "cancel", str(stopped), "--yes", "--reason", "no need")
    until_status(pods.dsn, stopped, "CANCELLED")

    direct = payments.start()  # looks for dead pods: without a lock is not dead
    second = started(payments, pooler)
    output = {
        row["name"]: row["liveness"] for row in json.loads(cli("pods", "ls", "--json"))["pods"]
    }
    assert output == {first.name: "heartbeat", second.name: "heartbeat", direct.name: "lock"}
    assert direct.stop() == 0
    assert job_row(pods.dsn, waits)["attempt"] == 1

    first.kill()
    until_job(
        pods.dsn,
        waits,
        lambda row: row["attempt"] == 2 and row["pod"] == second.name,
        "on the other pod",
        within_s=SWEPT_WITHIN_S,
    )
    gate.touch()
    until_status(pods.dsn, waits, "COMPLETED")
    for account in ("waits", "keyed", "asked", "effect", "approved"):
        assert len(payments.ledger.applied(account)) == 1, account
    assert second.stop() == 0
    assert_one_truth(pods.dsn)
    assert "prepared statement" not in pooler.log + first.log + second.log
    held = """
        SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE locktype = 'advisory' AND d.datname = current_database()
    """
    eventually(lambda: not sql(pods.dsn, held), what="no lock is left in a lent session")
