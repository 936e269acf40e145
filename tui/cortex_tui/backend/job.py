"""One job, read from Postgres, and the live output of its model."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.budget import Budget, worded
from cortex.domain.errors import CortexError
from cortex.domain.people import Identity
from cortex.postgres.database import Database
from cortex.store import budgets, children, job_screen, jobs, signals, steps
from cortex.store.children import JobTree
from cortex.store.job_screen import JobLook, StepDetail, WatchedStep
from cortex.store.jobs import ShownJob
from cortex_tui.backend.listening import Heard, Listeners, Listening, OnStatus

REASON = "raised at the job"
STEPS_MAX: Final = 1_000
"""The newest steps in the document of a job."""
STEP_FIELDS: Final = (
    *("seq", "digest", "input", "arguments", "output", "output_bytes", "effect_id", "tool"),
    *(
        "effect_status",
        "calls_count",
        "can_reconcile",
        "why",
        "effect_result",
        "effect_at",
        "effect_finished_at",
    ),
    *("resolution", "resolved_by"),
)
_TEXTS: Final = ("arguments", "output", "effect_result")
"""JSON fields that are truncated."""


class StoreJob:
    """One job, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.listeners = Listeners()

    async def look(self, job_id: UUID, *, after: int | None, limit: int) -> JobLook:
        """Return a job with its `steps` after a number, or the newest; see `job_screen`.

        Its `head` is the head of the screen.
        """
        return await job_screen.look(self._db, job_id, after=after, limit=limit)

    async def steps_before(self, job_id: UUID, *, before: int, limit: int) -> Sequence[WatchedStep]:
        """Return the steps just before a number, in order."""
        return await job_screen.steps_before(self._db, job_id, before=before, limit=limit)

    async def detail(self, job_id: UUID, key: str) -> StepDetail:
        """Return a step in full by its key; see `job_screen`."""
        return await job_screen.detail(self._db, job_id, key)

    async def tree(self, job_id: UUID, *, shown_max: int) -> JobTree:
        """Return a job and those below it, `shown_max` of each job. Raises `NotFoundError`."""
        return await children.tree(self._db, job_id, shown_max=shown_max)

    async def show(self, job_id: UUID) -> ShownJob:
        """Return a job in full, without its steps. Raises `NotFoundError`."""
        return await jobs.show(self._db, job_id)

    async def document(self, job_id: UUID) -> Mapping[str, Any]:
        """Return everything about a job with its newest steps, without their outputs."""
        job = await jobs.show(self._db, job_id)
        after = max(0, job.checkpoint.get("seq", 0) - STEPS_MAX)
        return {
            "job": attrs.asdict(job, recurse=False, filter=attrs.filters.exclude("now", "why")),
            "steps": await steps.page(self._db, job_id, after=after, limit=STEPS_MAX),
            "attempts": await jobs.attempts(self._db, job_id, limit=STEPS_MAX),
            "history": await jobs.history(self._db, job_id, limit=STEPS_MAX),
            "signals": await signals.of_job(self._db, job_id, limit=STEPS_MAX),
        }

    async def step_document(self, job_id: UUID, key: str) -> Mapping[str, Any]:
        """Return a step with its output, truncated when very long, and its effect."""
        detail = await job_screen.detail(self._db, job_id, key)
        return {"key": key} | {
            name: _value(getattr(detail, name)) if name in _TEXTS else getattr(detail, name)
            for name in STEP_FIELDS
        }

    def listen(self, job_id: UUID, *, heard: Heard, on_status: OnStatus) -> Listening:
        """Listen to its model while `run` runs; `on_status` gets the state of the listener."""
        return Listening(
            self._db.profile, job_id, heard=heard, on_status=on_status, among=self.listeners
        )

    async def raise_budget(self, name: str, *, to: Decimal, by: Identity) -> str:
        """Raise a limit; return the outcome."""
        change = await budgets.raise_limit(self._db, name, to=to, by=by, reason=REASON)
        woken_count = change.woken_count
        more_count = woken_count
        more = ""
        try:
            while more_count == budgets.WAKE_BATCH:
                more_count = await budgets.wake(self._db, [name])
                woken_count += more_count
        except CortexError:  # the limit is raised anyway, and pods scan for jobs that fit a budget
            more = ", others soon"
        woken = f", {woken_count:,} {'job goes' if woken_count == 1 else 'jobs go'} on{more}"
        return f"{name} is {worded(to, Budget.parse(name).unit)}{woken if woken_count else ''}"


def _value(text: str | None) -> object:
    """Parse JSON; a truncated value stays text."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
