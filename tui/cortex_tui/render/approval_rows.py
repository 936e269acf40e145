"""A request on one line of the inbox."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from cortex.domain.approvals.approval import ApprovalStatus, Risk
from cortex.domain.argument_brief import BRIEF_CELLS, argument_brief
from cortex.domain.canonical import parse
from cortex.domain.safe import safe
from cortex.store.approvals import InboxRow
from cortex.view.approvals import SOON_SHARE, STATES, what
from cortex.view.cells import Cell, width_of
from cortex.view.phrases import age
from cortex_tui.render.table import Column
from cortex_tui.render.words import countdown

RISKS: Final = {
    Risk.LOW: Cell("  low", "dim"),
    Risk.MED: Cell("  med"),
    Risk.HIGH: Cell("! HIGH", "warn"),
    Risk.CRITICAL: Cell("!! CRIT", "alarm"),
}

_UNREAD: Final = Cell("")

Briefs = Mapping[Any, Cell]
"""The results of `brief` by the digest of the arguments."""


def expires(row: InboxRow, now: datetime) -> Cell:
    """Return the time left, or how it ended."""
    status = row.status_at(now)
    if status is not ApprovalStatus.PENDING:
        return STATES[status]
    left = (row.expires_at - now).total_seconds()
    allowed = (row.expires_at - row.created_at).total_seconds()
    return Cell(countdown(left), "alarm" if left < SOON_SHARE * allowed else "")


def who_may(row: InboxRow) -> Cell:
    """Return the people who may still decide."""
    if row.is_own:
        return Cell("not you", "dim")
    if row.people == 1:
        return Cell("any", "dim")
    votes = f"{row.agreed}/{row.people}"
    return Cell(f"{votes} you" if row.has_agreed else votes, "warn")


def brief(arguments: str) -> Cell:
    """Return arguments, given as canonical JSON, in one short line."""
    found = argument_brief(parse(arguments))
    return Cell(found.fitted(BRIEF_CELLS) if found.count else "", shrink=found.fitted)


def one_line(row: InboxRow, briefs: Briefs, now: datetime) -> list[Cell]:
    """Return a request on a single line; the expiry comes last."""
    given = briefs.get(row.digest, _UNREAD)
    text = f"{what(row)}  {given.text}".rstrip()

    def shrink(cells: int) -> str:
        return f"{what(row)}  {given.fitted(cells - width_of(what(row)) - 2)}"

    return [RISKS[row.risk], Cell(text, shrink=shrink), expires(row, now)]


def columns(briefs: Briefs) -> Sequence[Column[InboxRow]]:
    """Return the columns for waiting requests."""
    return (
        _risk(),
        _tool(),
        Column(title="what", width=8, cell=_arguments(briefs), grows=True),
        Column(title="expires", width=10, cell=expires, is_right=True),
        Column(title="who may", width=7, cell=lambda row, _: who_may(row), spare=1),
    )


def decided_columns(briefs: Briefs) -> Sequence[Column[InboxRow]]:
    return (
        Column(title="state", width=10, cell=lambda row, now: STATES[row.status_at(now)]),
        _tool(),
        Column(title="what", width=8, cell=_arguments(briefs), grows=True),
        Column(title="by", width=10, cell=lambda row, _: Cell(safe(row.decided_by or ""))),
        Column(title="ago", width=4, cell=_ago, is_right=True),
    )


def _risk() -> Column[InboxRow]:
    return Column(title="  risk", width=7, cell=lambda row, _: RISKS[row.risk])


def _tool() -> Column[InboxRow]:
    return Column(
        title="tool", width=13, cell=lambda row, _: Cell(what(row), "bold"), is_fixed=True
    )


def _arguments(briefs: Briefs) -> Callable[[InboxRow, datetime], Cell]:
    return lambda row, _: briefs.get(row.digest, _UNREAD)


def _ago(row: InboxRow, now: datetime) -> Cell:
    if row.decided_at is None:
        return Cell("")
    return Cell(age((now - row.decided_at).total_seconds()), "dim")
