"""Built-in job types on real pods: a pod killed in the middle of a request."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods
from tests.support.records.rows import assert_one_truth, submit, until_status
from tests.support.servers.postgres import sql

pytestmark = pytest.mark.timeout(120)


class Receiver(ThreadingHTTPServer):
    """Takes requests and keeps their keys; while it is `stuck`, it answers none."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str | None]] = []
        self.stuck = threading.Event()
        self.released = threading.Event()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def keys(self, path: str) -> list[str | None]:
        return [key for asked, key in self.asked if asked == path]


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, self.headers.get("Idempotency-Key")))
        if self.server.stuck.is_set():
            self.server.released.wait()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_pod_killed_in_the_middle_of_a_post(pods: Pods, receiver: Receiver) -> None:
    """One that may be repeated is, under its key; of the other one a person decides."""
    pods.environment["CORTEX_HTTP_ALLOW"] = receiver.host
    receiver.stuck.set()
    first = pods.start()
    once, again = (
        submit(
            pods.dsn,
            "http_request",
            {
                "url": f"http://{receiver.host}/{path}",
                "method": "POST",
                "body": "x",
                "idempotent": path == "again",
            },
        )
        for path in ("once", "again")
    )
    eventually(lambda: len(receiver.asked) == 2, what="both requests are under way")
    first.kill()
    receiver.stuck.clear()
    pods.start()
    assert until_status(pods.dsn, again, "COMPLETED")["result"]["body"] == "ok"
    waiting = until_status(pods.dsn, once, "WAITING_FOR_APPROVAL")
    assert waiting["waiting_on"].startswith("effect:")
    assert len(receiver.keys("/once")) == 1
    keys = receiver.keys("/again")
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert_one_truth(pods.dsn)


def test_a_request_submitted_before_any_pod_has_the_policy_of_its_type(pods: Pods) -> None:
    job_id = submit(pods.dsn, "http_request", {"url": "http://127.0.0.1:1/"})
    query = "SELECT worker_attempts, max_retries, timeout_s FROM cortex.job WHERE id = $1"
    assert tuple(sql(pods.dsn, query, job_id)[0]) == (5, 3, 600)
    pods.start()
    failed = until_status(pods.dsn, job_id, "FAILED")
    assert "not a public address" in failed["error_message"]
