"""What a request for approval means, in words: the same for every surface that shows one.

All take a request as `store.approvals.show` gives it. What they return may hold text of jobs and
people: it goes through `safe` before it is shown.
"""

from typing import Any, Final, Protocol

from cortex.domain.approval import Approval, ApprovalRow, ApprovalStatus, Risk
from cortex.domain.argument_brief import BRIEF_CELLS, call_brief, call_name
from cortex.domain.phrases import NOTHING, age, since_s, span
from cortex.domain.safe import safe
from cortex.view.cells import Cell

REVERSIBLE: Final = {
    True: "can be undone",
    False: "cannot be undone",
    None: "nobody said whether it can be undone",
}


class Asking(Protocol):
    """What asks: a tool, or a gate in the job's own code."""

    @property
    def tool(self) -> str | None: ...

    @property
    def key(self) -> str: ...


class AskingWith(Asking, Protocol):
    """The same with its arguments."""

    @property
    def arguments(self) -> dict[str, Any]: ...


def what(approval: Asking) -> str:
    """Return what is asked for: the tool, or the gate in the job's own code; harmless to show."""
    return call_name(str(approval.tool or approval.key))


def call_of(approval: Asking, arguments: Any, *, cells: int = BRIEF_CELLS) -> str:
    """Return what is asked for with these arguments, on one line: see `call_brief`."""
    return call_brief(str(approval.tool or approval.key), arguments, cells=cells)


def if_approved(approval: Approval) -> str:
    """Return what happens when a person agrees now."""
    missing = approval.people - approval.agreed - 1
    if missing > 0:
        others = "one other person" if missing == 1 else f"{missing} other people"
        return f"it waits for {others} to agree to the same arguments, too"
    return _goes_on(approval)


def if_denied(approval: Approval) -> str:
    """Return what happens when a person says no."""
    return f"{what(approval)} is not executed; {_follows(approval, approval.on_deny)}"


def if_expired(approval: Approval) -> str:
    """Return what happens when nobody decides."""
    told = f"{what(approval)} is not executed, and nobody is taken to have said no"
    return f"{told}; {_follows(approval, approval.on_expiry)}"


def _goes_on(approval: Approval) -> str:
    if approval.tool is None:
        return "the job goes on"
    return f"{what(approval)} runs with exactly these arguments, once"


def _follows(approval: Approval, follow: str) -> str:
    if follow == "fail":
        return "the job fails"
    told = "the job's code" if approval.agent_id is None else "the agent"
    return f"{told} is told and goes on"


# --- Requests for approval in words and columns.


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


def risk_cell(row: ApprovalRow) -> Cell:
    """Return how dangerous it is."""
    return RISKS[Risk(row.risk)]


def state_cell(row: ApprovalRow) -> Cell:
    """Return where it stands; one that nobody can decide any more is expired."""
    status = ApprovalStatus(row.status)
    return STATES[ApprovalStatus.EXPIRED if is_over(row) else status]


def is_over(row: ApprovalRow) -> bool:
    """Whether its time has passed, by the database's clock, and nobody decided."""
    return row.status == ApprovalStatus.PENDING and left_s(row) <= 0


def left_s(row: ApprovalRow) -> float:
    """Return the seconds until it expires, by the database's clock."""
    return -since_s(row, row.expires_at)


def expires_cell(row: ApprovalRow) -> Cell:
    """Return how much time is left."""
    if row.status != ApprovalStatus.PENDING:
        return Cell(NOTHING, "dim")
    left = left_s(row)
    if left <= 0:
        return Cell("over", "fail")
    allowed_s = (row.expires_at - row.created_at).total_seconds()
    return Cell(span(left), "warn" if left < SOON_SHARE * allowed_s else "")


def brief(row: AskingWith) -> str:
    """Return what is asked for, with its arguments, on one line."""
    return call_of(row, row.arguments)


def brief_cell(row: AskingWith) -> Cell:
    """Return what is asked for, as a list shows it."""
    return Cell(brief(row), shrink=lambda cells: call_of(row, row.arguments, cells=cells))


def agreed(row: ApprovalRow) -> str:
    """Return how many people agreed, of how many."""
    return f"{row.agreed}/{row.people}"


def decided(row: ApprovalRow) -> str:
    """Return by whom and how long ago it was decided, for a list; empty while it waits."""
    if row.decided_at is None:
        return ""
    passed = age(since_s(row, row.decided_at))
    by = f" by {row.decided_by}" if row.decided_by else ""
    return safe(f"{passed if passed == 'now' else f'{passed} ago'}{by}")
