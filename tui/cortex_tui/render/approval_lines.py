"""Single lines of the inbox: its tabs, the one-line list, and why the list is empty."""

from datetime import datetime

from rich.cells import cell_len
from rich.segment import Segment
from textual.strip import Strip

from cortex_tui.model.inbox import ROWS_MAX, Inbox, Tab
from cortex_tui.palette import Palette
from cortex_tui.render import approval_rows
from cortex_tui.render.approval_rows import Briefs
from cortex_tui.render.table import fit


def tabs(inbox: Inbox, palette: Palette, width: int) -> Strip:
    """Draw the tabs with the number of requests in those that were counted.

    The open tab is in brackets because some terminals have no bold letters.
    """
    parts = [Segment(" ")]
    for tab in Tab:
        count = "" if inbox.tab is Tab.DECIDED or tab is Tab.DECIDED else inbox.count(tab)
        is_full = count == ROWS_MAX
        words = f"{tab} {count}{'+' if is_full else ''}".rstrip()
        is_open = tab is inbox.tab
        shown = f"[{words}]" if is_open else f" {words} "
        parts += [Segment(shown, palette["bold" if is_open else "dim"])]
        parts += [Segment(" · ", palette["line"])]
    return Strip(parts[:-1]).adjust_cell_length(width)


def one(inbox: Inbox, briefs: Briefs, now: datetime, palette: Palette, width: int) -> Strip:
    """Draw the list where there is room for one line only."""
    window = inbox.window
    row, at = window.current, window.cursor
    if row is None or at is None:
        return Strip([Segment(f" {nothing(inbox)}", palette["dim"])])
    risk, what, when = approval_rows.one_line(row, briefs, now)
    mark = "*" if row.id in inbox.marked else " "
    place = f"▌{mark}{at + 1}/{len(window.rows)}  "
    room = max(0, width - cell_len(f"{place}{risk.text}{when.text}") - 4)
    parts = [
        Segment(place, palette["accent"]),
        Segment(f"{risk.text}  ", palette[risk.style]),
        Segment(fit(what.fitted(room), room), palette["bold"]),
        Segment(f" {when.text}", palette[when.style]),
    ]
    return Strip(parts).adjust_cell_length(width)


def nothing(inbox: Inbox) -> str:
    """Return why no request is shown."""
    if not inbox.is_read:
        return "reading …"
    if inbox.tab is Tab.DECIDED:
        return "nothing was decided yet"
    if inbox.tab is Tab.MINE and inbox.count(Tab.ALL):
        return "nothing waits for you; tab shows what waits for others"
    return "nothing waits for a person"


def cut(inbox: Inbox) -> str:
    """Return where to find the requests that are not shown; "" if there are none."""
    if not inbox.is_cut:
        return ""
    command = "cortex approvals ls"
    return f"older ones: {command} --all" if inbox.tab is Tab.DECIDED else f"more wait: {command}"
