"""Fires the schedules that are due: each instant once, its job in the same transaction."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.errors import UnavailableError
from cortex.domain.phrases import span
from cortex.domain.schedules.cron import CronError
from cortex.domain.schedules.schedule import (
    GRACE_S,
    Missed,
    Outcome,
    Overlap,
    Pause,
    Plan,
    Schedule,
)
from cortex.postgres.database import Connection, Database, Record
from cortex.store.background.schedules import missed_text, schedule_of

BACKFILL_BATCH: Final = 20
"""So many instants of one schedule fire in one tick: a long outage is filled step by step."""
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
QUEUED_S: Final = 1.0
"""How soon queued instants look whether the job before them has ended."""


@attrs.frozen(kw_only=True)
class FiredSchedules:
    instants: int = 0
    """Dealt with: submitted, queued, skipped or failed."""
    is_skipped: bool = False
    """Another process was at work."""
    next_s: float | None = None
    """Seconds until an instant is due; zero or less: at once; None: no schedule has a next one."""
    problems: tuple[tuple[str, str], ...] = ()
    """Schedules that could not be fired, and why."""


async def fire_due(db: Database, *, limit: int) -> FiredSchedules:
    """Deal with at most so many instants that are due, by the database's clock.

    Each schedule has a transaction of its own. After `OutcomeUnknownError` just call it again.
    """
    names = await _due(db, limit)
    if names is None:
        return FiredSchedules(is_skipped=True)
    instants, problems = 0, []
    for name in names:
        if instants >= limit:
            break
        try:
            fired = await _fire(db, name, limit=min(BACKFILL_BATCH, limit - instants))
        except UnavailableError as error:
            if not error.is_locked:
                raise
            problems.append((name, error.message))  # one locked job must not delay the others
            continue
        if fired is None:
            return FiredSchedules(instants=instants, is_skipped=True, problems=tuple(problems))
        instants += fired.instants
        problems += [(name, each) for each in fired.problems]
    return FiredSchedules(instants=instants, next_s=await _next_s(db), problems=tuple(problems))


@attrs.frozen
class _Fired:
    instants: int
    problems: tuple[str, ...] = ()


async def _due(db: Database, limit: int) -> list[str] | None:
    """Return the names of what is due; None if another process is at work."""

    async def work(connection: Connection) -> list[str] | None:
        inside = db.bound(connection)
        if not await _is_mine(inside):
            return None
        await inside.fetch("schedules.settle")
        return [row["name"] for row in await inside.fetch("schedules.due", limit)]

    return await db.transact(work)


async def _fire(db: Database, name: str, *, limit: int) -> _Fired | None:
    async def work(connection: Connection) -> _Fired | None:
        inside = db.bound(connection)
        if not await _is_mine(inside):
            return None
        row = await inside.fetch_one("schedules.take", name)
        if row is None:
            return _Fired(0)  # somebody changes it just now
        return await _Firing(inside, row).run(limit)

    return await db.transact(work)


class _Firing:
    """One schedule in its transaction."""

    def __init__(self, inside: Database, row: Record) -> None:
        self._inside = inside
        self._row = row
        self._schedule: Schedule = schedule_of(row)
        self._made_up_until: datetime = row["made_up_until"] or _LONG_AGO

    async def run(self, limit: int) -> _Fired:
        name = self._schedule.name
        outcomes: list[str | None] = []
        released = await self._inside.fetch_one("schedules.release", name)
        if released is not None:
            outcomes.append(released["outcome"])
        if self._row["is_due"]:
            try:
                plan = self._schedule.plan(
                    self._row["next_at"],
                    now=self._row["now"],
                    limit=limit,
                    pause=_pause_of(self._row),
                )
            except CronError as error:  # such as a zone that this machine does not know
                await self._inside.fetch("schedules.postpone", name, error.message)
                return _Fired(len(outcomes), (error.message,))
            self._note_outage(plan.fire)
            outcomes += await self._fire(plan.fire)
            await self._advance(plan)
        failed = Outcome.FAILED in outcomes
        return _Fired(
            sum(each is not None for each in outcomes),
            ("a job could not be submitted",) if failed else (),
        )

    async def _fire(self, due: Sequence[datetime]) -> list[str | None]:
        in_outage = [self._schedule.due_at(each) <= self._made_up_until for each in due]
        if self._schedule.overlap is not Overlap.CANCEL_PREVIOUS:
            return await self._fire_all(due, in_outage)
        outcomes: list[str | None] = []
        for each, was_due_in_outage in zip(due, in_outage, strict=True):
            row = await self._inside.fetch_one("schedules.take", self._schedule.name)
            (outcome,) = await self._fire_all([each], [was_due_in_outage])
            outcomes.append(outcome)
            if outcome == Outcome.SUBMITTED and row is not None:
                await self._cancel(row["running"], each)
        return outcomes

    def _note_outage(self, due: Sequence[datetime]) -> None:
        """Note an outage if the first due instant is late: all that are due by now belong to it."""
        now = self._row["now"]
        if due and self._schedule.due_at(due[0]) < now - timedelta(seconds=GRACE_S):
            self._made_up_until = max(self._made_up_until, now)

    async def _fire_all(self, due: Sequence[datetime], in_outage: list[bool]) -> list[str | None]:
        if not due:
            return []
        rows = await self._inside.fetch("schedules.fire", self._schedule.name, list(due), in_outage)
        return [row["outcome"] for row in rows]

    async def _cancel(self, job_ids: list[UUID], instant: datetime) -> None:
        """Cancel the jobs of earlier instants, or request it from their pods."""
        if job_ids:
            why = f"the instant {instant.isoformat()} of its schedule is due"
            by = f"schedule:{self._schedule.name}"
            await self._inside.fetch("jobs.cancel", job_ids, by, why)

    async def _advance(self, plan: Plan) -> None:
        missed, next_at = plan.missed, plan.next_at
        await self._inside.fetch(
            "schedules.advance",
            self._schedule.name,
            next_at,
            None if next_at is None else self._schedule.due_at(next_at),
            None if missed is None else missed.first,
            None if missed is None else missed.last,
            None if missed is None else missed.count,
            None if missed is None else missed.is_more,
            None if missed is None else self._why_missed(missed),
            None if self._made_up_until == _LONG_AGO else self._made_up_until,
        )

    def _why_missed(self, missed: Missed) -> str:
        was = "was" if missed.count == 1 else "were"
        late = "it is late" if missed.count == 1 else "they are late"
        older = "it is older" if missed.count == 1 else "they are older"
        why = (
            f"{older} than the backfill period of {span(self._schedule.backfill_s)}"
            if self._schedule.backfill_s
            else f"{late}, and there is no backfill period"
        )
        return f"{missed_text(missed)} {was} missed: no pod ran, and {why}"


def _pause_of(row: Record) -> Pause | None:
    """Return the pause that ended before earlier instants were dealt with; None: there was none."""
    return None if row["skip_from"] is None else Pause(row["skip_from"], row["skip_until"])


async def _is_mine(inside: Database) -> bool:
    row = await inside.fetch_one("schedules.turn")
    return row is not None and row["is_mine"]


async def _next_s(db: Database) -> float | None:
    row = await db.fetch_one("schedules.pause_s")
    if row is None:
        return None
    waits = [row["next_s"]] if row["next_s"] is not None else []
    return min([*waits, *([QUEUED_S] if row["is_queued"] else [])], default=None)
