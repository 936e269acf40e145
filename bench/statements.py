"""What each statement of the hot path costs, without a pod: submit, claim, step and end."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

import attrs
import trio

from cortex.bench.meter import Cost, metered
from cortex.domain.clock import Chance, system_chance
from cortex.domain.job import (
    Claim,
    Finish,
    JobStatus,
    NumberedStep,
    StepDone,
    StepKind,
    Submission,
)
from cortex.durable.tally import Tally
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Database, Profile
from cortex.store import jobs, steps, tasks

P = ParamSpec("P")
T = TypeVar("T")

WARM_UP: Final = 3
"""Batches before those that count."""
TYPE: Final = "bench_statements"
POD: Final = UUID(int=1)


@attrs.define
class Part:
    """The sums of one kind of statement."""

    name: str
    seconds: float = 0.0
    cost: Cost = attrs.field(factory=lambda: Cost(0.0, 0.0, 0))

    async def run(
        self,
        port: Port,
        method: Callable[Concatenate[Database, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a store method, and add what it costs."""

        async def timed(port: Port) -> T:
            began = time.perf_counter()
            done = await port(method, *args, **kwargs)
            self.seconds += time.perf_counter() - began
            return done

        done, cost = await metered(timed, port)
        self.cost = self.cost.plus(cost)
        return done

    def figures(self, count: int) -> dict[str, Any]:
        """Return the rate, and the cost of each of `count` units."""
        return {
            f"{self.name}s_per_s": round(count / self.seconds),
            **self.cost.per(self.name, count),
        }


def statements(dsn: str, *, batch: int, batches: int) -> dict[str, Any]:
    """Run batches of jobs with one step through one connection; report each part by itself."""
    return trio.run(partial(_measure, dsn, batch=batch, batches=batches))


async def _measure(dsn: str, *, batch: int, batches: int) -> dict[str, Any]:
    chance = system_chance()
    async with open_port(Profile(dsn=dsn, hot_path=True), rng=chance.rng) as port:
        for _ in range(WARM_UP):
            await _run_batch(port, chance, batch, _parts())
        parts = _parts()
        for _ in range(batches):
            await _run_batch(port, chance, batch, parts)
    figures: dict[str, Any] = {"batch": batch, "batches": batches}
    for part in parts.values():
        figures |= part.figures(batch * batches)
    return figures


def _parts() -> dict[str, Part]:
    return {name: Part(name) for name in ("submit", "claim", "step", "end")}


async def _run_batch(port: Port, chance: Chance, batch: int, parts: dict[str, Part]) -> None:
    new = [Submission(id=chance.new_id(), type=TYPE) for _ in range(batch)]
    await parts["submit"].run(port, jobs.submit, new)
    claims: list[Claim] = []
    while len(claims) < batch:
        limit = batch - len(claims)
        claims += await parts["claim"].run(port, tasks.claim, pod_id=POD, types=[TYPE], limit=limit)
    done = [_step(claim) for claim in claims]
    await parts["step"].run(port, steps.commit, pod_id=POD, operations=done)
    ends = [Finish(lease=each.lease, status=JobStatus.COMPLETED, result="1") for each in claims]
    await parts["end"].run(port, jobs.finish, pod_id=POD, operations=ends)


def _step(claim: Claim) -> NumberedStep:
    head = '{"seq": 1, "key": "work", "kind": "step"}'
    done = StepDone(
        lease=claim.lease,
        kind=StepKind.STEP,
        key="work",
        digest=bytes(32),
        duration_s=0.001,
        output="1",
        ended_at=0.0,
        tally=Tally(()),
    )
    return NumberedStep(done, 1, head)
