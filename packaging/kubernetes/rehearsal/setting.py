"""The surroundings of a rehearsed overlay: Postgres, a scripted model, secrets and pods."""

import json
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from cortex.demo.job import SCRIPTED, SCRIPTED_MODEL, demo_agent
from cortex.domain.job import JobStatus
from rehearsal.database import Database
from rehearsal.manifests import Overlay, overlay
from rehearsal.node import APP, Node, Pod, until

APPLICATION: Final = ("--app", f"{APP}/jobs_of_ours.py")
CLIENTS: Final = 16
JOBS: Final = """\
import trio

from cortex import Context, job
from cortex.demo.job import DEMO_JOBS
from cortex.demo.mail import send_mail

demo = DEMO_JOBS["demo"]


@job(name="rehearsal")
async def rehearsal(ctx: Context, pause_s: float = 0.1) -> int:
    for number in range(10):
        await ctx.step(f"part {number}", lambda: trio.sleep(pause_s))
    return 10
"""


@attrs.define
class Model:
    """The scripted model, as a process beside the pods."""

    process: "subprocess.Popen[bytes]"
    url: str

    def calls(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/calls", timeout=10) as answer:  # noqa: S310
            found: list[dict[str, Any]] = json.load(answer)["calls"]
        return found


@attrs.define
class Setting:
    overlay: Overlay
    node: Node
    model: Model
    database: Database | None
    token: str

    def pod(self) -> Pod:
        """Make a pod of the overlay, with the app that an image of one's own would have."""
        return self.node.pod(self.overlay.pod, extra=APPLICATION)

    def start_ready(self) -> Pod:
        pod = self.pod()
        pod.start()
        until_ready(pod)
        return pod


@contextmanager
def setting(mode: str, entry: Sequence[str], *, pace: float = 1.0) -> Iterator[Setting]:
    """Yield an overlay's surroundings; whatever still runs is killed at the end."""
    with tempfile.TemporaryDirectory(
        prefix="cortex-rehearsal-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        chosen = overlay(mode)
        app = folder / "app"
        (app / "shop").mkdir(parents=True)
        (app / "jobs_of_ours.py").write_text(JOBS)
        (app / "shop" / "README.md").write_text("# Shop\n\nSells tea.\n")
        (app / "shop" / "tea.py").write_text('TEA = {"assam": 4, "oolong": 7}\n')
        agents = [demo_agent(SCRIPTED, SCRIPTED_MODEL, asks=asks) for asks in (False, True)]
        texts = [json.dumps(agent.to_json()) for agent in agents]
        (app / "agents.yaml").write_text("\n---\n".join(texts))
        token = f"cortex_{secrets.token_hex(32)}"
        model = _start_model(pace)
        variables = {"ANTHROPIC_API_KEY": "scripted", "ANTHROPIC_BASE_URL": model.url}
        given = {"cortex": variables, "cortex-token": {"token": token}}
        node = Node(folder=folder, entry=entry, secrets=given, app=app)
        try:
            database = None if chosen.has_own_database else Database.start_new(node)
            if database is not None:
                variables["CORTEX_DSN"] = database.dsn
            yield Setting(chosen, node, model, database, token)
        finally:
            node.close()
            model.process.kill()
            model.process.wait()


def _start_model(pace: float) -> Model:
    process = subprocess.Popen(
        [sys.executable, "-m", "cortex.demo.server", "--port", "0", "--pace", str(pace)],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    return Model(process, json.loads(process.stdout.readline())["base_url"])


def status_of(pod: Pod, path: str, *, within_s: float) -> int:
    """Return the status of a probe; 0 without an answer in time."""
    address = f"http://127.0.0.1:{pod.port}{path}"
    try:
        with urllib.request.urlopen(address, timeout=within_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code
    except OSError:
        return 0


def until_ready(pod: Pod) -> float:
    """Wait as long as the startup probe lets a pod start."""
    probe = pod.template.main.probes["readiness"]

    def is_ready() -> bool:
        if pod.main is None or pod.main.has_ended:
            raise SystemExit(f"the pod ended at its start: {pod.main and pod.main.text}")
        return status_of(pod, probe.path, within_s=probe.within_s) == 200

    return until(is_ready, "a pod is ready", within_s=pod.template.main.start_s)


def since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def ask(pod: Pod, token: str, path: str, body: bytes | None = None) -> dict[str, Any]:
    """Send a request to a pod's API and return the answer."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{pod.port}{path}",
        data=body,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
    return found


def operator_of(pod: Pod) -> str:
    """Make a token that may submit jobs."""
    return pod.command("tokens", "create", "--name", "load", "--role", "operator").split()[-1]


def submit_many(
    pod: Pod,
    token: str,
    job_type: str,
    payload: dict[str, Any],
    *,
    count: int,
    agent: str | None = None,
) -> list[str]:
    """Submit jobs, some at once; return their ids."""
    body = {"type": job_type, "payload": payload, **({"agent": agent} if agent else {})}

    def submit(_: int) -> str:
        return str(ask(pod, token, "/v1/jobs", json.dumps(body).encode())["id"])

    with ThreadPoolExecutor(CLIENTS) as clients:
        return [*clients.map(submit, range(count))]


def until_completed(pod: Pod, token: str, ids: list[str], *, within_s: float) -> float:
    """Wait until all jobs have completed; return how many seconds that took."""
    left = list(ids)

    def are_over() -> bool:
        while left:
            status = ask(pod, token, f"/v1/jobs/{left[-1]}")["job"]["status"]
            if not JobStatus(status).is_terminal:
                return False
            if status != JobStatus.COMPLETED:
                raise SystemExit(f"job {left[-1]} ended {status}")
            left.pop()
        return True

    return until(are_over, f"{len(ids)} jobs end", within_s=within_s, poll_s=0.5)
