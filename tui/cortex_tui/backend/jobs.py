"""Jobs, read from and changed in Postgres."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from cortex.domain.bulk import BulkRequest, BulkVerb
from cortex.domain.clock import system_chance
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import JobCursor, JobFilter
from cortex.postgres.database import Database
from cortex.store import job_choice, job_pages, job_refresh, jobs, retries, signals, why
from cortex.store.job_choice import JobChoice
from cortex.store.job_pages import ALL, JobPage, WayIn
from cortex.store.job_refresh import ListReading
from cortex.view.why_brief import brief

WAY_KEPT_S: Final = 5.0
"""The longest delay until a new agent or a new job id that matches the search is found."""


class StoreJobs:
    """The list of jobs, backed by the database."""

    def __init__(self, db: Database, *, credential: str) -> None:
        self._db = db
        self._credential = credential
        self._way: WayIn | None = None
        self._way_of = ALL
        self._way_until = float("-inf")

    async def page(self, which: JobFilter, *, before: JobCursor | None, limit: int) -> JobPage:
        """Read the matching jobs older than a position, or the newest ones."""
        way = await self._way_in(which)
        return await job_pages.page(self._db, which, before=before, limit=limit, way=way)

    async def page_up(self, which: JobFilter, *, after: JobCursor | None, limit: int) -> JobPage:
        """Read the matching jobs just above a position, or the oldest ones; the newest first."""
        way = await self._way_in(which)
        return await job_pages.page_up(self._db, which, after=after, limit=limit, way=way)

    async def page_due(self, which: JobFilter, *, after: JobCursor | None, limit: int) -> JobPage:
        """Read the matching jobs in RETRY that are due after a position, or next."""
        way = await self._way_in(which)
        return await job_pages.page_due(self._db, which, after=after, limit=limit, way=way)

    async def page_due_up(
        self, which: JobFilter, *, before: JobCursor | None, limit: int
    ) -> JobPage:
        """Read those due just before a position, or last; in the same order."""
        way = await self._way_in(which)
        return await job_pages.page_due_up(self._db, which, before=before, limit=limit, way=way)

    async def _way_in(self, which: JobFilter) -> WayIn:
        """Choose the index to search by, once for all pages: choosing it costs a statement."""
        now = asyncio.get_running_loop().time()
        if self._way is None or which != self._way_of or now >= self._way_until:
            self._way = await job_pages.way_in(self._db, which)
            self._way_of, self._way_until = which, now + WAY_KEPT_S
        return self._way

    async def seen(
        self, ids: Sequence[UUID], *, since: JobCursor | None, newer_max: int
    ) -> ListReading:
        """Reread some jobs, count those newer than a position, and read the screen's head."""
        return await job_refresh.refresh(self._db, ids, since=since, newer_max=newer_max)

    async def whys(self, ids: Sequence[UUID]) -> Mapping[UUID, str]:
        """Read what blocks some jobs, in a few words; see `cortex.store.why`."""
        facts = await why.facts_of_all(self._db, ids)
        return {job_id: brief(each) for job_id, each in facts.items()}

    async def cancel(self, job_id: UUID, *, by: str) -> str:
        found = await jobs.cancel(self._db, job_id, by=by, reason="")
        return "asked; its pod stops it" if found.after is JobStatus.RUNNING else "cancelled"

    async def signal(self, job_id: UUID, name: str, payload: str, *, by: str) -> str:
        """Send a signal, `payload` as JSON text; return the outcome."""
        await signals.send(self._db, name, payload, job=job_id, by=by, credential=self._credential)
        return f"{name} sent"

    async def retry(self, job_id: UUID, *, by: str) -> str:
        """Let a job retry now; return the outcome."""
        new_id = system_chance().new_id
        done = await retries.retry_now(
            self._db,
            job_id,
            by=by,
            credential=self._credential,
            reason="",
            new_id=new_id,
        )
        return done.words

    async def choose(self, verb: BulkVerb, which: JobFilter, *, limit: int) -> JobChoice:
        """Choose the newest matching jobs that an operation would change; runs page by page.

        Of dead letters the oldest.
        """
        return await job_choice.choose(self._db, verb, which, limit=limit)

    async def choose_marked(self, verb: BulkVerb, job_ids: Sequence[UUID]) -> JobChoice:
        """Choose those of the given jobs that an operation would change."""
        if verb is BulkVerb.CANCEL:
            return await job_choice.choose_marked_to_cancel(self._db, job_ids)
        return await job_choice.choose_marked_to_retry(self._db, job_ids)

    async def begin(self, request: BulkRequest, *, by: str) -> UUID:
        """Submit the job that carries a bulk operation out; return its id."""
        submission = request.submission(system_chance().new_id())
        await jobs.submit_once(self._db, submission, by=by, credential=self._credential)
        return submission.id
