"""Postgres lacks disk, room for its log, or connections; or its network swallows everything.

Pods report the cause, retry seldom, and recover by themselves; no job is counted, lost or stuck.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods, run_cli, until_pods
from tests.support.records.rows import (
    assert_one_truth,
    job_count,
    submit,
    submit_many,
    until_jobs,
    until_status,
)
from tests.support.servers.postgres import remove_servers, sql
from tests.support.servers.private_postgres import bindirs, copy_of_original
from tests.support.servers.proxy import proxy
from tests.support.servers.short_server import POOL_SESSIONS, ShortServer, crowded, short_server

JOBS = 100
STEPS = 4
BACK_WITHIN_S = 60.0
"""The longest pause of a loop is 15 s; the rest is for a busy machine."""

pytestmark = pytest.mark.timeout(300)


def readiness(pod: Pod) -> dict[str, Any]:
    """The document of `/readyz`, with the status as `http`."""
    try:
        with urllib.request.urlopen(f"{pod.ready['http']}/readyz", timeout=5) as answer:  # noqa: S310
            return {"http": answer.status, **json.loads(answer.read())}
    except urllib.error.HTTPError as refusal:
        return {"http": refusal.code, **json.loads(refusal.read())}


def until_trouble(pods: Pods, trouble: str, *, within_s: float = 30.0) -> float:
    """Wait until every pod says so; return after how many seconds."""
    began = time.monotonic()
    for pod in pods.all:
        output = eventually(
            lambda pod=pod: (  # type: ignore[misc]
                found if (found := readiness(pod))["database_trouble"] == trouble else None
            ),
            what=f"{pod.name} reports {trouble}",
            within_s=within_s,
        )
        assert output is not None
        assert (output["http"], output["database"], output["claiming"]) == (503, False, False)
        assert output["database_trouble_s"] >= 0
    return time.monotonic() - began


def until_ready(pods: Pods, what: str) -> None:
    """Wait until every pod takes work again; write down after how many seconds."""
    began = time.monotonic()
    for pod in pods.all:
        eventually(
            lambda pod=pod: readiness(pod)["http"] == 200,  # type: ignore[misc]
            what=f"{pod.name} is ready again after {what}",
            within_s=BACK_WITHIN_S,
        )
    sys.stdout.write(f"ready again after {what}: {time.monotonic() - began:.1f} s\n")


def lines(pod: Pod, event: str) -> list[dict[str, Any]]:
    """The log lines of a pod under this name."""
    found = (json.loads(line) for line in pod.log.splitlines() if line.startswith("{"))
    return [line for line in found if line["event"] == event]


def assert_nothing_was_counted(dsn: str) -> None:
    """No retry and no attempt was used up, no job was swept or taken over."""
    query = "SELECT DISTINCT outcome FROM cortex.job_attempt"
    assert {row["outcome"] for row in sql(dsn, query)} <= {"handed_back"}
    assert job_count(dsn, "retry_count > 0 OR pod_deaths > 0 OR status = 'FAILED'") == 0
    assert_one_truth(dsn)


# --- a server that lacks something


@frozen
class Short:
    """Two pods on a server that can be made to lack something."""

    short: ShortServer
    pods: Pods

    @property
    def dsn(self) -> str:
        return self.pods.dsn

    def submit(self, count: int, payload: dict[str, Any]) -> None:
        """Submit jobs that one counted attempt would fail."""
        query = (
            "SELECT cortex.submit_job('steps', $1::jsonb, worker_attempts => 1, max_retries => 0) "
            "FROM generate_series(1, $2)"
        )
        sql(self.dsn, query, json.dumps(payload), count)


@pytest.fixture(scope="module")
def lacking(run_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Short]:
    bindir = bindirs()[0]
    home = copy_of_original(run_dir, bindir=bindir)
    try:
        with short_server(home, bindir) as short:
            folder = tmp_path_factory.mktemp("pods")
            with closing(Pods(short.server.dsn, folder)) as pods:
                for _ in range(2):
                    pods.start("--http", "127.0.0.1:0", settle_s=1, slots=JOBS // 2)
                yield Short(short, pods)
    finally:
        remove_servers(home)


def test_a_full_disk_costs_time_and_no_job(lacking: Short, gate: Path) -> None:
    short, pods, dsn = lacking.short, lacking.pods, lacking.dsn
    output = [len(lines(pod, "database trouble")) for pod in pods.all]
    lacking.submit(JOBS, {"count": STEPS, "gate": str(gate)})
    until_jobs(dsn, "checkpoint->'seq' = '1'", count=JOBS)
    with short.data.full():
        gate.touch()
        until_trouble(pods, "disk_full")
        lasts = lambda: all(readiness(pod)["database_trouble_s"] > 2 for pod in pods.all)  # noqa: E731
        eventually(lasts, what="it lasts")
    until_ready(pods, "a full disk")
    until_jobs(dsn, f"status = 'COMPLETED' AND result = '{STEPS}'", count=JOBS)
    for pod, before in zip(pods.all, output, strict=True):
        alarms = lines(pod, "database trouble")[before:]
        assert [(line["level"], line["trouble"]) for line in alarms] == [("error", "disk_full")]
    assert_nothing_was_counted(dsn)
    assert job_count(dsn, "attempt > 1") == 0


def test_full_log_disk_stops_the_server_and_loses_no_acknowledged_job(
    lacking: Short, gate: Path
) -> None:
    short, pods, dsn = lacking.short, lacking.pods, lacking.dsn
    acknowledged = [submit(dsn, "gated", {"gate": str(gate)}) for _ in range(4)]
    for job_id in acknowledged:
        until_status(dsn, job_id, "RUNNING")
    with short.log.full():
        acknowledged += [submit(dsn, "noop") for _ in range(20)]
        short.write_log_until_down()
        gate.touch()
        until_trouble(pods, "unreachable")
    short.server.start()
    until_ready(pods, "a full disk of the log")
    for job_id in acknowledged:
        assert until_status(dsn, job_id, "COMPLETED")["attempt"] == 1
    assert_nothing_was_counted(dsn)
    assert all(pod.is_alive for pod in pods.all)


def test_without_connections_pods_keep_their_locks_and_wait(
    lacking: Short, gate: Path, tmp_path: Path
) -> None:
    pods, dsn = lacking.pods, lacking.dsn
    running = [submit(dsn, "gated", {"gate": str(gate)}) for _ in range(4)]
    for job_id in running:
        until_status(dsn, job_id, "RUNNING")
    with crowded(lacking.short.server) as crowd:
        gate.touch()

        def are_cut_off() -> bool:
            crowd.sql(POOL_SESSIONS)  # they may have been quicker than the crowd
            return {readiness(pod)["database_trouble"] for pod in pods.all} == {"no_connections"}

        eventually(are_cut_off, what="pods have lost their pools")
        until_trouble(pods, "no_connections")
        # The heartbeat has its own connection, and reports it.
        query = "SELECT FROM cortex.pod WHERE state = 'READY' AND trouble = 'no_connections'"
        eventually(lambda: len(crowd.sql(query)) == len(pods.all), what="their rows show it")
        refused = run_cli("up", "--json", dsn=dsn, folder=tmp_path).refused()
        assert "short of resources" in refused["message"]
    until_ready(pods, "no connections")
    for job_id in running:
        assert until_status(dsn, job_id, "COMPLETED")["attempt"] == 1
    eventually(
        lambda: not sql(dsn, "SELECT FROM cortex.pod WHERE trouble IS NOT NULL"), what="well"
    )
    assert_nothing_was_counted(dsn)


# --- a network that swallows everything


def test_an_outage_longer_than_the_threshold_makes_no_zombie(
    database: str, tmp_path: Path, gate: Path
) -> None:
    """All pods stop their jobs by themselves, and take them up again."""
    quick: dict[str, object] = {"zombie_s": 4, "settle_s": 1, "sweep_s": 0.2, "slots": JOBS // 2}
    with proxy(database) as network, closing(Pods(network.dsn, tmp_path)) as pods:
        for _ in range(2):
            pods.start("--http", "127.0.0.1:0", **quick)
        submit_many(database, JOBS, "gated", {"gate": str(gate)})
        until_jobs(database, "checkpoint->'seq' = '1'", count=JOBS)
        network.blackhole()
        fenced = "fence reached: all jobs stopped"
        eventually(lambda: all(lines(pod, fenced) for pod in pods.all), what="all are fenced")
        late = "heartbeat_at < cortex.now() - interval '5 s'"
        until_jobs(database, late, count=JOBS)
        seen_s = until_trouble(pods, "silent")
        sys.stdout.write(f"silence seen {seen_s:.1f} s later\n")
        network.heal()
        until_ready(pods, "a black hole")
        gate.touch()
        until_jobs(database, "status = 'COMPLETED'", count=JOBS)
        assert_nothing_was_counted(database)
        until_pods(database, READY=2)
