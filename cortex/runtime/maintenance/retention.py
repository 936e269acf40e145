"""Deletes finished jobs and facts that are older than the retention setting says; off by default.

Reads: finished jobs by state, oldest first, then facts; each read is bounded and continues where
the last one ended, whichever process made it. Writes: copies into the archive, if there is one;
then the deletion.
Invariants: nothing younger than the setting, and nothing that something still refers to, is ever
deleted: the database checks both again as it deletes. With an archive, a record is on the disk
before it is deleted. One process at a time does this.

On failure: an outage is waited out; an archive that cannot be written is logged, and nothing is
deleted.
On stop: nothing to do; a copy without its deletion stays, and is made once more.
"""

import random
from functools import partial
from typing import Final

import structlog
import trio

from cortex.actors.runner import IDLE, SOON_S, Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.domain.clock import Chance
from cortex.postgres.bridge import Port
from cortex.runtime.maintenance import archive
from cortex.store.background import retention
from cortex.store.background.retention import Deleted, Kind

BATCH_MAX: Final = 200
"""Jobs, with all that belongs to them, that one transaction deletes: some ten milliseconds, and a
rate that vacuum keeps up with."""

_log = structlog.get_logger(__name__)


class Retention(Runner):
    name = "retention"
    failure = "retention failed"
    items_max = len(Kind) * BATCH_MAX

    def __init__(self, port: Port, *, rng: random.Random, chance: Chance) -> None:
        super().__init__(rng=rng)
        self._port = port
        self._chance = chance
        self._is_held = False

    async def tick(self, budget: TickBudget, /) -> TickResult:
        """Delete one batch of each kind."""
        turn = await self._port(retention.turn)
        if turn is None or turn.is_held or not turn.is_mine:
            self._log_hold(is_held=turn is not None and turn.is_held)
            return TickResult(is_skipped=turn is not None and not turn.is_mine, next_s=IDLE.cap_s)
        self._log_hold(is_held=False)
        if turn.archive is not None:  # reported at once, not when the first job is old enough
            await trio.to_thread.run_sync(archive.check, turn.archive)
        items = 0
        is_behind = False
        for kind in Kind:
            limit = min(BATCH_MAX, budget.items - items)
            if limit <= 0 or trio.current_time() >= budget.until:
                is_behind = True
                break
            batch = await self._port(retention.next_batch, kind, limit=limit)
            if batch is None:
                continue
            done = await self._delete(batch, folder=turn.archive)
            if done.is_skipped:
                return TickResult(items=items, is_skipped=not items, next_s=IDLE.cap_s)
            items += done.jobs + done.facts
            is_behind = is_behind or not batch.is_at_end
        return TickResult(items=items, next_s=SOON_S if is_behind else IDLE.cap_s)

    async def _delete(self, batch: retention.RetentionBatch, *, folder: str | None) -> Deleted:
        facts_through = None
        if folder is not None and not batch.is_empty:
            copy = await self._port(retention.copy, batch)
            with trio.CancelScope(shield=True):  # a thread cannot be stopped half-way
                path = await trio.to_thread.run_sync(
                    partial(
                        archive.write,
                        folder,
                        copy.lines,
                        kind=batch.kind.value,
                        at=copy.at,
                        new_id=self._chance.new_id(),
                    )
                )
            crash_point("after_archive")
            _log.info("records archived", file=str(path), records=len(copy.lines))
            batch, facts_through = copy.batch, copy.facts_through
        crash_point("before_retention")
        done = await self._port(retention.delete, batch, facts_through=facts_through)
        if done.jobs or done.facts:
            crash_point("after_retention")
            _log.info(
                "old records deleted", of=batch.kind.value.lower(), jobs=done.jobs, facts=done.facts
            )
        return done

    def _log_hold(self, *, is_held: bool) -> None:
        if is_held and not self._is_held:
            _log.warning("retention held", reason="the clock was moved, or nothing ran for days")
        self._is_held = is_held
