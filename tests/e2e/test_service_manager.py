"""A pod reports to its service manager, and serves its API on the socket that it was given."""

import os
import queue
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import attrs
import pytest

from tests.support.eventually import WITHIN_S
from tests.support.pods import APP, Pod, Pods, environment

WATCHDOG_S = 0.6


@attrs.frozen
class Manager:
    """A service manager: takes each report at once, since a pod waits for none to be taken."""

    address: str
    reports: "queue.SimpleQueue[str]" = attrs.field(factory=queue.SimpleQueue)

    def hear(self, what: str) -> None:
        """Wait for a report."""
        while not self.reports.get(timeout=WITHIN_S).startswith(what):
            pass


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    opened = Manager(str(tmp_path / "notify"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hearing:
        hearing.bind(opened.address)

        def take() -> None:
            while report := hearing.recv(4096):
                opened.reports.put(report.decode())

        taking = threading.Thread(target=take)
        taking.start()
        yield opened
        hearing.shutdown(socket.SHUT_RD)
        taking.join()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as given:
        yield given


def start(pods: Pods, manager: Manager, listening: socket.socket, *, workers: int) -> Pod:
    """Start a pod as systemd does: the socket is its file 3."""
    command = [sys.executable, "-m", "cortex", "up", "--app", APP, "--json"]
    as_file_3 = f"exec 3<&{listening.fileno()}; export LISTEN_PID=$$; exec {shlex.join(command)}"
    variables = {
        "NOTIFY_SOCKET": manager.address,
        "WATCHDOG_USEC": str(round(WATCHDOG_S * 1e6)),
        "LISTEN_FDS": "1",
    }
    log_path = pods.folder / "pod.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            ["/bin/bash", "-c", as_file_3],
            env={
                **environment(pods.dsn, pods.folder, pods.environment, workers=workers),
                **variables,
            },
            cwd=pods.folder,
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    pods.all.append(pod := Pod(process, log_path))
    pod.until_ready()
    return pod


@pytest.mark.parametrize("workers", [1, 2])
def test_pod_notifies_its_service_manager_and_serves_the_given_socket(
    pods: Pods, manager: Manager, listening: socket.socket, workers: int
) -> None:
    pod = start(pods, manager, listening, workers=workers)
    host, number = listening.getsockname()
    url = f"http://{host}:{number}"
    assert pod.ready["http"] == url
    manager.hear(f"READY=1\nSTATUS=pod {pod.name} takes jobs")
    manager.hear("WATCHDOG=1")
    manager.hear("WATCHDOG=1")
    with urlopen(f"{url}/healthz", timeout=10) as answer:  # noqa: S310 -- the pod under test
        assert answer.status == 200
    os.kill(pod.process.pid, signal.SIGTERM)
    manager.hear("STOPPING=1")
    assert pod.process.wait(WITHIN_S) == 0
    with socket.create_connection((host, number), timeout=5):
        pass  # the next pod will serve it


def test_an_address_of_its_own_beside_the_socket_is_refused(
    pods: Pods, manager: Manager, listening: socket.socket
) -> None:
    pods.environment["CORTEX_HTTP"] = "127.0.0.1:1"
    with pytest.raises(AssertionError, match="leave the setting out, or stop the socket unit"):
        start(pods, manager, listening, workers=1)
