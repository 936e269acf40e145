"""Latency of no-op jobs on a pod while clients abuse its HTTP API."""

import json
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from bench.attacker import ATTACKS
from bench.tui_bars import quantile
from cortex.bench.processes import pod
from cortex.domain.clock import system_chance
from cortex.domain.interpreter import module_command
from cortex.domain.job import JobStatus, Submission
from cortex.domain.people import Identity
from cortex.domain.token import SECRET_BYTES, Role, digest_of_token, token_text
from cortex.postgres import scratch
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import run
from cortex.store import jobs, tokens
from cortex.store.people import system_user
from cortex.view.cells import Cell, Row
from cortex.view.resource import Field

IDLE: Final = "idle"
P50_TIMES: Final = 3.0
"""Upper bound of the median, as a multiple of the idle pod's."""
P99_MS: Final = 100.0
TOKENS: Final = 10
"""Each token is allowed a hundred streams."""
GAP_S: Final = 0.02
"""Pause between two jobs, so that each finds an idle pod."""
RAMP_S: Final = 1.0
"""Time until an attack reaches full load."""
BOUND_S: Final = 10.0

COLUMNS: Final[Sequence[Field[Row]]] = (
    Field(name="attack"),
    Field(name="jobs", is_right=True),
    Field(name="p50_ms", title="p50 ms", is_right=True),
    Field(name="p50_most", title="≤", is_right=True),
    Field(name="p99_ms", title="p99 ms", is_right=True),
    Field(name="p99_most", title="≤", is_right=True),
    Field(
        name="ok",
        title="",
        shown=lambda row: Cell("✓ ok", "done") if row["ok"] else Cell("✗ over", "fail"),
    ),
)


def abuse(
    dsn: str, log: Path, *, seconds: float, only: tuple[str, ...]
) -> Iterator[Mapping[str, Any]]:
    """Measure each attack for the given time; yield a row for each, the idle pod first."""
    # At the end it drains no longer than that: one job would hold it up for as long as it may.
    with pod(
        dsn, log, "--http", "127.0.0.1:0", CORTEX_PRE_STOP_S="0", CORTEX_ABORT_S="1"
    ) as running:
        target = run(Profile(dsn=dsn), _prepare) | _address(running.ready["http"])
        run(Profile(dsn=dsn), lambda db: _probe(db, RAMP_S))  # the first jobs load code
        idle_p50 = 0.0
        for name in (each for each in ATTACKS if each == IDLE or each in only or not only):
            with _attacker(name, target, log, seconds + RAMP_S + BOUND_S):
                took_ms = run(Profile(dsn=dsn), lambda db: _measured(db, seconds))
            p50, p99 = quantile(took_ms, 0.50), quantile(took_ms, 0.99)
            idle_p50 = idle_p50 or p50
            yield {
                "attack": name,
                "jobs": len(took_ms),
                "p50_ms": round(p50, 1),
                "p50_most": round(P50_TIMES * idle_p50, 1),
                "p99_ms": round(p99, 1),
                "p99_most": P99_MS,
                "ok": p50 <= P50_TIMES * idle_p50 and p99 <= P99_MS,
            }


async def _prepare(db: Database) -> dict[str, Any]:
    """Create what the attackers need: operators, and a job that runs throughout."""
    chance = system_chance()
    texts = [token_text(secrets.token_bytes(SECRET_BYTES)) for _ in range(TOKENS)]
    for number, text in enumerate(texts):
        await tokens.create(
            db,
            token_id=chance.new_id(),
            name=f"bench-{number}",
            digest=digest_of_token(text) or b"",
            roles=[Role.OPERATOR],
            expires_s=None,
            by=Identity.from_system(system_user()),
        )
    held = Submission(id=chance.new_id(), type="bench_hold", payload='{"seconds": 3600}')
    await jobs.submit(db, [held])
    return {"tokens": texts, "job": str(held.id)}


def _address(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {"host": parts.hostname, "port": parts.port}


async def _measured(db: Database, seconds: float) -> list[float]:
    await scratch.pause(RAMP_S)
    return await _probe(db, seconds)


async def _probe(db: Database, seconds: float) -> list[float]:
    """Run no-op jobs one after another; return the milliseconds from submit to end of each."""
    chance = system_chance()
    ids: list[UUID] = []
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        ids.append(chance.new_id())
        await jobs.submit(db, [Submission(id=ids[-1], type="bench_noop")])
        await scratch.pause(GAP_S)
    gives_up_at = time.monotonic() + BOUND_S
    while time.monotonic() < gives_up_at:
        if (await jobs.counts(db, ids)).get(JobStatus.COMPLETED, 0) == len(ids):
            break
        await scratch.pause(GAP_S)
    took_ms = [1000 * each for each in await scratch.job_durations(db, ids)]
    return took_ms + [1000 * BOUND_S] * (len(ids) - len(took_ms))


@contextmanager
def _attacker(name: str, target: Mapping[str, Any], log: Path, seconds: float) -> Iterator[None]:
    with log.open("ab") as errors:
        attacker = subprocess.Popen(  # noqa: S603 -- our own program
            module_command("bench.attacker", name, str(seconds)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with attacker:
        try:
            if attacker.stdin is None or attacker.stdout is None:
                raise AssertionError("the process was started with pipes")
            print(json.dumps(target), file=attacker.stdin, flush=True)
            attacker.stdout.readline()
            yield
        finally:
            attacker.kill()
