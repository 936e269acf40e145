"""What the keys of the list of jobs do: other jobs or another order, marks, and actions."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from cortex.domain.bulk import BulkVerb
from cortex.domain.errors import UsageError
from cortex.domain.job_filter import parse_filter, term
from cortex.domain.safe import safe
from cortex_tui.app_context import AppContext
from cortex_tui.model import job_order
from cortex_tui.model.job_list import JobList
from cortex_tui.model.marks import MARKS_MAX
from cortex_tui.render.job_list_words import empty_words
from cortex_tui.render.job_rows import is_problem
from cortex_tui.render.words import failed
from cortex_tui.screens import job_actions
from cortex_tui.screens.jobs_bulk import JobsBulk
from cortex_tui.screens.jobs_loader import JobsLoader, Query
from cortex_tui.widgets.strip_line import StripLine

MARKED: Final = "rows are marked: the list stands still until they are clear"
NO_JOB: Final = "no job under the cursor"


class JobsController:
    """Changes the list and acts on its jobs; says in the strip what it did or why it did not."""

    def __init__(
        self,
        context: AppContext,
        strip: StripLine,
        jobs: JobList,
        loader: JobsLoader,
        *,
        prepare: Callable[[Coroutine[Any, Any, None]], object],
        repaint: Callable[[], None],
    ) -> None:
        """`prepare` runs what reads first and asks then; the next one cancels it.

        `repaint` is called when something changes later than its key.
        """
        self._context, self._strip, self._jobs, self._loader = context, strip, jobs, loader
        self._prepare, self._repaint = prepare, repaint
        self._bulk = JobsBulk(context, strip, began=self._bulk_began)

    # --- which jobs

    def fresh(self) -> None:
        """Show the jobs that are newer than the list."""
        if self._jobs.marks:
            self._strip.show(MARKED, "warn")
        else:
            self._loader.read(Query.FIRST)

    def sort(self) -> None:
        """Change to the next order, from its beginning."""
        jobs = self._jobs
        if jobs.marks:
            self._strip.show(MARKED, "warn")
            return
        jobs.order = job_order.after(jobs.order)
        self._strip.show(f"the {jobs.order.value}", "dim")
        self._loader.read_anew()

    def filter_by(self, text: str) -> bool:
        """List the jobs that match; return whether the filter is valid."""
        try:
            self._jobs.filter_by(text)
        except UsageError as error:
            self._strip.show(f"✗ {failed(error, with_hint=True)}", "fail")
            return False
        self._strip.show("")
        self._loader.read_anew()
        return True

    def reads_end(self, how: str) -> bool:
        """Read the end of the list to which the cursor moves, if it is outside the window."""
        window = self._jobs.window
        is_far = {"end": window.below, "top": window.above}.get(how) is not None
        if not is_far and (how != "end" or self._jobs.is_read):
            return False
        self._loader.read(Query.END if how == "end" else Query.TOP)
        return True

    def problem(self, way: str) -> int | None:
        """Return the index of the next loaded job with a problem."""
        now = self._context.session.now
        step = 1 if way == "next" else -1
        place = self._jobs.find(step, lambda row: is_problem(row, now))
        if place is None:
            self._strip.show("nothing is wrong with the jobs that were read", "dim")
        return place

    def open(self, name: str = "job") -> None:
        """Open the job under the cursor, or another screen about it."""
        window = self._jobs.window
        if (row := window.current) is None:
            self._strip.show(window.why_none(empty_words(self._jobs)), "dim")
        else:
            self._context.open(name, row.id)

    def open_owner(self) -> None:
        """Open the jobs of the job's agent."""
        row = self._jobs.window.current
        if row is None or not row.agent:
            self._strip.show("no agent's job under the cursor", "dim")
        elif self._jobs.which == parse_filter(wanted := term("agent", row.agent)):
            self._strip.show(f"the jobs of {safe(row.agent)} are shown already", "dim")
        else:
            self._context.open("jobs", wanted)

    # --- marks

    def mark(self, *, is_range: bool) -> bool:
        """Mark the row of the cursor, or all from the last mark; False: no row can be."""
        marks, window = self._jobs.marks, self._jobs.window
        at = window.cursor
        if at is None:
            self._strip.show(NO_JOB, "dim")
            return False
        if marks.is_all:
            self._strip.show("all that fit are marked already", "dim")
            return False
        keys = [row.id for row in window.rows]
        has_room = marks.extend(keys, at) if is_range else marks.toggle(keys[at])
        if not has_room:
            self._strip.show(f"{MARKS_MAX:,} marks at most; all that fit can be marked", "warn")
        return True

    def mark_all(self) -> None:
        """Mark all jobs that match the filter, including those not loaded."""
        if self._jobs.listed is None:
            self._strip.show(NO_JOB, "dim")
            return
        self._jobs.marks.take_all()
        text = self._jobs.listed_text
        what = f"that fit {safe(text)}" if text else "there are"
        self._strip.show(f"marked: all jobs {what}, counted before anything is done", "warn")

    def unmark(self) -> None:
        self._jobs.marks.clear()
        self._strip.show("")

    # --- actions

    def change(self, verb: BulkVerb) -> None:
        """Ask to confirm an operation on the marked jobs, or else on the job of the cursor."""
        jobs, strip = self._jobs, self._strip
        if not jobs.marks:
            self._change_one(verb)
            return
        if (refusal := self._context.actions.why_not()) is not None:
            strip.show(refusal, "warn")
            return
        selection = jobs.selection
        self._prepare(
            self._bulk.ask(
                verb,
                selection,
                is_wanted=lambda: bool(jobs.marks) and selection == jobs.selection,
            )
        )

    def _change_one(self, verb: BulkVerb) -> None:
        row = self._jobs.window.current
        if verb is BulkVerb.CANCEL:
            job_actions.cancel(self._context, self._strip, row)
        elif (asking := job_actions.retry(self._context, self._strip, row)) is not None:
            self._prepare(asking)

    def pause_queue(self) -> None:
        """Ask whether to pause the queue of the job under the cursor, or to resume it."""
        row = self._jobs.window.current
        if row is None:
            self._strip.show(NO_JOB, "dim")
        elif (refusal := self._context.actions.why_not()) is not None:
            self._strip.show(refusal, "warn")
        else:
            typed = self._strip.expect(job_actions.READING)
            self._prepare(job_actions.pause_queue(self._context, self._strip, row, typed=typed))

    def _bulk_began(self) -> None:
        self._jobs.marks.clear()
        self._repaint()
