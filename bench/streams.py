"""Many jobs that stream from a model at once, in one pod: their lateness and the memory used."""

import json
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from cortex.bench.processes import pod, scripted_model
from cortex.domain.clock import system_chance
from cortex.domain.errors import TimedOutError
from cortex.domain.job import JobStatus, Submission
from cortex.postgres import scratch
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import run
from cortex.store import jobs

CHUNKS_PER_S = 20
LATE_SHARE = 1.1
"""A stream is on time if it takes at most a tenth longer than its own pace."""


def streams(dsn: str, log: Path, *, count: int, seconds: float) -> dict[str, Any]:
    """Let `count` jobs stream 20 chunks per second for `seconds`; report lateness and memory."""
    with scripted_model(log, "tools") as base_url:
        environ = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "scripted"}
        with pod(dsn, log, **environ) as running:
            process = psutil.Process(running.process.pid)
            return run(Profile(dsn=dsn), lambda db: _run(db, process, count, seconds))


async def _run(db: Database, process: psutil.Process, count: int, seconds: float) -> dict[str, Any]:
    await _stream(db, process, count=1, seconds=0.1)  # the pod has loaded its model client
    cpu_before = sum(process.cpu_times()[:2])
    began = time.perf_counter()
    ids, rss_max = await _stream(db, process, count=count, seconds=seconds)
    elapsed_s = time.perf_counter() - began
    cpu_s = sum(process.cpu_times()[:2]) - cpu_before
    durations_s = await scratch.model_durations(db, ids)
    late = [each for each in durations_s if each > LATE_SHARE * seconds]
    return {
        "streams": count,
        "chunks_per_s": CHUNKS_PER_S,
        "seconds": seconds,
        "completed": (await jobs.counts(db, ids)).get(JobStatus.COMPLETED, 0),
        "late": len(late),
        "slowest_s": round(max(durations_s, default=0.0), 3),
        "rss_mb": round(rss_max / 2**20),
        "cpu_cores": round(cpu_s / elapsed_s, 2),
    }


async def submit(db: Database, *, count: int, chunks_per_s: float, seconds: float) -> list[UUID]:
    """Submit jobs whose models stream for `seconds`; return their ids."""
    chance = system_chance()
    chunks = max(1, round(chunks_per_s * seconds))
    turn = {"text": "word " * chunks, "chunks": chunks, "delay_s": 1 / chunks_per_s}
    payload = json.dumps({"prompt": json.dumps({"turns": [turn]})})
    ids = [chance.new_id() for _ in range(count)]
    await jobs.submit(db, [Submission(id=i, type="bench_stream", payload=payload) for i in ids])
    return ids


async def _stream(
    db: Database, process: psutil.Process, *, count: int, seconds: float
) -> tuple[list[UUID], int]:
    """Let `count` jobs stream; return them, and the peak memory."""
    ids = await submit(db, count=count, chunks_per_s=CHUNKS_PER_S, seconds=seconds)
    deadline = time.perf_counter() + 10 * seconds + 30
    rss_max = 0
    while True:
        rss_max = max(rss_max, process.memory_info().rss)
        counts = await jobs.counts(db, ids)
        if sum(n for status, n in counts.items() if status.is_terminal) == count:
            return ids, rss_max
        if time.perf_counter() > deadline:
            raise TimedOutError(f"the streams did not end: {counts}")
        await scratch.pause(0.25)
