"""Reads the list of jobs: one query in each poll, the one that the list needs most.

That is a missing page, what blocks the waiting jobs, the steps beside the list, or the visible
rows again.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from cortex.store.job_pages import JobPage
from cortex_tui.app_context import AppContext
from cortex_tui.model.job_list import JobList
from cortex_tui.model.job_order import Order
from cortex_tui.model.window import PAGE_ROWS
from cortex_tui.screens import job_orders
from cortex_tui.screens.steps_beside import StepsBeside

NEWEST_ROWS: Final = 100
"""Reread to find new ones."""


class Query(Enum):
    FIRST = auto()
    """The first page; the cursor stays on its job."""
    TOP = auto()
    """The first page; the cursor moves to its first job."""
    END = auto()
    """The last page."""
    BELOW = auto()
    ABOVE = auto()
    TAIL = auto()
    """What was added below the last row."""
    NEWER = auto()
    """The first rows, to count the new ones among them."""
    VISIBLE = auto()
    REASONS = auto()
    """What blocks the waiting jobs in sight."""
    STEPS = auto()


BEGINNINGS: Final = (Query.FIRST, Query.TOP, Query.END)
"""Reads that replace the list: never while a question is open."""


class JobsLoader:
    """Owns what is read next, and drops the results for a list that is no longer wanted."""

    def __init__(
        self,
        context: AppContext,
        jobs: JobList,
        steps: StepsBeside,
        *,
        is_asking: Callable[[], bool],
    ) -> None:
        """`is_asking` returns whether a question is open: the list stands still."""
        self._context, self._jobs, self._steps = context, jobs, steps
        self._is_asking = is_asking
        self._wanted: Query | None = Query.FIRST
        """The beginning to read next; None: only the visible rows."""
        self._generation = 0
        """Of filter and order: results for an older one are dropped."""
        self._turn = 0

    def read(self, beginning: Query) -> None:
        """Replace the list by its first or last page with the next poll."""
        self._generation += 1
        self._wanted = beginning
        self._jobs.short_pages = 0
        self._context.wake()

    def read_anew(self) -> None:
        """Load another list from its beginning."""
        self._jobs.empty()
        self.read(Query.FIRST)

    def moved(self) -> None:
        """Note that other rows came in sight."""
        jobs = self._jobs
        jobs.short_pages = 0
        if jobs.window.wants_below or jobs.window.wants_above:
            self._context.wake()

    async def poll(self) -> bool:
        """Run one query; return whether it brought news. Raises `CortexError`s."""
        generation, query = self._generation, self._next()
        match query:
            case Query.REASONS:
                return await self._read_reasons()
            case Query.STEPS:
                return await self._steps.look()
            case Query.VISIBLE:
                return await self._read_visible(generation)
            case _:
                page = await self._page(query)
        if generation != self._generation or (self._is_asking() and query in BEGINNINGS):
            return False
        return self._take(query, page)

    async def _read_reasons(self) -> bool:
        """Read what blocks the waiting jobs in sight: one statement for all of them."""
        rows = self._jobs.waiting_in_sight
        self._jobs.reasons.begin(self._context.session.clock.now())
        texts = await self._context.backend.jobs.whys([row.id for row in rows])
        return self._jobs.explain(rows, texts)

    async def _read_visible(self, generation: int) -> bool:
        jobs = self._jobs
        reading = await self._context.backend.jobs.seen(
            [row.id for row in jobs.window.visible],
            since=jobs.newest if jobs.counts_along else None,
            newer_max=NEWEST_ROWS,
        )
        is_other_head = self._context.take_head(reading.head)
        return (generation == self._generation and jobs.refresh(reading)) or is_other_head

    async def _page(self, query: Query) -> JobPage:
        """Read a page, in one statement."""
        jobs, window = self._jobs, self._jobs.window
        place = {Query.BELOW: window.below, Query.ABOVE: window.above}.get(query)
        if query is Query.TAIL:
            place = window.place_of(window.rows[-1])
        read = job_orders.above if query in (Query.END, Query.ABOVE) else job_orders.below
        limit = NEWEST_ROWS if query in (Query.NEWER, Query.TAIL) else PAGE_ROWS
        return await read(self._context.backend.jobs, jobs.order, jobs.which, place, limit=limit)

    def _take(self, query: Query, page: JobPage) -> bool:
        """Apply a page; return whether it brought news."""
        jobs = self._jobs
        match query:
            case Query.BELOW | Query.TAIL:
                return jobs.extend(page)
            case Query.ABOVE:
                jobs.window.precede(page.jobs, above=page.next)
                return True
            case Query.NEWER if jobs.window.rows or not page.jobs:
                return jobs.count_new(page.jobs)
            case Query.NEWER if self._is_asking():
                return False
            case Query.END:
                jobs.begin_at_end(page)
            case _:  # an empty list takes newer jobs as its first page
                jobs.begin(page, at_top=query is Query.TOP)
        self._wanted = None
        return True

    def _next(self) -> Query:
        if self._wanted is not None and not self._is_asking():
            return self._wanted
        jobs, window = self._jobs, self._jobs.window
        if jobs.wants_below:
            return Query.BELOW
        if window.wants_above:
            return Query.ABOVE
        if jobs.reasons.wants(jobs.waiting_in_sight, self._context.session.clock.now()):
            return Query.REASONS
        if self._steps.wants:
            return Query.STEPS
        return self._routine() if window.rows else Query.NEWER

    def _routine(self) -> Query:
        """Choose what to refresh when nothing else is wanted."""
        self._turn += 1
        jobs, window = self._jobs, self._jobs.window
        is_third = self._turn % 3 == 0
        if jobs.order is Order.OLDEST:  # new jobs appear at the end
            return Query.TAIL if window.below is None and is_third else Query.VISIBLE
        if jobs.counts_along:
            return Query.VISIBLE
        if jobs.order is Order.DUE and window.above is not None:
            return Query.VISIBLE  # new rows show only on the first page
        # A job whose state changed may no longer match the filter: reread it by id.
        depends = jobs.which.is_about_progress or jobs.order is Order.DUE
        in_newest = window.above is None and window.top + window.height <= NEWEST_ROWS
        is_both = in_newest and not depends and jobs.new_count < NEWEST_ROWS - window.height
        return Query.NEWER if is_both or is_third else Query.VISIBLE
