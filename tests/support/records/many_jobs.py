"""Many jobs of different handlers, run at once by the parts of one pod."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import attrs
import trio

from cortex.durable.context import Context
from cortex.durable.registry import job
from cortex.runtime.calls.effect_gateway import StoreEffectGateway
from tests.support.eventually import WITHIN_S
from tests.support.records.factories import JOB_TYPE, Bench
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

Handler = Callable[[Context], Awaitable[Any]]


class ManyJobs:
    """The parts of a pod, with one handler for each job."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.handlers: dict[UUID, Handler] = {}
        bench.running.slots = 1_000
        bench.registry.add(job(JOB_TYPE)(self._handle))

    async def _handle(self, ctx: Context) -> Any:
        return await self.handlers[ctx.job_id](ctx)

    async def run(self, handlers: Mapping[str, Handler], **fields: Any) -> dict[str, UUID]:
        """Run all at once, each in one attempt to its end; return the jobs."""
        ids = await self.begin(handlers, **fields)
        with trio.fail_after(WITHIN_S):
            await self.bench.running.wait_until_empty()
        return ids

    async def begin(self, handlers: Mapping[str, Handler], **fields: Any) -> dict[str, UUID]:
        """Start all at once; return the jobs."""
        bench = self.bench
        actors = bench.actors()
        gateway = StoreEffectGateway(
            port=bench.port,
            committer=bench.committer,
            self_fence=bench.self_fence,
            new_id=new_id,
            rng=bench.rng,
        )
        actors = attrs.evolve(actors, services=attrs.evolve(actors.services, gateway=gateway))
        claims = await bench.claimed(len(handlers), **fields)
        ids = {}
        for (name, handler), claim in zip(handlers.items(), claims, strict=True):
            ids[name] = claim.lease.job_id
            self.handlers[claim.lease.job_id] = handler
            bench.jobs.start_soon(actors.run, claim, bench.running.add(claim))
        return ids


def statuses(dsn: str, ids: dict[str, UUID]) -> dict[str, str]:
    rows = sql(dsn, "SELECT id, status::text AS status FROM cortex.job")
    found = {row["id"]: row["status"] for row in rows}
    return {name: found[each] for name, each in ids.items()}
