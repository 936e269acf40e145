"""Log lines per second that one pod stores while its jobs write them at a pace."""

import json
import time
from pathlib import Path
from typing import Any, Final

import psutil

from cortex.bench.processes import pod
from cortex.domain.clock import system_chance
from cortex.domain.errors import TimedOutError
from cortex.domain.job import JobStatus, Submission
from cortex.postgres import scratch
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import run
from cortex.store import jobs, logs

JOBS: Final = 10
POLL_S: Final = 0.05
BOUND_S: Final = 120.0


def lines(dsn: str, log: Path, *, per_s: int, seconds: float) -> dict[str, Any]:
    """Let ten jobs write `per_s` lines together for `seconds`; report what is stored, and when."""
    with pod(dsn, log) as running:
        process = psutil.Process(running.process.pid)
        return run(Profile(dsn=dsn), lambda db: _run(db, process, per_s, seconds))


async def _run(db: Database, process: psutil.Process, per_s: int, seconds: float) -> dict[str, Any]:
    await _write(db, count=1, per_s=100, seconds=0.1)  # everything is imported
    await _until_stored(db, 0, 10)
    before = await logs.newest_id(db)
    cpu_before, began = _cpu(process), time.perf_counter()
    await _write(db, count=JOBS, per_s=per_s // JOBS, seconds=seconds)
    wrote_s = time.perf_counter() - began
    row = await _until_stored(db, before, int(per_s // JOBS * seconds) * JOBS)
    stored_s = time.perf_counter() - began
    return {
        "lines": row["lines"],
        "dropped": row["dropped"],
        "seconds": seconds,
        "per_s": round(row["lines"] / max(0.001, row["wrote_s"])),
        "behind_s": round(max(0.0, stored_s - wrote_s), 2),
        "pod_cpu_us": round(1e6 * (_cpu(process) - cpu_before) / max(1, row["lines"])),
    }


async def _write(db: Database, *, count: int, per_s: int, seconds: float) -> None:
    chance = system_chance()
    payload = json.dumps({"per_s": per_s, "seconds": seconds})
    submissions = [
        Submission(id=chance.new_id(), type="bench_log", payload=payload) for _ in range(count)
    ]
    await jobs.submit(db, submissions)
    ids, until = [each.id for each in submissions], time.perf_counter() + BOUND_S
    while (await jobs.counts(db, ids)).get(JobStatus.COMPLETED, 0) < count:
        if time.perf_counter() > until:
            raise TimedOutError(f"jobs that log did not end within {BOUND_S:g} s")
        await scratch.pause(POLL_S)


async def _until_stored(db: Database, after: int, expected: int) -> Any:
    """Wait until all lines are stored or counted as dropped."""
    until = time.perf_counter() + BOUND_S
    while time.perf_counter() < until:
        row = await db.fetch_one("bench.lines", after)
        if row is not None and row["lines"] + row["dropped"] >= expected:
            return row
        await scratch.pause(POLL_S)
    raise TimedOutError(f"{expected} lines were not stored within {BOUND_S:g} s")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
