"""Messages per second from one pod to a local webhook receiver, alone and before a backlog."""

import base64
import time
from pathlib import Path
from typing import Any, Final

import psutil

from cortex.bench.processes import Program, pod
from cortex.domain.errors import TimedOutError
from cortex.domain.messages.subscription import parse_subscription
from cortex.postgres import scratch
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import run
from cortex.store.background import subscriptions

FILL_MAX: Final = 5_000
"""Messages that one statement publishes: it has five seconds."""
POLL_S: Final = 0.02
BOUND_S: Final = 300.0
SECRET: Final = "whsec_" + base64.b64encode(bytes(32)).decode()


def messages(dsn: str, log: Path, *, count: int, backlog: int) -> dict[str, Any]:
    """Publish `backlog` + `count` messages, start a pod, and time its first `count`."""
    receiver = Program(["bench.receiver"], {}, log)
    try:
        url = f"http://127.0.0.1:{receiver.ready['port']}/hook"
        run(Profile(dsn=dsn), lambda db: _fill(db, url, count + backlog))
        with pod(dsn, log, CORTEX_HTTP_ALLOW="127.0.0.0/8", BENCH_SECRET=SECRET) as sender:
            process = psutil.Process(sender.process.pid)
            run(Profile(dsn=dsn), lambda db: _until(db, 1))
            began, cpu = time.perf_counter(), _cpu(process)
            run(Profile(dsn=dsn), lambda db: _until(db, count))
            took_s, cpu_s = time.perf_counter() - began, _cpu(process) - cpu
    finally:
        receiver.kill()
    return {
        "messages": count,
        "backlog": backlog,
        "per_s": round((count - 1) / took_s),
        "pod_cpu_us": round(1e6 * cpu_s / max(1, count - 1)),
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _fill(db: Database, url: str, count: int) -> None:
    given = {
        "name": "bench",
        "topic": "bench.*",
        "channel": "webhook",
        "url": url,
        "secrets": ["env:BENCH_SECRET"],
    }
    await subscriptions.put(
        db, parse_subscription(given, where=lambda _: "bench"), by="bench", reason=""
    )
    for begun in range(0, count, FILL_MAX):
        await db.fetch("bench.publish", min(FILL_MAX, count - begun))


async def _until(db: Database, count: int) -> None:
    """Wait until the first messages were sent. Raises `TimedOutError`."""
    until = time.perf_counter() + BOUND_S
    while time.perf_counter() < until:
        row = await db.fetch_one("bench.is_sent", count)
        if row is not None and row["is_sent"]:
            return
        await scratch.pause(POLL_S)
    raise TimedOutError(f"{count} messages were not sent within {BOUND_S:g} s")
