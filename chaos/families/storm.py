"""Submits families, cancels some of their members, and kills pods until nothing is left to do."""

import asyncio
import json
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from attrs import define, field, frozen

from chaos.families import app
from chaos.points.bench import Bench, Trial, TrialPod
from cortex.domain.clock import system_chance
from cortex.domain.job import Submission
from cortex.store import jobs

APP: Final = app.__name__
PODS: Final = 2
SLOTS: Final = 40
DEATHS_MAX: Final = 50
"""No job is to be blamed for the storm."""
CANCELLED_SHARE: Final = 0.15
"""Of all families, cancelled as a whole."""
POLL_S: Final = 0.1
APART_S: Final = (0.5, 2.0)
"""Between two kills; the other pod runs meanwhile."""
STUCK_S: Final = 30.0
"""Without the end of a job, once no pod is killed any more."""

_ROWS: Final = """
    SELECT j.id, j.type, j.payload->>'path' AS path, j.status::text AS status,
           j.result::text AS result, j.error_message AS error, j.parent_id, j.created_at,
           j.finished_at, c.step, c.ordinal,
           (SELECT count(*) FROM cortex.job_history h WHERE h.job_id = j.id
            AND h.new IN ('COMPLETED', 'FAILED', 'CANCELLED')) AS ends
    FROM cortex.job j LEFT JOIN cortex.job_child c ON c.job_id = j.id ORDER BY j.id
"""
_OPEN: Final = """
    SELECT count(*) FILTER (WHERE finished_at IS NULL) AS open,
           count(*) FILTER (WHERE finished_at IS NOT NULL) AS ended FROM cortex.job_record
"""
_TO_CANCEL: Final = """
    SELECT id FROM cortex.job_record
    WHERE finished_at IS NULL AND cancel_requested_at IS NULL AND payload->>'path' = ANY ($1)
    ORDER BY id
"""
_LEFT: Final = """
    SELECT (SELECT count(*) FROM cortex.child_cut) + (SELECT count(*) FROM cortex.job_wait)
         + (SELECT count(*) FROM cortex.job_child WHERE ended_at IS NULL) AS count
"""


@frozen(kw_only=True)
class Member:
    """A job of a family, when all was over."""

    id: UUID
    type: str
    path: str
    status: str
    result: Any
    error: str | None
    parent_id: UUID | None
    created_at: datetime
    finished_at: datetime | None
    step: str | None
    """Of its parent; None: it has none."""
    ordinal: int | None
    ends: int
    """How often it has ended, by its history."""


@define(kw_only=True)
class Storm:
    """What happened, for the judge."""

    families: list[str]
    """Their paths."""
    members: list[Member] = field(factory=list)
    kills: int = 0
    cancels: int = 0
    left: int = 0
    """Waits, lists of children to cancel, and children that have not ended."""


def bench_in(folder: Path, of: str = APP) -> Bench:
    """Return a bench, to be entered, for pods of the application."""
    return Bench(folder, of, imported=(APP,))


async def storm(
    bench: Bench,
    *,
    count: int,
    kills: int,
    seed: int,
    stuck_s: float = STUCK_S,
    on_kill: Callable[[int], None] = lambda _: None,
) -> Storm:
    """Run so many families while pods die, until all have ended or none ends any more."""
    dice = random.Random(f"families {seed}")
    found = Storm(families=[_family(dice, number) for number in range(count)])
    async with bench.trial(has_stops=False) as trial:
        await jobs.submit(trial.db, [_submission(each) for each in found.families])
        pods = _Pods(trial)
        await trial.until_row("SELECT FROM cortex.pod WHERE state = 'READY'", what="a pod is ready")
        async with asyncio.TaskGroup() as group:
            cancels = group.create_task(_cancel(trial, found, random.Random(dice.random())))
            for _ in range(kills):
                await asyncio.sleep(dice.uniform(*APART_S))
                await pods.kill_one(dice)
                found.kills += 1
                on_kill(found.kills)
            await _until_quiet(trial, stuck_s)
            cancels.cancel()
        for row in await trial.sql(_ROWS):
            own = None if row["result"] is None else json.loads(row["result"])
            found.members.append(Member(**{**row, "result": own}))
        found.left = (await trial.sql(_LEFT))[0]["count"]
    return found


def _family(dice: random.Random, number: int) -> str:
    return f"{number}{app.ENDLESS if dice.random() < CANCELLED_SHARE else ''}"


def _submission(path: str) -> Submission:
    payload = json.dumps({"path": path})
    return Submission(id=system_chance().new_id(), type="kin_family", payload=payload)


async def _cancel(trial: Trial, found: Storm, dice: random.Random) -> None:
    """Cancel families and branches that wait for it, each at some time after it has begun."""
    whole = [each for each in found.families if each.endswith(app.ENDLESS)]
    others = [each for each in found.families if not each.endswith(app.ENDLESS)]
    parts = [path for each in others for path in app.below(each) if path.endswith(app.ENDLESS)]
    while True:
        for row in await trial.sql(_TO_CANCEL, [*whole, *parts]):
            if dice.random() < POLL_S:
                await jobs.cancel(trial.db, row["id"], by="the storm", reason="enough")
                found.cancels += 1
        await asyncio.sleep(POLL_S)


async def _until_quiet(trial: Trial, stuck_s: float) -> None:
    loop = asyncio.get_running_loop()
    ended, since_s = -1, loop.time()
    while loop.time() - since_s < stuck_s:
        (row,) = await trial.sql(_OPEN)
        if not row["open"] and not (await trial.sql(_LEFT))[0]["count"]:
            return
        if row["ended"] != ended:
            ended, since_s = row["ended"], loop.time()
        await asyncio.sleep(POLL_S)


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

    async def kill_one(self, dice: random.Random) -> None:
        """Kill a pod that has become ready, and start another one."""
        pod = dice.choice(self._alive)
        await self._trial.until(lambda: pod.ready, f"{pod.name} is ready")
        pod.process.kill()
        self._alive.remove(pod)
        self._start()
