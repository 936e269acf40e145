"""The list of jobs: sorted, filtered, followed while they run, marked, changed by id.

The example of a screen with a list. A `Window` holds its rows; `look` chooses the one query that
it needs most: a missing page, or the visible rows again.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import attrs
from textual import on
from textual.containers import Horizontal
from textual.widget import Widget

from cortex.domain.errors import UsageError
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import (
    STATE_WORDS,
    JobCursor,
    JobFilter,
    parse_filter,
    term,
    with_only,
)
from cortex.domain.safe import safe
from cortex.store.job_pages import JobPage
from cortex.store.jobs import ListedJob
from cortex.store.operator import ListReading
from cortex.view.cells import Cell
from cortex.view.why_brief import EXPLAINED
from cortex_tui.app_context import AppContext
from cortex_tui.key_table import shown
from cortex_tui.model.bulk import JobsVerb
from cortex_tui.model.marks import MARKS_MAX, Marks
from cortex_tui.model.pick import PickSome
from cortex_tui.model.resource import Resource
from cortex_tui.model.window import PAGE_ROWS, Window
from cortex_tui.poller import WHYS_EVERY_S
from cortex_tui.render.job_rows import (
    OPTIONAL_COLUMNS,
    is_problem,
    job_columns,
    standing,
)
from cortex_tui.render.job_side import side_head, side_lines
from cortex_tui.render.words import about, failed
from cortex_tui.screens import job_actions, job_orders, jobs_bulk
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.job_orders import Order, place_of
from cortex_tui.screens.jobs_bulk import BulkRun, Wanted
from cortex_tui.screens.steps_beside import StepsBeside, StepsOf
from cortex_tui.widgets.filter_line import FilterLine
from cortex_tui.widgets.side import About, Side
from cortex_tui.widgets.virtual_table import VirtualTable

NEWEST_ROWS: Final = 100
"""Reread to find new ones; more are "99+"."""
SHORT_PAGES_MAX: Final = 50
"""Short pages in a row, because little matches: about 100,000 jobs are scanned."""
WHYS_SOON_S: Final = 2.0
"""When other jobs came in sight, what blocks them is read after this time."""
BEGINNINGS: Final = ("first", "top", "end")
"""Reads that replace the list: never while a question is open."""
MARKED: Final = "rows are marked: the list stands still until they are clear"


class JobsScreen(Frame):
    """The list of jobs."""

    NAME = "jobs"
    DEFAULT_CSS = """
    JobsScreen.-widely Side { width: 44; }
    """

    def __init__(self, desk: AppContext, asked: str = "") -> None:
        """`asked`: the initial filter."""
        super().__init__(desk)
        self._which = parse_filter(asked)
        self._order = Order.NEWEST
        self._marks = Marks()
        self._run: BulkRun | None = None
        self._window: Window[ListedJob, JobCursor] = Window(
            key=_id_of, place=lambda row: place_of(self._order, row)
        )
        self._newest: JobCursor | None = None
        """The first job of the list when it was read; jobs before it are new."""
        self._new_count = 0
        self._wanted = "first"
        """The next read: first, top, end; "": only the visible rows."""
        self._is_read = False
        self._turn = 0
        self._whys: Mapping[Hashable, str] = {}
        """What blocks the waiting jobs in sight, by their state."""
        self._whys_due = float("-inf")
        self._short_pages = 0
        self._generation = 0
        """Of filter and order: results for an older one are dropped."""
        self._filter = FilterLine(desk, told=self._counted)
        self._filter.text = asked
        columns = job_columns(desk.job_columns)
        self._table = VirtualTable(desk, self._window, columns, key=_id_of, empty=self._nothing)
        self._table.marked = self._marks
        self._side = Side(desk, about=self._about)
        self._steps = StepsBeside(desk, of=self._steps_of)

    def body(self) -> Iterable[Widget]:
        panes = Horizontal(self._table, self._side, self._steps.pane, id="aside")
        return (self._filter, panes)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def paint(self) -> None:
        self._table.redraw()
        self._filter.redraw()
        self._side.tell()
        self._steps.pane.tell()

    def on_screen_resume(self) -> None:
        self._table.columns = job_columns(self.desk.job_columns)
        super().on_screen_resume()

    def info(self) -> Cell:
        new = ""
        if self._new_count:
            is_capped = self._new_count >= NEWEST_ROWS
            new = f"▲ {f'{NEWEST_ROWS - 1}+' if is_capped else self._new_count} new   "
        if not self._marks:
            return Cell(f"{new}. shows ", "accent") if new else Cell("")
        marked = "all that fit" if self._marks.is_all else f"{len(self._marks):,} marked"
        return Cell(f"{new}* {marked} ", "warn")

    def thing(self) -> Resource | None:
        return None if (row := self._window.current) is None else job_actions.thing(self.desk, row)

    def escape(self) -> bool:
        return self._run is not None and self._run.stop()

    # --- polling

    async def look(self) -> bool:
        jobs, window = self.desk.backend.jobs, self._window
        asked, what = self._generation, self._next()
        if what == "whys":
            return await self._look_at_whys()
        if what == "steps":
            return await self._steps.look()
        if what == "seen":
            found = await jobs.seen(
                [row.id for row in window.visible],
                since=self._newest if self._counts_along else None,
                newer_max=NEWEST_ROWS,
            )
            is_other_head = self.desk.take_head(found.head)
            return (asked == self._generation and self._see(found)) or is_other_head
        page = await self._page(what)
        if asked != self._generation or (self.strip.is_asking and what in BEGINNINGS):
            return False
        return self._take(what, page)

    async def _look_at_whys(self) -> bool:
        """Read what blocks the waiting jobs in sight: one statement for all of them."""
        rows = self._waiting_in_sight
        self._whys_due = self.desk.session.clock.now() + WHYS_EVERY_S
        found = await self.desk.backend.jobs.whys([row.id for row in rows])
        self._whys = {standing(row): found.get(row.id, "") for row in rows}
        return self._window.update([self._with_why(row) for row in self._window.visible])

    def _with_why(self, row: ListedJob) -> ListedJob:
        return attrs.evolve(row, why=self._whys.get(standing(row), ""))

    @property
    def _waiting_in_sight(self) -> list[ListedJob]:
        return [row for row in self._window.visible if row.status in EXPLAINED]

    def _take(self, what: str, page: JobPage) -> bool:
        """Apply what was read; return whether it brought news."""
        match what:
            case "first" | "top":
                return self._begin(page, at_top=what == "top")
            case "end":
                return self._begin_at_end(page)
            case "below" | "tail":
                return self._go_on(page)
            case "above":
                self._window.precede(page.jobs, above=page.next)
                return True
            case _:
                return self._count_new(page)

    async def _page(self, what: str) -> JobPage:
        """Read the wanted page, in one statement."""
        jobs, order, which, window = self.desk.backend.jobs, self._order, self._which, self._window
        place = {"below": window.below, "above": window.above}.get(what)
        if what == "tail":
            place = window.place_of(window.rows[-1])
        read = job_orders.above if what in ("end", "above") else job_orders.below
        limit = NEWEST_ROWS if what in ("newer", "tail") else PAGE_ROWS
        return await read(jobs, order, which, place, limit=limit)

    def _next(self) -> str:
        """Choose the next query."""
        if self._wanted and not self.strip.is_asking:
            return self._wanted
        window = self._window
        if window.wants_below and self._short_pages < SHORT_PAGES_MAX:
            return "below"
        if window.wants_above:
            return "above"
        if self._wants_whys:
            return "whys"
        if self._steps.wants:
            return "steps"
        return self._routine() if window.rows else "newer"

    @property
    def _wants_whys(self) -> bool:
        """Whether to read again what blocks the jobs in sight."""
        left_s = self._whys_due - self.desk.session.clock.now()
        if left_s > WHYS_EVERY_S - WHYS_SOON_S:
            return False
        rows = self._waiting_in_sight
        has_others = any(standing(row) not in self._whys for row in rows)
        return bool(rows) and (left_s <= 0 or has_others)

    def _routine(self) -> str:
        """Choose what to refresh when nothing else is wanted."""
        self._turn += 1
        window = self._window
        if self._order is Order.OLDEST:  # new jobs appear at the end
            return "tail" if window.below is None and self._turn % 3 == 0 else "seen"
        if self._counts_along:
            return "seen"
        if self._order is Order.DUE and window.above is not None:
            return "seen"  # new rows show only on the first page
        # A job whose state changed may no longer match the filter: reread it by id.
        depends = self._which.statuses or self._which.codes or self._order is Order.DUE
        in_newest = window.above is None and window.top + window.height <= NEWEST_ROWS
        is_both = in_newest and not depends and self._new_count < NEWEST_ROWS - window.height
        return "newer" if is_both or self._turn % 3 == 0 else "seen"

    @property
    def _counts_along(self) -> bool:
        """Whether the refresh of visible rows also counts newer jobs: only without a filter."""
        return self._which == JobFilter() and self._order is Order.NEWEST

    def _see(self, found: ListReading) -> bool:
        """Apply a refresh of visible rows and the count of new ones; return whether it changed."""
        is_changed = self._window.update([self._with_why(row) for row in found.jobs])
        if self._counts_along:
            is_changed |= found.newer_count != self._new_count
            self._new_count = found.newer_count
        return is_changed

    def _begin(self, page: JobPage, *, at_top: bool = False) -> bool:
        self._wanted = ""
        self._is_read = True
        self._short_pages = int(page.is_short)
        self._new_count = 0
        self._newest = job_orders.first_place(self._order, page.jobs)
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
            self._newest = job_orders.first_place(self._order, page.jobs)
        return bool(page.jobs) or page.is_short

    def _count_new(self, page: JobPage) -> bool:
        """Count the rows before the first one; an empty list takes them instead."""
        if not self._window.rows and page.jobs:
            return not self.strip.is_asking and self._begin(page)
        count = self._count_of_new(page.jobs)
        is_changed = count != self._new_count
        self._new_count = count
        rows = [self._with_why(row) for row in page.jobs]
        return self._window.update(rows) or is_changed

    def _count_of_new(self, rows: Sequence[ListedJob]) -> int:
        """Count those of the first rows that the list does not show yet."""
        if self._order is Order.DUE:  # a job that starts to wait may be due before all others
            known = {_id_of(row) for row in self._window.rows}
            return sum(_id_of(row) not in known for row in rows)
        newest = self._newest
        if newest is None:
            return len(rows)
        return sum((row.created_at, row.id) > (newest.at, newest.id) for row in rows)

    # --- keys

    def action_move(self, how: str) -> None:
        """Move the cursor; an end of the list outside the window is read first."""
        is_far = {"end": self._window.below, "top": self._window.above}.get(how) is not None
        if is_far or (how == "end" and not self._is_read):
            self._read(how)
        else:
            self._table.move(how)

    def action_fresh(self) -> None:
        if self._marks:
            self.strip.tell(MARKED, "warn")
        else:
            self._read("first")

    def action_open(self) -> None:
        if (row := self._window.current) is None:
            self.strip.tell(self._window.why_none(self._nothing()), "dim")
        else:
            self.desk.open("job", row.id)

    def action_filter(self) -> None:
        self._filter.edit()

    def action_sort(self) -> None:
        """Change to the next order, from its beginning."""
        if self._marks:
            self.strip.tell(MARKED, "warn")
            return
        self._order = job_orders.after(self._order)
        self.strip.tell(f"the {self._order.value}", "dim")
        self._read_anew()

    def action_columns(self) -> None:
        """Ask which columns to show; they change with each pick."""
        pick = PickSome("show", OPTIONAL_COLUMNS, self.desk.job_columns, changed=self._show_columns)
        self.strip.ask(pick, lambda _: None)

    def _show_columns(self, names: frozenset[str]) -> None:
        self.desk.job_columns = names
        self._table.columns = job_columns(names)
        self._table.redraw()

    def action_owner(self) -> None:
        """Open the jobs of the job's agent."""
        row = self._window.current
        if row is None or not row.agent:
            self.strip.tell("no agent's job under the cursor", "dim")
        elif self._which == parse_filter(wanted := term("agent", row.agent)):
            self.strip.tell(f"the jobs of {safe(row.agent)} are shown already", "dim")
        else:
            self.desk.open("jobs", wanted)

    def action_problem(self, way: str) -> None:
        """Go to the next loaded job with a problem."""
        rows, at, now = self._window.rows, self._window.cursor or 0, self.desk.session.now
        step = 1 if way == "next" else -1
        places = ((at + step * n) % len(rows) for n in range(1, len(rows) + 1))
        found = next((place for place in places if is_problem(rows[place], now)), None)
        if found is None:
            self.strip.tell("nothing is wrong with the jobs that were read", "dim")
            return
        self._window.move_to(found)
        self._table.post_message(VirtualTable.Moved())
        self.repaint()

    # --- marks

    def action_mark(self, how: str) -> None:
        """Mark the row of the cursor, or the range from the last mark."""
        at = self._window.cursor
        if at is None:
            self.strip.tell("no job under the cursor", "dim")
            return
        if self._marks.is_all:
            self.strip.tell("all that fit are marked already", "dim")
            return
        keys = [_id_of(row) for row in self._window.rows]
        has_room = self._marks.extend(keys, at) if how == "range" else self._marks.toggle(keys[at])
        if not has_room:
            self.strip.tell(f"{MARKS_MAX:,} marks at most; all that fit can be marked", "warn")
        if how == "one":
            self._table.move("down")
        self.repaint()

    def action_mark_all(self) -> None:
        """Mark all jobs that match the filter, including those not loaded."""
        if self._listed is None:
            self.strip.tell("no job under the cursor", "dim")
            return
        self._marks.take_all()
        text = self._listed_text
        what = f"that fit {safe(text)}" if text else "there are"
        self.strip.tell(f"marked: all jobs {what}, counted before anything is done", "warn")
        self.repaint()

    def action_unmark(self) -> None:
        self._marks.clear()
        self.workers.cancel_group(self, "dry run")
        self.strip.tell("")
        self.repaint()

    # --- actions

    def action_cancel(self) -> None:
        self._act(JobsVerb.CANCEL)

    def action_retry(self) -> None:
        self._act(JobsVerb.RETRY)

    def action_pause(self) -> None:
        row = self._window.current
        if row is None:
            self.strip.tell("no job under the cursor", "dim")
        elif (refusal := self.desk.acts.why_not()) is not None:
            self.strip.tell(refusal, "warn")
        else:
            typed = self.strip.expect(job_actions.READING)
            asking = job_actions.pause_queue(self.desk, self.strip, row, typed=typed)
            _ = self.run_worker(asking, group="dry run", exclusive=True)

    def _act(self, verb: JobsVerb) -> None:
        """Ask to confirm an operation on the marked jobs, or else on the job of the cursor."""
        if not self._marks:
            self._act_on_one(verb)
            return
        if (refusal := self.desk.acts.why_not(is_bulk=True)) is not None:
            self.strip.tell(refusal, "warn")
            return
        wanted = self._marked()
        asking = jobs_bulk.ask(
            self.desk,
            self.strip,
            verb,
            wanted,
            began=self._began,
            is_wanted=lambda: bool(self._marks) and wanted == self._marked(),
            typed=self.strip.expect(jobs_bulk.COUNTING),
        )
        _ = self.run_worker(asking, group="dry run", exclusive=True)

    def _act_on_one(self, verb: JobsVerb) -> None:
        row = self._window.current
        if verb is JobsVerb.CANCEL:
            job_actions.cancel(self.desk, self.strip, row)
        elif (asking := job_actions.retry(self.desk, self.strip, row)) is not None:
            _ = self.run_worker(asking, group="dry run", exclusive=True)

    def _marked(self) -> Wanted:
        which = self._which if self._listed is None else self._listed
        return Wanted(job_ids=tuple(self._marks), which=which, text=self._listed_text)

    @property
    def _listed(self) -> JobFilter | None:
        """The filter within this order; None if nothing can match."""
        return job_orders.listed(self._order, self._which)

    @property
    def _listed_text(self) -> str:
        """The text of that filter."""
        text = self._filter.text
        if self._order is not Order.DUE:
            return text
        return with_only(text, "status", STATE_WORDS[JobStatus.RETRY])

    def _began(self, run: BulkRun) -> None:
        self._run = run
        self._marks.clear()
        self.repaint()

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        self._side.tell()
        self._steps.moved()
        self._short_pages = 0
        if self._window.wants_below or self._window.wants_above:
            self.desk.wake()

    @on(FilterLine.Wanted)
    def _filtered(self, event: FilterLine.Wanted) -> None:
        try:
            self._which = parse_filter(event.text)
        except UsageError as error:
            self.strip.tell(f"✗ {failed(error, with_hint=True)}", "fail")
            return
        self.strip.tell("")
        self._filter.close(event.text)
        self.set_focus(self._table)
        self._marks.clear()  # operations apply only to listed jobs
        self._read_anew()

    def _read_anew(self) -> None:
        """Load a new list from its beginning."""
        self._is_read = False
        self._window.replace((), above=None, below=None)
        self._new_count = 0
        self._read("first")
        self.repaint()

    def _read(self, what: str) -> None:
        self._generation += 1
        self._wanted = what
        self._short_pages = 0
        self.desk.wake()

    # --- words

    def _counted(self) -> str:
        if not self._is_read:
            return "reading …"
        told = f"{self._count_words()} · {self._order.value}"
        left_out = self._table.left_out
        if left_out and self.has_class("-aside"):
            pane = shown(self.desk.keys.named("side").keys[0])
            return f"{pane} shows {', '.join(left_out)}   {told}"
        return told

    def _count_words(self) -> str:
        window = self._window
        if window.above is None and window.below is None:
            return "1 job" if len(window.rows) == 1 else f"{len(window.rows)} jobs"
        head = self.desk.head
        known = about(max(head.jobs_about, len(window.rows))) if head else ""
        if self._listed == JobFilter():
            return f"{known} jobs"
        return f"{len(window.rows)}+ of {known} jobs"

    def _about(self, width: int) -> About | None:
        """Return what polls of the list have read about the job under the cursor."""
        row, now = self._window.current, self.desk.session.now
        if row is None:
            return None
        lines = tuple(side_lines(row, now, width))
        return About(key=row.id, title=side_head(row), lines=lines)

    def _steps_of(self) -> StepsOf | None:
        row = self._window.current
        return None if row is None else (row.id, (standing(row), row.checkpoint.get("seq")))

    def _nothing(self) -> str:
        if not self._is_read:
            return "reading …"
        if self._which != JobFilter():
            return "no job matches"
        if self._order is Order.DUE:
            return "no job waits to be tried again"
        return "no jobs yet; submit one: cortex jobs submit TYPE"


def _id_of(row: ListedJob) -> UUID:
    return row.id
