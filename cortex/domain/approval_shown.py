"""Requests for approval in words and columns."""

from typing import Final

from cortex.domain.approval import ApprovalStatus, Risk
from cortex.domain.approval_words import call_of
from cortex.domain.cells import Cell, Row
from cortex.domain.phrases import NOTHING, age, since_s, span
from cortex.domain.safe import safe

SOON_SHARE: Final = 0.25
"""From here on people should hurry."""

RISKS: Final = {
    Risk.LOW: Cell("low"),
    Risk.MED: Cell("med", "warn"),
    Risk.HIGH: Cell("! HIGH", "fail"),
    Risk.CRITICAL: Cell("!! CRITICAL", "fail"),
}
STATES: Final = {
    ApprovalStatus.PENDING: Cell("◆ waits", "appr"),
    ApprovalStatus.APPROVED: Cell("✓ approved", "done"),
    ApprovalStatus.DENIED: Cell("✗ denied", "fail"),
    ApprovalStatus.EXPIRED: Cell("⊘ expired", "warn"),
    ApprovalStatus.CANCELLED: Cell("⊘ void", "canc"),
}


def risk_cell(row: Row) -> Cell:
    """Return how dangerous it is."""
    return RISKS[Risk(row["risk"])]


def state_cell(row: Row) -> Cell:
    """Return where it stands; one that nobody can decide any more is expired."""
    status = ApprovalStatus(row["status"])
    return STATES[ApprovalStatus.EXPIRED if is_over(row) else status]


def is_over(row: Row) -> bool:
    """Whether its time has passed, by the database's clock, and nobody decided."""
    return row["status"] == ApprovalStatus.PENDING and left_s(row) <= 0


def left_s(row: Row) -> float:
    """Return the seconds until it expires, by the database's clock."""
    return -since_s(row, row["expires_at"])


def expires_cell(row: Row) -> Cell:
    """Return how much time is left."""
    if row["status"] != ApprovalStatus.PENDING:
        return Cell(NOTHING, "dim")
    left = left_s(row)
    if left <= 0:
        return Cell("over", "fail")
    allowed_s = (row["expires_at"] - row["created_at"]).total_seconds()
    return Cell(span(left), "warn" if left < SOON_SHARE * allowed_s else "")


def brief(row: Row) -> str:
    """Return what is asked for, with its arguments, on one line."""
    return call_of(row, row["arguments"])


def brief_cell(row: Row) -> Cell:
    """Return what is asked for, as a list shows it."""
    return Cell(brief(row), shrink=lambda cells: call_of(row, row["arguments"], cells=cells))


def agreed(row: Row) -> str:
    """Return how many people agreed, of how many."""
    return f"{row['agreed']}/{row['people']}"


def decided(row: Row) -> str:
    """Return by whom and how long ago it was decided, for a list; empty while it waits."""
    if row["decided_at"] is None:
        return ""
    passed = age(since_s(row, row["decided_at"]))
    by = f" by {row['decided_by']}" if row["decided_by"] else ""
    return safe(f"{passed if passed == 'now' else f'{passed} ago'}{by}")
