"""Sends signals to many jobs at once, and kills pods at random instants until all are received.

Three pods are there at any time. Senders are plain SQL sessions; each sends to the jobs of its own,
one signal after the other, some of them again under the same idempotency key. They send to a few
jobs at a time, in a drawn order, so that some jobs wait and others fall behind.
"""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
from attrs import define, field, frozen

from chaos.points.bench import Bench, Trial, TrialPod
from chaos.signals.app import NAME

APP: Final = "chaos.signals.app"
JOB_TYPE: Final = "storm_receives"
PODS: Final = 3
SENDERS: Final = 4
SLOTS: Final = 200
DEATHS_MAX: Final = 100
"""No job is to be blamed for the storm."""
TWICE_SHARE: Final = 0.02
"""Of all signals, sent again although they were acknowledged."""
CHUNK: Final = 50
"""Signals of one transaction: a program that has much to send does the same."""
AHEAD_MAX: Final = 4
"""Signals for each job that senders are ahead, on average: so that jobs wait, too."""
PAUSE_S: Final = 0.02
POLL_S: Final = 0.1
WITHIN_S: Final = 1_800.0

_SEND: Final = """
    SELECT cortex.send_signal(
        $1, to_jsonb(s.number), job => s.job, idempotency_key => s.number::text)
    FROM unnest($2::uuid[], $3::int[]) WITH ORDINALITY AS s(job, number, n) ORDER BY s.n
"""
_LEFT: Final = """
    SELECT (SELECT count(*) FROM cortex.job_record WHERE finished_at IS NULL) AS open,
           (SELECT count(*) FROM cortex.signal WHERE taken_at IS NOT NULL) AS received
"""


@frozen(kw_only=True)
class Received:
    """One job, at its end."""

    job_id: UUID
    status: str
    items: Any
    """What it returned."""


@define(kw_only=True)
class Storm:
    """What happened, for the judge."""

    count: int
    """How many signals were sent to each job, numbered from 0."""
    jobs: list[Received] = field(factory=list)
    sent: int = 0
    """Acknowledged ones, repetitions not counted."""
    repeated: int = 0
    """Those sent again."""
    kills: int = 0
    attempts: int = 0
    """Of all jobs: how often they were taken by a pod."""
    took_s: float = 0.0
    received: int = 0
    """So far."""


@frozen(kw_only=True)
class _Plan:
    jobs: int
    kills: int
    dice: random.Random


def bench_in(folder: Path, app: str = APP) -> Bench:
    """Return a bench, to be entered, for pods whose jobs receive signals."""
    return Bench(folder, app)


async def storm(
    bench: Bench,
    *,
    jobs: int,
    signals: int,
    kills: int,
    seed: int,
    on_progress: Callable[[int, int], None] = lambda _received, _kills: None,
) -> Storm:
    """Send `signals` to `jobs`, as many to each, and kill pods meanwhile."""
    plan = _Plan(jobs=jobs, kills=kills, dice=random.Random(f"signals {seed}"))
    loop = asyncio.get_running_loop()
    found = Storm(count=signals // jobs)
    async with bench.trial(has_stops=False) as trial:
        await bench.postgres.configure("autovacuum", "on")
        ids = await _submit(trial, jobs, found.count)
        pods = Pods(trial)
        await trial.until_row("SELECT FROM cortex.pod WHERE state = 'READY'", what="a pod is ready")
        began = loop.time()
        own = [ids[number::SENDERS] for number in range(SENDERS)]
        seeds = [plan.dice.getrandbits(32) for _ in own]
        async with asyncio.TaskGroup() as group:
            for each, own_seed in zip(own, seeds, strict=True):
                group.create_task(_send(trial.owned, found, each, jobs, random.Random(own_seed)))
            group.create_task(_kill(trial, pods, found, plan, on_progress))
        found.took_s = loop.time() - began
        rows = await trial.sql("SELECT id, status, result, attempt FROM cortex.job")
        found.attempts = sum(row["attempt"] for row in rows)
        found.jobs = [
            Received(
                job_id=row["id"],
                status=row["status"],
                items=None if row["result"] is None else json.loads(row["result"]),
            )
            for row in rows
        ]
    return found


async def _submit(trial: Trial, jobs: int, count: int) -> list[UUID]:
    submit = "SELECT cortex.submit_job($1, $2::jsonb) AS id FROM generate_series(1, $3)"
    rows = await trial.sql(submit, JOB_TYPE, json.dumps({"count": count}), jobs)
    return [row["id"] for row in rows]


async def _send(
    dsn: str, found: Storm, ids: list[UUID], job_count: int, dice: random.Random
) -> None:
    """Send all signals of these jobs, those of one job in their order."""
    left = dict.fromkeys(ids, 0)
    connection = await asyncpg.connect(dsn)
    try:
        while left:
            chosen = dice.choices(list(left), k=min(CHUNK, 4 * len(left)))
            jobs, numbers = [], []
            for job_id in chosen:
                if job_id in left:
                    jobs.append(job_id)
                    numbers.append(left[job_id])
                    left[job_id] += 1
                    if left[job_id] == found.count:
                        del left[job_id]
            while found.sent - found.received > AHEAD_MAX * job_count:  # noqa: ASYNC110 -- no event
                await asyncio.sleep(PAUSE_S)
            await connection.fetch(_SEND, NAME, jobs, numbers)
            found.sent += len(jobs)
            if dice.random() < TWICE_SHARE:
                await connection.fetch(_SEND, NAME, jobs, numbers)
                found.repeated += len(jobs)
    finally:
        await connection.close()


class Pods:
    """Three pods at any time."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._alive: list[TrialPod] = []
        self._count = 0
        for _ in range(PODS):
            self._start()

    def _start(self) -> None:
        self._count += 1
        name = f"pod-{self._count}"
        self._alive.append(self._trial.start(name, deaths_max=DEATHS_MAX, slots=SLOTS))

    def kill(self, dice: random.Random) -> None:
        """Kill one, and start another in its place."""
        pod = dice.choice(self._alive)
        pod.process.kill()
        self._alive.remove(pod)
        self._start()

    @property
    def dead(self) -> list[str]:
        """Those that have ended by themselves."""
        return [each.name for each in self._alive if each.is_dead]


async def _kill(
    trial: Trial,
    pods: Pods,
    found: Storm,
    plan: "_Plan",
    on_progress: Callable[[int, int], None],
) -> None:
    """Kill pods, spread over the signals that were received, until all jobs have ended."""
    dice, total = plan.dice, plan.jobs * found.count
    dues = sorted(dice.uniform(0, 0.95 * total) for _ in range(plan.kills))
    async with asyncio.timeout(WITHIN_S):
        while True:
            (left,) = await trial.sql(_LEFT)
            found.received = left["received"]
            on_progress(found.received, found.kills)
            if dues and found.received >= dues[0]:
                dues.pop(0)
                pods.kill(dice)
                found.kills += 1
            if pods.dead:
                raise RuntimeError(f"{pods.dead[0]} has ended by itself")
            if not left["open"] and found.sent == total:
                return
            await asyncio.sleep(dice.uniform(0, POLL_S))
