"""The requests in front of the inbox: the lines of their page, its heading, and the marks."""

from datetime import datetime

from cortex.view.cells import Cell
from cortex.view.spelled import spelled
from cortex_tui.model.approvals_state import ApprovalsState, subject_of
from cortex_tui.render import approval_page


def lines(state: ApprovalsState, width: int, *, is_ascii: bool) -> list[approval_page.Line]:
    """Return the page for a width in cells; nothing before they are read."""
    subject = state.subject
    if subject is None:
        return []
    edit = state.edit.changes if state.edit else ()
    if is_ascii:
        subject, edit = subject_of(spelled(subject.approvals)), spelled(edit)
    if len(subject.approvals) > 1:
        return approval_page.batch_page(subject.approvals, subject.facts, width)
    approval = subject.approvals[0]
    return approval_page.page(subject.facts, approval, width, edit=edit, is_raw=state.is_raw)


def head(state: ApprovalsState, now: datetime) -> tuple[Cell, Cell]:
    """Return the left and right part of the heading."""
    subject = state.subject
    if subject is None:
        return Cell("reading …" if state.in_front else "", "dim"), Cell("")
    if len(subject.approvals) > 1:
        return Cell(subject.name, "bold"), Cell("BATCH", "bold")
    row = state.inbox.row(subject.facts.id)
    is_own = row is not None and row.is_own
    title, when = approval_page.head(subject.facts, now, is_own=is_own)
    return Cell(title, "bold"), when


def marks(state: ApprovalsState) -> Cell:
    """Return how many requests are hidden while the order is frozen, or marked."""
    if count := state.inbox.new_count:
        return Cell(f"▲ {count} new ", "accent")
    if marked := len(state.inbox.marked):
        key = "b leaves the batch" if state.batch else "b takes them together"
        return Cell(f"* {marked} marked   {key} ", "warn")
    return Cell("")


def unread_hint(below: int) -> str:
    """Return what the key to approve did while the request was not seen in full."""
    if not below:
        return "That was everything. Press a again to approve."
    count = "1 more line" if below == 1 else f"{below} more lines"
    return f"Read all of it first: {count}. Press a again to read on."
