"""Jobs over HTTP at one pod, while another one runs them."""

import http.client
import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

import attrs
import trio

from tests.e2e.test_http import address_of
from tests.support.command_line import Cortex
from tests.support.events import follow
from tests.support.pods import Pod, Pods, end_of_pod
from tests.support.records.rows import job_row, submit, until_job
from tests.support.servers.stamping_model import stamping_model

WORDS = 150


@attrs.frozen
class Front:
    """A pod that serves the API and has no slot free, before another one that runs jobs."""

    pod: Pod
    other: Pod
    token: str

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(*address_of(self.pod), timeout=40)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        output = json.loads(answer.read())
        connection.close()
        return answer.status, output

    def submit(self, type_: str, **payload: Any) -> UUID:
        status, output = self.ask("POST", "/v1/jobs", {"type": type_, "payload": payload})
        assert status == 201, output
        return UUID(output["id"])


def opened(pods: Pods, folder: Path) -> Front:
    """Start both; the first one is held up by a job that nothing ends."""
    pod = pods.start("--http", "127.0.0.1:0", slots=1, **end_of_pod(1))
    held = submit(pods.dsn, "gated", {"gate": str(folder / "never")})
    until_job(pods.dsn, held, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    made = Cortex(folder, pods.dsn)("tokens", "create", "--name", "ana", "--role", "operator")
    return Front(pod, pods.start(), made.out.strip())


def test_client_of_one_pod_gets_the_result_from_another(
    pods: Pods, gate: Path, tmp_path: Path
) -> None:
    front = opened(pods, tmp_path)
    job_id = front.submit("gated", gate=str(gate))
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    path = f"/v1/jobs/{job_id}/result"
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(front.ask, "GET", f"{path}?wait_ms=30000")
        assert front.ask("GET", f"{path}?wait_ms=100") == (
            202,
            {"id": str(job_id), "has_ended": False, "waiting_on": None, "misfit": None},
        )
        gate.touch()
        status, output = asked.result()
    assert (status, output["status"], output["result"]) == (200, "COMPLETED", 1)
    assert job_row(pods.dsn, job_id)["pod"] == front.other.name


def test_stopping_pod_answers_its_waiting_clients(pods: Pods, gate: Path, tmp_path: Path) -> None:
    front = opened(pods, tmp_path)
    job_id = front.submit("gated", gate=str(gate))
    path = f"/v1/jobs/{job_id}"
    with (
        follow(address_of(front.pod), f"{path}/events", token=front.token) as events,
        ThreadPoolExecutor(1) as thread,
    ):
        events.until("step")
        asked = thread.submit(front.ask, "GET", f"{path}/result?wait_ms=30000")
        assert front.ask("GET", f"{path}/result?wait_ms=100")[0] == 202
        began = time.monotonic()
        front.pod.signal(signal.SIGTERM)
        assert asked.result()[0] == 202
        assert list(events) == []
        assert time.monotonic() - began < 25, "before the wait that was asked for is over"
    assert front.pod.exit_code() == 0


async def test_model_output_of_one_pod_streams_from_another(pods: Pods, tmp_path: Path) -> None:
    heard: dict[float, float] = {}
    clock = trio.lowlevel.current_clock()

    def listen() -> list[str]:
        front = opened(pods, tmp_path)
        job_id = front.submit("ask", model="stamps", prompt="go")
        address, path = address_of(front.pod), f"/v1/jobs/{job_id}/events"
        names = []
        with follow(address, path, token=front.token) as events:
            for event in events:
                if event.name == "token":
                    now = clock.current_time()
                    heard.update((float(stamp), now) for stamp in event.data["text"].split())
                else:
                    names.append(event.data.get("new") or event.name)
        assert job_row(pods.dsn, job_id)["pod"] == front.other.name
        return names

    async with stamping_model(words=WORDS) as base_url:
        pods.environment |= {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "key"}
        names = await trio.to_thread.run_sync(listen)
    assert names == ["PENDING", "RUNNING", "step", "COMPLETED", "end"]
    assert len(heard) > 0.9 * WORDS
    late_s = median(now - said for said, now in heard.items())
    assert late_s < (max(heard) - min(heard)) / 3, "a half if they come at the end"
