"""Messages of real pods to a real receiver: pods die while they send, and none is lost."""

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods
from tests.support.servers.postgres import sql

SUBSCRIBE = """
    INSERT INTO cortex.subscription (name, topic, channel, config, changed_by)
    VALUES ('a', 'order.*', 'webhook', $1, 'test')
"""
PUBLISH = """
    SELECT cortex.publish('order.paid', jsonb_build_object('n', n), 'k' || n % 20)::text AS id
    FROM generate_series(1, $1) n
"""
MESSAGES = 120


class Received:
    """What a receiver got: (id, key, number), in order."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, int]] = []


@contextmanager
def receiving() -> Iterator[tuple[str, Received]]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            entry = (self.headers["webhook-id"], body["key"], body["data"]["n"])
            received.messages.append(entry)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", received
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "point", ["after_outbox_claim", "after_message_sent", "after_outbox_record"]
)
def test_a_pod_killed_while_it_sends_loses_nothing(pods: Pods, point: str) -> None:
    """A message is sent twice at most by a death, and under the same id; each key in order."""
    pods.environment["CORTEX_HTTP_ALLOW"] = "127.0.0.0/8"
    pods.environment["HOOK"] = "whsec_" + base64.b64encode(bytes(32)).decode()
    with receiving() as (url, received):
        config = json.dumps({"url": url, "secrets": ["env:HOOK"]})
        sql(pods.dsn, SUBSCRIBE, config)
        published = {row["id"] for row in sql(pods.dsn, PUBLISH, MESSAGES)}
        pods.environment["CORTEX_CRASH_AT"] = f"{point}:2"
        doomed = pods.launch()
        eventually(lambda: doomed.process.poll() is not None, what="the pod is dead")
        del pods.environment["CORTEX_CRASH_AT"]
        pods.start()
        pending = "SELECT count(*) AS n FROM cortex.outbox WHERE status <> 'SENT'"
        eventually(lambda: sql(pods.dsn, pending)[0]["n"] == 0, what="all are sent", within_s=30.0)
    counts = Counter(message_id for message_id, _, _ in received.messages)
    assert set(counts) == published
    assert max(counts.values()) <= 2
    assert sum(counts.values()) - MESSAGES <= 50, "what the killed pod had claimed"
    first_seen: dict[str, list[int]] = {}
    for _, key, number in received.messages:
        numbers = first_seen.setdefault(key, [])
        if number not in numbers:
            numbers.append(number)
    assert all(numbers == sorted(numbers) for numbers in first_seen.values())
