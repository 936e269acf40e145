"""The list of jobs: its filter and order, the rows in its window, the marks, the count of new jobs.

Pure: `JobsLoader` reads the pages, and `JobsScreen` draws.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.job import JobStatus
from cortex.domain.job_filter import (
    JobCursor,
    JobFilter,
    parse_filter,
    with_only,
)
from cortex.store.job_pages import JobPage
from cortex.store.job_refresh import ListReading
from cortex.store.jobs import ListedJob
from cortex.view.why_brief import EXPLAINED
from cortex_tui.model import job_order
from cortex_tui.model.bulk import Selection
from cortex_tui.model.job_order import Order
from cortex_tui.model.marks import Marks
from cortex_tui.model.wait_reasons import WaitReasons, standing
from cortex_tui.model.window import Window

REASONS_GAP_S: Final = 2.0
"""When other jobs came in sight, what blocks them is read after this time."""
SHORT_PAGES_MAX: Final = 50
"""Short pages in a row, because little matches: about 100,000 jobs are scanned."""


@attrs.define(kw_only=True, eq=False)
class JobList:
    """Its methods take what was read or what the operator asked for."""

    text: str = ""
    """The filter as typed."""
    which: JobFilter = attrs.field(init=False)
    order: Order = Order.NEWEST
    marks: Marks = attrs.field(factory=Marks, init=False)
    window: Window[ListedJob, JobCursor] = attrs.field(init=False)
    reasons: WaitReasons = attrs.field(factory=lambda: WaitReasons(gap_s=REASONS_GAP_S), init=False)
    is_read: bool = attrs.field(default=False, init=False)
    newest: JobCursor | None = attrs.field(default=None, init=False)
    """The first job of the list when it was read; jobs before it are new."""
    new_count: int = attrs.field(default=0, init=False)
    short_pages: int = attrs.field(default=0, init=False)
    """Pages in a row that a scan for few matches ended early."""

    def __attrs_post_init__(self) -> None:
        self.which = parse_filter(self.text)
        self.window = Window(key=id_of, place=lambda row: job_order.place_of(self.order, row))

    # --- what is selected

    @property
    def listed(self) -> JobFilter | None:
        """The filter within this order; None if nothing can match."""
        return job_order.listed(self.order, self.which)

    @property
    def selection(self) -> Selection:
        """The jobs on which a bulk operation acts."""
        which = self.which if self.listed is None else self.listed
        return Selection(job_ids=tuple(self.marks), which=which, text=self.listed_text)

    @property
    def listed_text(self) -> str:
        """The text of the filter within this order."""
        if self.order is not Order.DUE:
            return self.text
        return with_only(self.text, "status", JobStatus.RETRY)

    @property
    def steps_version(self) -> tuple[UUID, Hashable] | None:
        """The job under the cursor, and a value that differs once it has other steps."""
        row = self.window.current
        return None if row is None else (row.id, (standing(row), row.checkpoint.get("seq")))

    @property
    def waiting_in_sight(self) -> list[ListedJob]:
        return [row for row in self.window.visible if row.status in EXPLAINED]

    @property
    def counts_along(self) -> bool:
        """Whether the refresh of visible rows also counts newer jobs: only without a filter."""
        return self.which == JobFilter() and self.order is Order.NEWEST

    @property
    def wants_below(self) -> bool:
        return self.window.wants_below and self.short_pages < SHORT_PAGES_MAX

    def find(self, step: int, is_wanted: Callable[[ListedJob], bool]) -> int | None:
        """Return the index of the next wanted row from the cursor, wrapping around."""
        rows, at = self.window.rows, self.window.cursor or 0
        places = ((at + step * n) % len(rows) for n in range(1, len(rows) + 1))
        return next((place for place in places if is_wanted(rows[place])), None)

    # --- what the operator asks for

    def filter_by(self, text: str) -> None:
        """List other jobs; raises `UsageError`."""
        self.which = parse_filter(text)
        self.text = text
        self.marks.clear()  # operations apply only to listed jobs

    def empty(self) -> None:
        """Forget the rows, because another list is read from its beginning."""
        self.is_read = False
        self.window.replace((), above=None, below=None)
        self.new_count = 0

    # --- what was read

    def begin(self, page: JobPage, *, at_top: bool = False) -> None:
        """Show the first page."""
        self.is_read = True
        self.short_pages = int(page.is_short)
        self.new_count = 0
        self.newest = job_order.first_place(self.order, page.jobs)
        self.window.renew(page.jobs, below=page.next)
        if at_top:
            self.window.move_to(0)

    def begin_at_end(self, page: JobPage) -> None:
        """Show the last page."""
        self.is_read = True
        self.window.replace(page.jobs, above=page.next, below=None, at_end=True)

    def extend(self, page: JobPage) -> bool:
        """Append the page below; return whether it brought news."""
        self.short_pages = self.short_pages + 1 if page.is_short else 0
        self.window.extend(page.jobs, below=page.next)
        if self.newest is None:
            self.newest = job_order.first_place(self.order, page.jobs)
        return bool(page.jobs) or page.is_short

    def refresh(self, reading: ListReading) -> bool:
        """Take visible rows again, and the count of new ones; return whether any differs."""
        is_changed = self.window.update([self.reasons.on(row) for row in reading.jobs])
        if self.counts_along:
            is_changed |= reading.newer_count != self.new_count
            self.new_count = reading.newer_count
        return is_changed

    def count_new(self, rows: Sequence[ListedJob]) -> bool:
        """Count the new ones among the first rows; return whether anything differs."""
        count = self._count_of_new(rows)
        is_changed = count != self.new_count
        self.new_count = count
        return self.window.update([self.reasons.on(row) for row in rows]) or is_changed

    def explain(self, rows: Sequence[ListedJob], texts: Mapping[UUID, str]) -> bool:
        """Take what blocks these rows; return whether a visible one differs."""
        self.reasons.put(rows, texts)
        return self.window.update([self.reasons.on(row) for row in self.window.visible])

    def _count_of_new(self, rows: Sequence[ListedJob]) -> int:
        if self.order is Order.DUE:  # a job that starts to wait may be due before all others
            shown = {row.id for row in self.window.rows}
            return sum(row.id not in shown for row in rows)
        newest = self.newest
        if newest is None:
            return len(rows)
        return sum((row.created_at, row.id) > (newest.at, newest.id) for row in rows)


def id_of(row: ListedJob) -> UUID:
    return row.id
