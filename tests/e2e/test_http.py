"""A whole pod that serves the API: from its ready line to its end."""

import http.client
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods, end_of_pod
from tests.support.records.rows import submit, until_job

DRAINED = 0


def address_of(pod: Pod) -> tuple[str, int]:
    parts = urlsplit(pod.ready["http"])
    assert parts.hostname is not None
    assert parts.port
    return parts.hostname, parts.port


def get(pod: Pod, path: str, token: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*address_of(pod), timeout=10)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, json.loads(body)


@pytest.mark.smoke
def test_pod_serves_the_api_at_the_address_of_its_ready_line(pods: Pods, tmp_path: Path) -> None:
    pod = pods.start("--http", "127.0.0.1:0")
    assert get(pod, "/readyz")[0] == 200
    made = Cortex(tmp_path, pods.dsn)("tokens", "create", "--name", "ana", "--role", "viewer")
    status, output = get(pod, "/v1/pods", made.out.strip())
    assert status == 200
    assert [each["name"] for each in output["pods"]] == [pod.name]
    assert get(pod, "/v1/pods")[0] == 401
    assert made.out.strip() not in pod.log
    assert pod.stop() == DRAINED


def test_pod_serves_no_http_by_default(pods: Pods) -> None:
    assert pods.start().ready["http"] is None


def test_a_pod_that_strangers_could_reach_does_not_start(pods: Pods) -> None:
    pod = pods.launch(http="0.0.0.0:0")
    assert pod.exit_code(within_s=30) == 2
    assert "there is no token yet" in pod.log
    assert "Traceback" not in pod.log


@pytest.mark.smoke
def test_readiness_ends_with_the_first_signal_despite_hung_clients(pods: Pods, gate: Path) -> None:
    pod = pods.start("--http", "127.0.0.1:0", **end_of_pod(30))
    job_id = submit(pods.dsn, "gated", {"gate": str(gate)})
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    hung = [socket.create_connection(address_of(pod)) for _ in range(3)]
    hung[1].sendall(b"GET /healthz HT")
    hung[2].sendall(b"POST /v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
    pod.signal(signal.SIGTERM)
    eventually(lambda: get(pod, "/readyz")[0] == 503, what="it is not ready")
    assert get(pod, "/readyz")[1]["not_draining"] is False
    assert get(pod, "/healthz")[0] == 200
    gate.touch()
    began = time.monotonic()
    assert pod.exit_code() == DRAINED
    assert time.monotonic() - began < 25, "before its deadline"
    for each in hung:
        each.close()
