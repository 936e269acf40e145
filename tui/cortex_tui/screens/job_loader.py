"""Reads one job: one statement in each poll, the one that the screen needs most.

That is the changes since the last one, a page of older steps when the cursor comes near them, the
step under the cursor, or what blocks the job.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from cortex.store.job_screen import JobLook
from cortex_tui.app_context import AppContext
from cortex_tui.model.open_job import End, OpenJob
from cortex_tui.model.step_list import PAGE_STEPS
from cortex_tui.screens.job_stream import JobStream
from cortex_tui.screens.step_pane import StepPane

AHEAD_ROWS: Final = 50
NEVER: Final = 2**31 - 1
"""A number after every step, to read none."""


class Query(Enum):
    NEWEST = auto()
    """The job with its newest steps."""
    OLDEST = auto()
    """The job with its oldest steps."""
    BELOW = auto()
    """The job with the steps after the last loaded one."""
    JOB = auto()
    """The job without steps."""
    ABOVE = auto()
    """The steps before the first loaded one."""
    DETAIL = auto()
    REASON = auto()
    """What blocks the job."""


ENDS: Final = {Query.NEWEST: End.NEWEST, Query.OLDEST: End.OLDEST}


class JobLoader:
    """Owns what is read next, and hands it to the state and to the panes."""

    def __init__(
        self,
        context: AppContext,
        job: OpenJob,
        detail: StepPane,
        stream: JobStream,
        *,
        rearrange: Callable[[End | None], None],
    ) -> None:
        """`rearrange` rebuilds the rows, with the cursor at an end if one was read."""
        self._context, self._job = context, job
        self._detail, self._stream = detail, stream
        self._rearrange = rearrange

    def moved(self) -> None:
        """Note that other rows came in sight."""
        if self._next() is Query.ABOVE:
            self._context.wake()

    async def poll(self) -> bool:
        """Run one statement; return whether it brought news. Raises `CortexError`s."""
        query = self._next()
        match query:
            case Query.ABOVE:
                return await self._read_above()
            case Query.DETAIL:
                return await self._detail.read()
            case Query.REASON:
                return await self._read_reason()
            case _:
                return await self._read_job(query)

    def _next(self) -> Query:
        """Choose the next statement."""
        job, window, steps = self._job, self._job.window, self._job.steps
        if job.wanted is not None:
            return Query.NEWEST if job.wanted is End.NEWEST else Query.OLDEST
        if window.top < AHEAD_ROWS and not job.is_whole:
            return Query.ABOVE
        if self._detail.wants:
            return Query.DETAIL
        if job.wants_reason(self._context.session.clock.now()):
            return Query.REASON
        is_near = window.top + window.height + AHEAD_ROWS > len(window.rows)
        return Query.BELOW if steps.has_end or is_near else Query.JOB

    async def _read_above(self) -> bool:
        steps, first = self._job.steps, self._job.steps.first
        page = await self._context.backend.job.steps_before(
            self._job.id, before=first, limit=PAGE_STEPS
        )
        if first == steps.first:
            steps.precede(page)
            self._rearrange(None)
        return True

    async def _read_reason(self) -> bool:
        job, before = self._job, self._job.row
        if before is None:
            return False
        job.reasons.begin(self._context.session.clock.now())
        job.reasons.put([before], await self._context.backend.jobs.whys([job.id]))
        job.row = job.reasons.on(before)
        return job.row != before

    async def _read_job(self, query: Query) -> bool:
        job, steps, end = self._job, self._job.steps, ENDS.get(query)
        last = steps.last
        after = {Query.NEWEST: None, Query.OLDEST: 0, Query.BELOW: last}.get(query, NEVER)
        reading = await self._context.backend.job.look(job.id, after=after, limit=PAGE_STEPS)
        is_other_head = self._context.take_head(reading.head)
        if end is not None and end is not job.wanted:
            return True  # the operator has moved to the other end
        is_news = self._take(reading, end, last=last)
        if is_news or end is not None:
            self._rearrange(end)
        return is_news or is_other_head

    def _take(self, reading: JobLook, end: End | None, *, last: int) -> bool:
        """Take the job and its steps; `last`: the last loaded one when they were requested."""
        job, steps = self._job, self._job.steps
        row, before = job.reasons.on(reading.job), job.row
        newest = row.checkpoint.get("seq", 0)
        is_news = row != before
        job.row = row
        self._stream.take_emitted(reading.steps)
        self._stream.follow_job(before, row)
        if end is not None:
            job.wanted = None
            steps.renew(reading.steps, newest=newest)
        elif last == steps.last:
            is_news |= steps.extend(reading.steps, newest=newest)
        for step in reading.steps:
            job.stream.committed(step.key)
        return is_news
