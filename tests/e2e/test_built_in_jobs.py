"""Built-in job types on real pods: a pod killed in the middle of a request."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pods, run_cli
from tests.support.records.rows import assert_one_truth, submit, until_status
from tests.support.scripted_agent import NAME, ScriptedAgent
from tests.support.servers.postgres import sql
from tests.support.servers.scripted_model import program


class Receiver(ThreadingHTTPServer):
    """Takes requests and keeps their keys; while it is `stuck`, it answers none."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str | None]] = []
        self.refusals = 0
        """How many GETs are answered with 503 first."""
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

    def do_GET(self) -> None:
        self.server.asked.append((self.path, None))
        is_refused, self.server.refusals = self.server.refusals > 0, self.server.refusals - 1
        body = b'{"items": ["a", "b", "c"]}'
        self.send_response(503 if is_refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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


def test_post_of_a_killed_pod_repeats_only_if_idempotent(pods: Pods, receiver: Receiver) -> None:
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


FLOW = """
name: orders
steps:
- name: fetch
  uses: http
  with: {url: "http://HOST/list"}
  retry: {max: 2, base_ms: 10}
- name: post
  uses: http
  for_each: ${{ steps.fetch.result.json.items }}
  with: {url: "http://HOST/${{ item }}", method: POST, json: {n: "${{ index }}"},
    idempotent: true}
- name: lost
  uses: http
  needs: []
  on_error: continue
  with: {url: "http://169.254.169.254/"}
- name: say
  uses: publish
  needs: [lost]
  with: {topic: orders.lost, payload: {code: "${{ steps.lost.error.code }}"}, key: "${{ job.id }}"}
- name: agree
  uses: approve
  needs: [post, say]
  with: {detail: {sent: "${{ length(steps.post.result) }}", lost: "${{ steps.lost.error.code }}"}}
result: {by: "${{ steps.agree.result.by }}", detail: "${{ steps.agree.result.arguments }}"}
"""


@pytest.mark.smoke("A dead pod's jobs go on within two seconds")
def test_flow_continues_on_another_pod_after_a_kill(
    pods: Pods, receiver: Receiver, tmp_path: Path
) -> None:
    """Killed with three requests under way: each is sent again under its key, and only those."""
    (tmp_path / "flow.yaml").write_text(FLOW.replace("HOST", receiver.host))
    done = partial(run_cli, dsn=pods.dsn, folder=tmp_path)
    assert done("flows", "apply", "flow.yaml", "--as", "ana").exit_code == 0
    pods.environment["CORTEX_HTTP_ALLOW"] = receiver.host
    receiver.refusals = 1
    receiver.stuck.set()
    first = pods.start()
    given = {"flow": "orders"}
    job_id = submit(pods.dsn, "run_flow", given)
    eventually(lambda: sum(key is not None for _, key in receiver.asked) == 3, what="three sent")
    first.kill()
    receiver.stuck.clear()
    pods.start()
    until_status(pods.dsn, job_id, "WAITING_FOR_APPROVAL")
    (asked,) = sql(pods.dsn, "SELECT id::text, arguments FROM cortex.approval")
    assert json.loads(asked["arguments"]) == {"sent": 3, "lost": "forbidden"}
    assert done("approvals", "approve", asked["id"], "--yes", "--as", "ana").exit_code == 0
    ended = until_status(pods.dsn, job_id, "COMPLETED")
    assert ended["result"]["steps"] == {
        "fetch": "completed",
        "post": "completed",
        "lost": "failed",
        "say": "completed",
        "agree": "completed",
    }
    assert ended["result"]["result"]["detail"] == {"sent": 3, "lost": "forbidden"}
    assert len([path for path, _ in receiver.asked if path == "/list"]) == 2, "one was refused"
    for path in ("/a", "/b", "/c"):
        keys = receiver.keys(path)
        assert (len(keys), len(set(keys))) == (2, 1)
    steps = [row["key"] for row in sql(pods.dsn, "SELECT key FROM cortex.job_step ORDER BY seq")]
    assert sorted(steps) == sorted(
        ["fetch failure 1", "fetch", "post[0]", "post[1]", "post[2]", "lost", "say", "agree"]
    )
    (message,) = sql(pods.dsn, "SELECT topic, key, payload FROM cortex.outbox")
    assert tuple(message) == ("orders.lost", str(job_id), '{"code": "forbidden"}')
    assert_one_truth(pods.dsn)


def test_agents_work_inside_of_a_flow(
    pods: Pods, agent: ScriptedAgent, gate: Path, tmp_path: Path
) -> None:
    """Side by side in one job, each with its own steps; a kill repeats only what was cut off."""
    agent.apply("wait_for")
    turns = (
        {"text": "one", "tools": [{"name": "wait_for", "input": {"gate": str(gate)}}]},
        {"text": "two"},
    )
    steps: list[dict[str, Any]] = [
        {
            "name": name,
            "uses": "agent",
            "needs": [],
            "with": {"agent": NAME, "prompt": program(*turns, mark=f"{agent.mark} {name} ")},
        }
        for name in ("left", "right")
    ]
    result = "${{ steps.left.result.text }} and ${{ steps.right.result.text }}"
    (tmp_path / "pair.yaml").write_text(
        json.dumps({"name": "pair", "steps": steps, "result": result})
    )
    assert run_cli("flows", "apply", "pair.yaml", dsn=pods.dsn, folder=tmp_path).exit_code == 0
    first = pods.start()
    job_id = submit(pods.dsn, "run_flow", {"flow": "pair"})
    query = "SELECT count(*) AS n FROM cortex.job_step WHERE key LIKE '%1 model'"
    eventually(lambda: sql(pods.dsn, query)[0]["n"] == 2, what="both agents use their tool")
    first.kill()
    gate.touch()
    pods.start()
    assert until_status(pods.dsn, job_id, "COMPLETED")["result"]["result"] == "two and two"
    for name in ("left", "right"):
        assert agent.calls(name) == [(0, "answered"), (1, "answered")]
    costs = sql(pods.dsn, "SELECT count(*) AS n FROM cortex.fact WHERE agent_id IS NOT NULL")
    assert costs[0]["n"] >= 4, "they are the agent's"


def test_a_flow_has_the_time_that_it_asks_for(
    pods: Pods, receiver: Receiver, tmp_path: Path
) -> None:
    flow = {
        "name": "slow",
        "limits": {"timeout_ms": 1000},
        "steps": [
            {
                "name": "post",
                "uses": "http",
                "with": {"url": f"http://{receiver.host}/x", "method": "POST", "idempotent": True},
            }
        ],
    }
    (tmp_path / "slow.yaml").write_text(json.dumps(flow))
    applied = run_cli("flows", "apply", "slow.yaml", dsn=pods.dsn, folder=tmp_path)
    assert applied.exit_code == 0
    pods.environment["CORTEX_HTTP_ALLOW"] = receiver.host
    receiver.stuck.set()
    pods.start()
    job_id = submit(pods.dsn, "run_flow", {"flow": "slow"})
    failed = until_status(pods.dsn, job_id, "FAILED")
    assert failed["error_message"] == "Job timed out after 1 seconds"
    file = tmp_path / "workspaces" / str(job_id) / "timeouts.jsonl"
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["flow"], line["step"], line["scope"]) == ("slow v1", "post", "job")
    assert (line["limit_ms"], line["final_action"]) == (1000, "failed")
    assert line["elapsed_ms"] >= 1000


def test_a_request_submitted_before_any_pod_has_the_policy_of_its_type(pods: Pods) -> None:
    job_id = submit(pods.dsn, "http_request", {"url": "http://127.0.0.1:1/"})
    query = "SELECT worker_attempts, max_retries, timeout_s FROM cortex.job WHERE id = $1"
    assert tuple(sql(pods.dsn, query, job_id)[0]) == (5, 3, 600)
    pods.start()
    failed = until_status(pods.dsn, job_id, "FAILED")
    assert "not a public address" in failed["error_message"]
