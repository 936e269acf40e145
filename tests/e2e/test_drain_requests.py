"""A person drains a pod that stays: its jobs continue elsewhere, until it takes jobs again."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.e2e.test_http import get
from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.people import me
from tests.support.pods import Pod, Pods
from tests.support.records.rows import assert_one_truth, attempts, submit, until_job, until_status
from tests.support.servers.postgres import sql


def begun(pods: Pods, gate: Path) -> UUID:
    """A job that has one step of three and waits for the gate."""
    job_id = submit(pods.dsn, "steps", {"count": 3, "gate": str(gate)})
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    return job_id


def shown(cortex: Cortex, pod: Pod) -> dict[str, Any]:
    rows: list[dict[str, Any]] = cortex("pods", "ls", "--json").document["pods"]
    return next(row for row in rows if row["name"] == pod.name)


def test_a_drained_pod_hands_back_stays_and_takes_jobs_again(
    pods: Pods, gate: Path, tmp_path: Path
) -> None:
    cortex = Cortex(tmp_path, pods.dsn)
    drained = pods.start("--http", "127.0.0.1:0", poll_s=30)
    job_id = begun(pods, gate)
    done = cortex("pods", "drain", drained.name, "--reason", "a deploy", "--as", "ana", "--json")
    assert done.code == 0, done.err
    eventually(lambda: shown(cortex, drained)["state"] == "DRAINING", what="it says that it drains")
    row = shown(cortex, drained)
    assert (row["drain_requested_by"], row["drain_reason"]) == (me("ana"), "a deploy")
    assert (row["running"], row["phase"]) == (1, None)
    status, ready = get(drained, "/readyz")
    assert (status, ready["drain_request"], ready["jobs_left"]) == (503, "draining", 1)
    assert (ready["claiming"], ready["database"]) == (False, True)

    waiting = submit(pods.dsn, "steps", {"count": 1})
    gate.touch()
    eventually(lambda: shown(cortex, drained)["running"] == 0, what="its job is handed back")
    assert attempts(pods.dsn, job_id) == [(1, "handed_back")]
    assert get(drained, "/readyz")[1]["drain_request"] == "drained"
    assert sql(pods.dsn, "SELECT attempt FROM cortex.job WHERE id = $1", waiting)[0]["attempt"] == 0
    assert drained.is_alive

    # It does not poll again before half a minute is over: what wakes it is the command.
    done = cortex("pods", "undrain", drained.name, "--as", "ben")
    assert done.code == 0, done.err
    for each in (waiting, job_id):
        assert until_status(pods.dsn, each, "COMPLETED")["pod"] == drained.name
    assert attempts(pods.dsn, job_id) == [(1, "handed_back")]
    eventually(lambda: shown(cortex, drained)["state"] == "READY", what="it is ready again")
    assert get(drained, "/readyz")[0] == 200
    assert_one_truth(pods.dsn)
    assert drained.stop() == 0


@pytest.mark.smoke
def test_jobs_of_a_drained_pod_continue_in_other_pods(
    pods: Pods, gate: Path, tmp_path: Path
) -> None:
    cortex = Cortex(tmp_path, pods.dsn)
    drained = pods.start()
    job_id = begun(pods, gate)
    other = pods.start()
    cortex("pods", "drain", drained.name, "--reason", "a deploy")
    eventually(lambda: shown(cortex, drained)["state"] == "DRAINING", what="it drains")
    gate.touch()
    assert until_status(pods.dsn, job_id, "COMPLETED")["pod"] == other.name
    row = shown(cortex, drained)
    assert row["moved"] == {
        "groups": [{"what": "ended", "pod": None, "count": 1}],
        "is_whole": True,
    }
    assert row["connections"] >= 2, "its heartbeat's and what it listens with"
    assert drained.stop() == 0, "a drained pod leaves as ever"
    rows = sql(pods.dsn, "SELECT subtype, data FROM cortex.fact WHERE subtype LIKE 'pod_%'")
    assert [(row["subtype"], json.loads(row["data"])["reason"]) for row in rows] == [
        ("pod_drained", "a deploy")
    ]
    assert_one_truth(pods.dsn)


def test_draining_an_unknown_pod_fails_in_one_line(pods: Pods, tmp_path: Path) -> None:
    cortex = Cortex(tmp_path, pods.dsn)
    for verb in ("drain", "undrain"):
        done = cortex("pods", verb, "nobody:1")
        assert done.code == 3
        assert "no living pod is called 'nobody:1'" in done.err.splitlines()[0]
        assert "Traceback" not in done.err
