"""Submits jobs of many keys, one key after the other, and kills pods until all have ended."""

import asyncio
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from chaos.limits import app
from chaos.points.bench import Bench, Trial, TrialPod
from cortex.domain.clock import system_chance
from cortex.domain.job import Submission
from cortex.store import jobs

APP: Final = app.__name__
PODS: Final = 2
SLOTS: Final = 40
DEATHS_MAX: Final = 50
"""No job is to be blamed for the storm."""
WORK_MS: Final = (5, 40)
WITHIN_S: Final = 600.0
POLL_S: Final = 0.05
APART_S: Final = (0.5, 2.0)
"""Between two kills; the other pod runs meanwhile."""

_LEFT: Final = "SELECT count(*) AS count FROM cortex.job_record WHERE finished_at IS NULL"
_ENDED: Final = "SELECT status::text AS status, count(*) AS count FROM cortex.job GROUP BY 1"
_PLACES: Final = "SELECT count(*) AS count FROM cortex_worker.limit_hold"


@frozen(kw_only=True)
class Note:
    """A line that a job wrote."""

    job_id: str
    pid: int
    key: str
    is_begin: bool
    at_s: float


@define(kw_only=True)
class Storm:
    """What happened, for the judge."""

    jobs_of: dict[str, int]
    """How many jobs each key has."""
    submitted_at_s: float = 0.0
    """When all jobs were there, by the clock of the notes."""
    notes: list[Note] = field(factory=list)
    killed_at_s: dict[int, float] = field(factory=dict)
    """When each killed process was alive last, by the clock of the notes."""
    statuses: dict[str, int] = field(factory=dict)
    places_left: int = 0


def bench_in(folder: Path, of: str = APP) -> Bench:
    """Return a bench, to be entered, for pods of the application."""
    return Bench(folder, of, imported=(APP,))


async def storm(
    bench: Bench,
    *,
    count: int,
    keys: int,
    kills: int,
    seed: int,
    on_kill: Callable[[int], None] = lambda _: None,
) -> Storm:
    """Run so many jobs of so many keys while pods die. Raises `MissingError`, `TimeoutError`."""
    dice = random.Random(f"limits {seed}")
    names = [f"k{number:03}" for number in range(keys)]
    found = Storm(jobs_of=dict.fromkeys(names, count // keys))
    async with bench.trial(has_stops=False) as trial, asyncio.timeout(WITHIN_S):
        pods = _Pods(trial)
        await trial.until_row("SELECT FROM cortex.limited_type", what="a pod declares limits")
        # One key after the other: in the order of arrival, the last one would wait for all.
        for name in names:
            payloads = [
                json.dumps({"key": name, "ms": dice.randint(*WORK_MS)})
                for _ in range(found.jobs_of[name])
            ]
            await jobs.submit(
                trial.db,
                [
                    Submission(id=system_chance().new_id(), type=app.TYPE, payload=each)
                    for each in payloads
                ],
            )
        found.submitted_at_s = time.monotonic()
        while (await trial.sql(_LEFT))[0]["count"]:
            if len(found.killed_at_s) < kills:
                await asyncio.sleep(dice.uniform(*APART_S))
                await pods.kill_one(dice, found)
                on_kill(len(found.killed_at_s))
            else:
                await asyncio.sleep(POLL_S)
        found.notes = [_note(line) for line in _lines(trial.folder / app.FILE)]
        found.statuses = {row["status"]: row["count"] for row in await trial.sql(_ENDED)}
        found.places_left = (await trial.sql(_PLACES))[0]["count"]
    return found


def _lines(file: Path) -> list[str]:
    return file.read_text("utf-8").splitlines() if file.exists() else []


def _note(line: str) -> Note:
    job_id, pid, key, what, at_s = json.loads(line)
    return Note(job_id=job_id, pid=pid, key=key, is_begin=what == "begun", at_s=at_s)


class _Pods:
    """Two pods at any time."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._alive: list[TrialPod] = []
        for _ in range(PODS):
            self._start()

    def _start(self) -> None:
        name = f"pod-{len(self._trial.pods) + 1}"
        self._alive.append(self._trial.start(name, deaths_max=DEATHS_MAX, slots=SLOTS))

    async def kill_one(self, dice: random.Random, found: Storm) -> None:
        """Kill a pod that has become ready, and start another one."""
        pod = dice.choice(self._alive)
        await self._trial.until(lambda: pod.ready, f"{pod.name} is ready")
        found.killed_at_s[pod.process.pid] = time.monotonic()
        pod.process.kill()
        self._alive.remove(pod)
        self._start()
