"""The list of jobs: the newest first, filtered, followed while they run, acted on by id.

The example of a screen with a list. What it shows lives in a `Window`; `look` decides by itself
which one statement brings it forward: a page that is missing, or what is in sight once more.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from textual import on
from textual.widget import Widget

from cortex.domain.cells import Cell
from cortex.domain.errors import UsageError
from cortex.domain.job_filter import JobFilter, JobPlace, parse_filter
from cortex.store.job_pages import JobPage
from cortex.store.operator import JobsSeen
from cortex_tui.backend.protocol import JobRow
from cortex_tui.desk import Desk
from cortex_tui.model.window import PAGE_ROWS, Window
from cortex_tui.render.job_rows import JOB_COLUMNS
from cortex_tui.render.words import about
from cortex_tui.screens import job_acts
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.filter_line import FilterLine
from cortex_tui.widgets.virtual_table import VirtualTable

NEWEST_ROWS: Final = 100
"""Read again to see which are new; more are "99+"."""
SHORT_PAGES_MAX: Final = 50
"""So many pages in a row that are short because little fits: about 100,000 jobs looked at."""


class JobsScreen(Frame):
    """`jobs`."""

    NAME = "jobs"
    IS_PAINTED_FOR_NEWS = True

    def __init__(self, desk: Desk, asked: str = "") -> None:
        """`asked`: the filter that it begins with."""
        super().__init__(desk)
        self._which = parse_filter(asked)
        self._window: Window[JobRow, JobPlace] = Window(
            key=_id_of, place=lambda row: _place_of([row])
        )
        self._newest: JobPlace | None = None
        """The first job of the list when it was read; what stands before it is new."""
        self._new_count = 0
        self._wanted = "newest"
        """What is to be read next: newest, top, end; "": only what is in sight."""
        self._is_read = False
        self._turn = 0
        self._short_pages = 0
        self._generation = 0
        """Of the filter: an answer to the one before is thrown away."""
        self._filter = FilterLine(desk, told=self._counted)
        self._filter.text = asked
        self._table = VirtualTable(desk, self._window, JOB_COLUMNS, key=_id_of, empty=self._nothing)

    def body(self) -> Iterable[Widget]:
        return (self._filter, self._table)

    def on_mount(self) -> None:
        self._table.focus()

    def paint(self) -> None:
        self._table.redraw()
        self._filter.redraw()

    def info(self) -> Cell:
        if not self._new_count:
            return Cell("")
        count = f"{self._new_count}" if self._new_count < NEWEST_ROWS else f"{NEWEST_ROWS - 1}+"
        return Cell(f"▲ {count} new   . shows ", "accent")

    # --- looking

    async def look(self) -> bool:
        jobs, window, which = self.desk.backend.jobs, self._window, self._which
        asked = self._generation
        match self._next():
            case "newest" | "top" as wanted:
                page = await jobs.page(which, before=None, limit=PAGE_ROWS)
                return asked == self._generation and self._begin(page, at_top=wanted == "top")
            case "end":
                page = await jobs.page_up(which, after=None, limit=PAGE_ROWS)
                return asked == self._generation and self._begin_at_end(page)
            case "below":
                page = await jobs.page(which, before=window.below, limit=PAGE_ROWS)
                return asked == self._generation and self._go_on(page)
            case "above":
                page = await jobs.page_up(which, after=window.above, limit=PAGE_ROWS)
                if asked == self._generation:
                    window.precede(page.jobs, above=page.next)
                return True
            case "seen":
                found = await jobs.seen(
                    [row["id"] for row in window.visible],
                    since=self._newest if which == JobFilter() else None,
                    newer_max=NEWEST_ROWS,
                )
                is_other_head = self.desk.take_head(found.head)
                return (asked == self._generation and self._see(found)) or is_other_head
            case _:
                page = await jobs.page(which, before=None, limit=NEWEST_ROWS)
                return asked == self._generation and self._count_new(page)

    def _next(self) -> str:
        """Choose what the next statement asks for."""
        if self._wanted:
            return self._wanted
        window = self._window
        if window.wants_below and self._short_pages < SHORT_PAGES_MAX:
            return "below"
        if window.wants_above:
            return "above"
        self._turn += 1
        # Of all jobs those that are newer are counted along with what is seen.
        is_turn = self._turn % 3 == 0 and self._which != JobFilter()
        return "newer" if is_turn or not window.rows else "seen"

    def _see(self, found: JobsSeen) -> bool:
        """Take in what is in sight, and how many are new; return whether it is something else."""
        is_changed = self._window.update(found.jobs)
        if self._which == JobFilter():
            is_changed |= found.newer_count != self._new_count
            self._new_count = found.newer_count
        return is_changed

    def _begin(self, page: JobPage, *, at_top: bool = False) -> bool:
        self._wanted = ""
        self._is_read = True
        self._short_pages = int(page.is_short)
        self._new_count = 0
        self._newest = _place_of(page.jobs)
        self._window.renew(page.jobs, below=page.next)
        if at_top:
            self._window.move_to(0)
        return True

    def _begin_at_end(self, page: JobPage) -> bool:
        self._wanted = ""
        self._is_read = True
        self._window.replace(page.jobs, above=page.next, below=None, at_end=True)
        return True

    def _go_on(self, page: JobPage) -> bool:
        self._short_pages = self._short_pages + 1 if page.is_short else 0
        self._window.extend(page.jobs, below=page.next)
        if self._newest is None:
            self._newest = _place_of(page.jobs)
        return True

    def _count_new(self, page: JobPage) -> bool:
        """Count what came before the first row; an empty list just takes it."""
        if not self._window.rows and page.jobs:
            return self._begin(page)
        newest = self._newest
        count = len(page.jobs)
        if newest is not None:
            count = sum(
                (row["created_at"], row["id"]) > (newest.at, newest.id) for row in page.jobs
            )
        is_changed = count != self._new_count
        self._new_count = count
        return self._window.update(page.jobs) or is_changed

    # --- keys

    def action_move(self, how: str) -> None:
        """Move the cursor; to an end of the list that is not in the window by reading it."""
        is_far = {"end": self._window.below, "top": self._window.above}.get(how) is not None
        if is_far:
            self._read(how)
        else:
            self._table.move(how)

    def action_fresh(self) -> None:
        self._read("newest")

    def action_open(self) -> None:
        if (row := self._window.current) is not None:
            self.desk.open("job", row["id"])

    def action_filter(self) -> None:
        self._filter.edit()

    def action_cancel(self) -> None:
        job_acts.cancel(self.desk, self.strip, self._window.current)

    def action_retry(self) -> None:
        job_acts.retry(self.desk, self.strip, self._window.current)

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        self._short_pages = 0
        if self._window.wants_below or self._window.wants_above:
            self.desk.wake()

    @on(FilterLine.Wanted)
    def _filtered(self, event: FilterLine.Wanted) -> None:
        try:
            self._which = parse_filter(event.text)
        except UsageError as error:
            self.strip.tell(f"✗ {error.message} · {error.hint or ''}", "fail")
            return
        self.strip.tell("")
        self._filter.close(event.text)
        self._table.focus()
        self._is_read = False
        self._window.replace((), above=None, below=None)
        self._read("newest")
        self.repaint()

    def _read(self, what: str) -> None:
        self._generation += 1
        self._wanted = what
        self._short_pages = 0
        self.desk.wake()

    # --- words

    def _counted(self) -> str:
        window = self._window
        if not self._is_read:
            return "reading …"
        if window.above is None and window.below is None:
            return "1 job" if len(window.rows) == 1 else f"{len(window.rows)} jobs"
        head = self.desk.head
        known = about(max(head.jobs_about, len(window.rows))) if head else ""
        if self._which == JobFilter():
            return f"{known} jobs"
        return f"{len(window.rows)}+ of {known} jobs"

    def _nothing(self) -> str:
        if not self._is_read:
            return "reading …"
        if self._which != JobFilter():
            return "no job matches"
        return "no jobs yet; submit one: cortex jobs submit TYPE"


def _id_of(row: JobRow) -> UUID:
    found: UUID = row["id"]
    return found


def _place_of(rows: Sequence[JobRow]) -> JobPlace | None:
    return JobPlace(rows[0]["id"], rows[0]["created_at"]) if rows else None
