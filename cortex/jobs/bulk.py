"""`bulk`: changes many jobs or dead letters, slice by slice, at a person's request.

The ids are fixed in the first step; each slice is a step of its own, which first rests as long as
the rate demands. Bulk operations share a queue and take turns: while another one waits, the job
leaves the pod between two slices.
"""

from datetime import timedelta
from typing import Final

import attrs
import trio

from cortex.domain.bulk import (
    FAILED_KEPT,
    LATE_MAX_S,
    SLICE_S,
    BulkChoice,
    BulkCounts,
    BulkFailure,
    BulkOrder,
    BulkProgress,
    BulkRequest,
    BulkResult,
)
from cortex.domain.job import BULK
from cortex.durable.context import Context
from cortex.durable.registry import job
from cortex.durable.timers import SHORT_S

TURN_S: Final = 5.0
"""How long a job goes on while another bulk operation waits."""
NEXT_TURN_S: Final = 0.1


@job(BULK)
async def bulk(ctx: Context, request: BulkRequest) -> BulkResult:
    """Carry out a bulk operation; the result says how many were changed, and why others not."""

    async def choose() -> BulkChoice:
        return await ctx.services.bulk.choose(ctx.job_id, request)

    choice = await ctx.step("choose", choose)
    return await _Operation(ctx, request, choice).run()


class _Operation:
    """The slices of one attempt. What it keeps follows from the record alone."""

    def __init__(self, ctx: Context, request: BulkRequest, choice: BulkChoice) -> None:
        self._ctx = ctx
        self._order = BulkOrder(
            id=choice.id, by=choice.by, credential=choice.credential, at=choice.at, request=request
        )
        self._choice = choice
        self._counts = BulkCounts()
        self._failures: list[BulkFailure] = []
        self._slice_max = choice.slice_max
        self._due_at = choice.at
        self._is_awaited = False
        self._turn_ends_at = trio.current_time() + TURN_S

    async def run(self) -> BulkResult:
        verb, total = self._order.request.verb, len(self._choice.job_ids)
        while (first := self._counts.passed) < total:
            last = min(total, first + self._size())
            key = f"{verb} {first + 1:,}-{last:,} of {total:,}"
            self._take(await self._ctx.step(key, self.settle, first, last))
        return BulkResult(
            total=total,
            counts=self._counts,
            failures=tuple(self._failures),
            left_out=self._choice.refused,
            has_more=self._choice.has_more,
        )

    async def settle(self, first: int, last: int) -> BulkProgress:
        """Change some of the chosen ones; the sums are for those who look on."""
        await self._rest()
        job_ids = self._choice.job_ids[first:last]
        done = await self._ctx.services.bulk.settle(self._order, job_ids)
        room = FAILED_KEPT - len(self._failures)
        return BulkProgress(
            slice=attrs.evolve(done, failures=done.failures[:room]),
            total=len(self._choice.job_ids),
            so_far=self._counts.plus(done.counts),
        )

    def _size(self) -> int:
        rate = self._order.request.rate_per_s
        return (
            self._slice_max if rate is None else min(self._slice_max, max(1, int(rate * SLICE_S)))
        )

    def _take(self, step: BulkProgress) -> None:
        done, rate = step.slice, self._order.request.rate_per_s
        self._counts = step.so_far
        self._failures += done.failures
        self._slice_max = min(2 * done.passed, self._choice.slice_max)
        self._is_awaited = done.is_awaited
        if rate is not None:
            late = done.at - timedelta(seconds=LATE_MAX_S)
            self._due_at = max(self._due_at, late) + timedelta(seconds=done.passed / rate)
        else:
            self._due_at = done.at

    async def _rest(self) -> None:
        """Wait as the rate demands, and out of the pod when it is another operation's turn."""
        is_over = self._is_awaited and trio.current_time() >= self._turn_ends_at
        rate = self._order.request.rate_per_s
        if is_over:
            until = self._due_at + timedelta(seconds=NEXT_TURN_S)
            await self._ctx.sleep_until("another bulk operation's turn", until, short_s=0.0)
        elif rate is not None and self._counts.passed:
            await self._ctx.sleep_until(f"{rate:g} per second", self._due_at, short_s=SHORT_S)
