"""Traces of real pods, as a real collector receives them."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cortex.domain.tracing.traceparent import TraceParent
from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import steps, submit, until_status
from tests.support.servers.otlp_receiver import Collector, Received, collector
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import MODEL, ScriptedModel, program

GIVEN = TraceParent(bytes(range(1, 17)), bytes(range(1, 9)))
SUBSCRIBE = """
    INSERT INTO cortex.subscription (name, topic, channel, config, changed_by)
    VALUES ('a', 'order.*', 'webhook', $1, 'test')
"""
DECIDE = "SELECT id::text FROM cortex.approval WHERE job_id = $1 AND status = 'PENDING'"


class Server(ThreadingHTTPServer):
    """Takes requests and webhooks, and keeps their traceparents by method."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.traceparents: dict[str, str | None] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.traceparents[self.command] = self.headers["traceparent"]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def traces(pods: Pods, model: ScriptedModel) -> Iterator[Collector]:
    with collector() as received:
        pods.environment |= received.environment | model.environment
        pods.environment["CORTEX_HTTP_ALLOW"] = "127.0.0.0/8"
        pods.environment["HOOK"] = "whsec_" + base64.b64encode(bytes(32)).decode()
        yield received


def test_a_job_is_one_trace_over_kills_waits_and_messages(
    pods: Pods, traces: Collector, model: ScriptedModel, server: Server, gate: Path
) -> None:
    app = ("--app", "tests.support.apps.traced_app")
    sql(pods.dsn, SUBSCRIBE, json.dumps({"url": server.url, "secrets": ["env:HOOK"]}))
    first = pods.start(*app)
    prompt = program({"text": "done"}, mark="traced")
    job_id = submit(
        pods.dsn,
        "traced",
        {"gate": str(gate), "url": server.url, "model": MODEL, "prompt": prompt},
        traceparent=str(GIVEN),
    )
    eventually(lambda: steps(pods.dsn, job_id), what="the first step is recorded")
    traces.until("begun")
    logged = [json.loads(line) for line in first.log.splitlines() if '"in a step"' in line]
    assert [line["trace_id"] for line in logged] == [GIVEN.trace_id.hex()]
    first.kill()
    gate.touch()
    second = pods.start(*app)
    until_status(pods.dsn, job_id, "WAITING_FOR_APPROVAL")
    approval_id = sql(pods.dsn, DECIDE, job_id)[0]["id"]
    decided = run_cli(
        *("approvals", "approve", approval_id, "--yes", "--as", "ana"),
        dsn=pods.dsn,
        folder=pods.folder,
    )
    assert decided.exit_code == 0, decided.stderr
    until_status(pods.dsn, job_id, "COMPLETED")
    spans = _by_name(traces.until("job traced", "attempt 1", "attempt 3", "send order.paid"))
    assert second.stop() == 0

    assert {each.trace_id for each in spans.values()} == {GIVEN.trace_id.hex()}
    assert spans["job traced"].parent_id == GIVEN.span_id.hex()
    assert spans["job traced"].id == job_id.hex[16:]
    check_parents(spans)
    check_contents(spans)
    handed_on = {
        method: TraceParent.parse(text or "") for method, text in server.traceparents.items()
    }
    assert handed_on == {
        "GET": GIVEN.child(bytes.fromhex(spans["look"].id)),
        "POST": GIVEN.child(bytes.fromhex(spans["send order.paid"].id)),
    }
    cost = sql(pods.dsn, "SELECT DISTINCT trace_id FROM cortex.fact WHERE job_id = $1", job_id)
    assert [row["trace_id"] for row in cost] == [GIVEN.trace_id.hex()]


def check_parents(spans: dict[str, Received]) -> None:
    names = {each.id: name for name, each in spans.items()}
    parents = {name: names.get(each.parent_id) for name, each in spans.items()}
    assert parents == {
        "job traced": None,
        "attempt 1": "job traced",  # exported for the killed pod
        "begun": "attempt 1",
        "attempt 2": "job traced",
        "ask": "attempt 2",
        f"chat {MODEL}": "ask",
        "look": "attempt 2",
        "execute_tool http_request": "look",
        "release": parents["release"],  # once broken off by the wait, once recorded
        "approval release": "job traced",
        "attempt 3": "job traced",
        "publish order.paid": "attempt 3",
        "send order.paid": "job traced",
        "pay": "attempt 3",
        "effect pay": "pay",
    }


def check_contents(spans: dict[str, Received]) -> None:
    job = spans["job traced"]
    outcomes = [spans[f"attempt {n}"].attributes["cortex.outcome"] for n in (1, 2, 3)]
    assert outcomes == ["pod_died", "suspended", "completed"]
    assert spans["attempt 1"].error == "pod died"
    assert spans["begun"].resource["service.instance.id"] != job.resource["service.instance.id"]
    assert job.resource["service.name"] == "cortex"
    assert job.attributes["cortex.job.type"] == "traced"
    call = spans[f"chat {MODEL}"].attributes
    assert call["gen_ai.provider.name"] == "anthropic"
    assert (call["gen_ai.request.model"], call["gen_ai.response.finish_reasons"]) == (
        MODEL,
        ["end_turn"],
    )
    assert min(call["gen_ai.usage.input_tokens"], call["gen_ai.usage.output_tokens"]) > 0
    wait = spans["approval release"]
    assert spans["attempt 2"].began_ns < wait.began_ns < wait.ended_ns
    assert wait.attributes["cortex.approval.status"] == "APPROVED"
    for name, each in spans.items():
        assert job.began_ns <= each.began_ns <= each.ended_ns, name


def _by_name(spans: list[Received]) -> dict[str, Received]:
    return {each.name: each for each in spans}


def test_stopping_workers_export_their_spans_and_ignore_a_dead_collector(
    pods: Pods, traces: Collector
) -> None:
    pod = pods.start("--workers", "2")
    job_ids = [submit(pods.dsn, "steps", {"count": 3}) for _ in range(4)]
    for job_id in job_ids:
        until_status(pods.dsn, job_id, "COMPLETED")
    assert pod.stop() == 0
    ended = {each.trace_id for each in traces.until("job steps") if each.name == "job steps"}
    assert ended == {job_id.hex for job_id in job_ids}
    pods.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"  # nothing listens
    pod = pods.start()
    for _ in range(2):
        job_id = submit(pods.dsn, "steps", {"count": 3})
        until_status(pods.dsn, job_id, "COMPLETED")
        eventually(lambda: "export failed" in pod.log, what="the failure is logged")
    assert pod.stop() == 0
    assert pod.log.count("export failed") == 1
    assert pod.log.count("spans not exported") == 1
