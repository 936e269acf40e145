"""Schedules as the terminal UI sees them, in memory, changed as Postgres would."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.job import JobStatus
from cortex.domain.schedules.schedule import Origin, Outcome, Overlap
from cortex.store.background.schedules import InstantRow, ScheduleRow
from cortex_tui.backend.schedules import StoreSchedules
from tests.support.terminal.tui_pods import _Fake

TRIGGERED = UUID(int=99)


@attrs.define(kw_only=True)
class FakeSchedules(_Fake[ScheduleRow], StoreSchedules):
    """The schedules of a fake cluster."""

    past: dict[str, list[InstantRow]] = attrs.field(factory=dict)

    def add(self, name: str, **fields: Any) -> None:
        nullable = {
            each.name: None for each in attrs.fields(ScheduleRow) if "None" in str(each.type)
        }
        healthy: dict[str, Any] = {
            "name": name,
            "cron": "0 3 * * *",
            "zone": "Europe/Berlin",
            "type": "digest",
            "arguments": {},
            "tenant": "default",
            "backfill_s": 0,
            "overlap": Overlap.SKIP,
            "jitter_s": 0,
            "origin": Origin.FILE,
            "next_at": self.ago(-754),
            "due_at": self.ago(-754),
            "missed_count": 0,
            "changed_by": "ana",
            "changed_at": self.ago(3600),
            "reason": "",
            "created_at": self.ago(3600),
            "is_served": True,
            "is_declared": True,
            "has_missed": False,
            "queued": 0,
            "now": self.now,
        }
        self.rows[name] = ScheduleRow(**nullable | healthy | fields)
        self.past.setdefault(name, [])

    def fired(self, name: str, ago_s: float, outcome: Outcome, **fields: Any) -> None:
        """Add an earlier instant than those before."""
        is_submitted = outcome is Outcome.SUBMITTED
        row: dict[str, Any] = {
            "instant": self.ago(ago_s),
            "outcome": outcome,
            "job_id": UUID(int=len(self.past[name]) + 1) if is_submitted else None,
            "is_manual": False,
            "is_made_up": False,
            "error": "no such agent" if outcome is Outcome.FAILED else None,
            "reason": "the job of the instant before had not ended"
            if outcome is Outcome.SKIPPED
            else None,
            "at": self.ago(ago_s),
            "status": JobStatus.COMPLETED if is_submitted else None,
            "finished_at": self.ago(ago_s - 1) if is_submitted else None,
        }
        self.past[name].append(InstantRow(**row | fields))

    async def instants(self, name: str) -> Sequence[InstantRow]:
        self.asked.append("instants")
        self.check()
        return list(self.past[name])

    async def pause(self, name: str, *, by: str, reason: str) -> str:
        self._act("pause", name, by, reason)
        if self.rows[name].paused_at is not None:
            raise ConflictError(f"schedule {name!r} is paused already")
        self.change(name, paused_at=self.now, paused_by=by, pause_reason=reason)
        return "paused"

    async def resume(self, name: str, *, by: str, reason: str) -> str:
        self._act("resume", name, by, reason)
        self.change(name, paused_at=None, paused_by=None, pause_reason=None)
        return "goes on"

    async def trigger(self, name: str, *, by: str, reason: str) -> str:
        self._act("trigger", name, by, reason)
        if name not in self.rows:
            raise NotFoundError(f"schedule {name!r} does not exist")
        return f"submitted {TRIGGERED}"
