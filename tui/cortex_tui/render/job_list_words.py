"""The words around the list of jobs: how many there are, why there are none, what is marked."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.job_filter import JobFilter
from cortex.store.screen_head import Head
from cortex.view.cells import Cell
from cortex_tui.model.job_list import JobList
from cortex_tui.model.job_order import Order
from cortex_tui.render.words import about

NEW_MAX: Final = 99
"""More new jobs are "99+"."""


def info(jobs: JobList) -> Cell:
    """Return how many jobs are new and how many are marked, for the right of the strip."""
    new = ""
    if jobs.new_count:
        new = f"▲ {f'{NEW_MAX}+' if jobs.new_count > NEW_MAX else jobs.new_count} new   "
    if not jobs.marks:
        return Cell(f"{new}. shows ", "accent") if new else Cell("")
    marked = "all that fit" if jobs.marks.is_all else f"{len(jobs.marks):,} marked"
    return Cell(f"{new}* {marked} ", "warn")


def count_line(jobs: JobList, head: Head | None, *, hidden: Sequence[str], side_key: str) -> str:
    """Return the text at the right of the filter.

    `hidden`: titles of the columns that the side pane takes the room of; `side_key` hides it.
    """
    if not jobs.is_read:
        return "reading …"
    line = f"{_count(jobs, head)} · {jobs.order.value}"
    return f"{side_key} shows {', '.join(hidden)}   {line}" if hidden else line


def _count(jobs: JobList, head: Head | None) -> str:
    window = jobs.window
    if window.above is None and window.below is None:
        return "1 job" if len(window.rows) == 1 else f"{len(window.rows)} jobs"
    total = about(max(head.jobs_about, len(window.rows))) if head else ""
    if jobs.listed == JobFilter():
        return f"{total} jobs"
    return f"{len(window.rows)}+ of {total} jobs"


def empty_words(jobs: JobList) -> str:
    if not jobs.is_read:
        return "reading …"
    if jobs.which != JobFilter():
        return "no job matches"
    if jobs.order is Order.DUE:
        return "no job waits to be tried again"
    return "no jobs yet; submit one: cortex jobs submit TYPE"
