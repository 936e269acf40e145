"""Quiet kills: after a run is healed, pods die by SIGKILL while nothing else is broken.

During the faults of a run so much breaks at once that takeover time cannot be measured. Quiet kills
measure it: each waits until all pods are ready and settled and have long enough jobs of the kill to
be running when their pod dies.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg
from attrs import frozen

from chaos.checkers.i26_quick_takeover import QUIET_KILL
from chaos.checkers.timeline import CALM_AFTER_S, SETTLED_S
from chaos.nemeses.target import NO_TARGET, candidates, draw_place, hit, jobs_of
from chaos.workloads.order import Order
from chaos.workloads.program import Op, Operation, Program

if TYPE_CHECKING:
    from chaos.cluster.pods import Pod
    from chaos.cluster.stage import Stage

T = TypeVar("T")

SECONDS_PER_KILL: Final = 20.0
"""A run of a minute has three."""
KILLS_MAX: Final = 5
JOBS_PER_POD: Final = 2
SLEEP_MS: Final = 4_000
"""Jobs still run when their pod is killed, and when the next pod has taken them over."""
RUNNING_WITHIN_S: Final = 15.0
ROOM_WITHIN_S: Final = 60.0
TAKEN_WITHIN_S: Final = 30.0
EVERY_S: Final = 0.05

_RUNNING = """
    SELECT p.name FROM cortex.job j JOIN cortex.pod p ON p.id = j.pod_id
    WHERE j.status = 'RUNNING' AND j.id = ANY ($1)
"""
_DUE = "SELECT job_id FROM cortex_worker.task WHERE state = 'READY' LIMIT 1"


@frozen(kw_only=True)
class QuietKill:
    """One quiet kill, as planned by the seed."""

    number: int
    """Its number among the faults of the run."""
    place: int
    orders: tuple[Order, ...]
    """The jobs that run when the pod dies."""


def draw_quiet_kills(
    *, seed: int, duration_s: float, pods: int, first: int, own: Order | None
) -> tuple[QuietKill, ...]:
    """Draw the kills of a run. `first` is their first number, `own` an order of the user's app."""
    dice = random.Random(f"quiet kills of {seed}")
    count = max(1, min(KILLS_MAX, round(duration_s / SECONDS_PER_KILL)))
    return tuple(
        QuietKill(
            number=first + n,
            place=draw_place(dice),
            orders=tuple(
                _order(f"s{seed}-q{n}-{each}", own) for each in range(pods * JOBS_PER_POD)
            ),
        )
        for n in range(count)
    )


def _order(key: str, own: Order | None) -> Order:
    if own is not None:
        return Order(at_s=0, key=key, job_type=own.job_type, payload=own.payload)
    operations = (Operation(op=Op.SLEEP, takes_ms=SLEEP_MS), Operation(op=Op.IDEMPOTENT))
    payload = Program(key=key, operations=operations).payload()
    return Order(at_s=0, key=key, job_type="chaos_program", payload=payload)


async def kill_quietly(
    stage: "Stage", kills: tuple[QuietKill, ...], *, dice: random.Random
) -> None:
    """Carry out the kills, one after another; the stage must be healed."""
    pause_s = CALM_AFTER_S
    for kill in kills:
        await stage.pods_kept.until_ready()
        await asyncio.sleep(pause_s + stage.settings.settle_s)
        await _poll_until(partial(_has_room, stage), within_s=ROOM_WITHIN_S)
        await stage.client.submit_all(kill.orders, dice=dice)
        detail = {"place": kill.place}
        victim = await _poll_until(partial(_victim, stage, kill), within_s=RUNNING_WITHIN_S)
        named = {"number": kill.number, "nemesis": QUIET_KILL}
        stage.history.add("nemesis", "fault", "invoke", **named, detail=detail, for_s=0.0)
        if victim is None:
            stage.history.add("nemesis", "fault", **named, **NO_TARGET)
            continue
        victim.kill()
        met = {**hit(stage, detail, victim), "windows": []}
        stage.history.add("nemesis", "fault", **named, **met)
        await _poll_until(partial(_is_taken_over, stage, victim), within_s=TAKEN_WITHIN_S)
        pause_s = SETTLED_S


async def _has_room(stage: "Stage") -> bool:
    """Whether no task waits for a slot: otherwise a takeover would wait for one, too."""
    return not await stage.postgres.sql(_DUE)


async def _victim(stage: "Stage", kill: QuietKill) -> "Pod | None":
    """The pod at the drawn place, or the next one that runs a job of this kill."""
    keys = (stage.client.acknowledged.get(order.key) for order in kill.orders)
    rows = await stage.postgres.sql(_RUNNING, [key for key in keys if key is not None])
    names = {row["name"] for row in rows}
    fitting = candidates(stage, {"place": kill.place}, fits=lambda pod: pod.record in names)
    return fitting[0] if fitting else None


async def _is_taken_over(stage: "Stage", pod: "Pod") -> bool:
    return not await jobs_of(stage, pod)


async def _poll_until(ask: Callable[[], Awaitable[T]], *, within_s: float) -> T | None:
    """Poll until the result is true; None if that took too long."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    if answer := await ask():
                        return answer
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    pass  # a poison job or a late fault kept the server busy: poll again
                await asyncio.sleep(EVERY_S)
    except TimeoutError:
        return None
