"""Describes requests for approval in words, identically on every surface that shows one.

All functions take a request as `store.approvals.show` returns it. The results may contain text of
jobs and people: pass them through `safe` before display.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Protocol

from cortex.domain.approvals.approval import (
    Approval,
    ApprovalHead,
    ApprovalRow,
    ApprovalStatus,
    Risk,
)
from cortex.domain.argument_brief import BRIEF_CELLS, call_brief, call_name
from cortex.domain.job import RUN_FLOW
from cortex.domain.phrases import span
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, age, day_time, since_s

REVERSIBLE: Final = {
    True: "can be undone",
    False: "cannot be undone",
    None: "whether it can be undone is unknown",
}
JOB_FAILS: Final = "the job fails"


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
    """Return the name of the tool, or of the gate in the job's own code; safe to display."""
    return call_name(str(approval.tool or approval.key))


def call_of(approval: Asking, arguments: Any, *, cells: int = BRIEF_CELLS) -> str:
    """Return the requested call with these arguments on one line: see `call_brief`."""
    return call_brief(str(approval.tool or approval.key), arguments, cells=cells)


def if_approved(approval: Approval) -> str:
    """Describe the effect of approving now."""
    missing = approval.people - approval.agreed - 1
    if missing > 0:
        others = "one other person" if missing == 1 else f"{missing} other people"
        return f"it waits for {others} to approve the same arguments"
    return _goes_on(approval)


def if_denied(approval: Approval) -> str:
    """Describe the effect of denying."""
    follows = _follows(approval, approval.on_deny)
    return follows if _ends(approval, follows) else f"{what(approval)} does not run; {follows}"


def if_expired(approval: Approval) -> str:
    """Describe the effect of letting the request expire."""
    follows = _follows(approval, approval.on_expiry)
    if _ends(approval, follows):
        return f"{follows}; it counts as expired (not as denied)"
    return f"{what(approval)} does not run and counts as expired (not as denied); {follows}"


def _goes_on(approval: Approval) -> str:
    if approval.tool is None:
        return "the job goes on"
    return f"{what(approval)} runs with exactly these arguments, once"


def _ends(approval: Approval, follows: str) -> bool:
    """Return whether nothing but the job itself depends on the answer."""
    return approval.tool is None and follows == JOB_FAILS


def _follows(approval: Approval, follow: str) -> str:
    if follow == "fail":
        return JOB_FAILS
    if approval.agent_id is not None:
        return "the agent is informed and goes on"
    if approval.job_type == RUN_FLOW:
        return "the flow fails, unless the step has on_error: continue"
    return "the job's code is informed and goes on"


# --- Requests for approval in words and columns


SOON_SHARE: Final = 0.25
"""Share of the time to expiry below which the remaining time is highlighted."""

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
    return RISKS[Risk(row.risk)]


def state_cell(row: ApprovalRow) -> Cell:
    """Return the state; a request that can no longer be decided shows as expired."""
    return STATES[row.status_at(row.now)]


def left_s(row: ApprovalRow) -> float:
    """Return the seconds until the request expires, by the database's clock."""
    return -since_s(row, row.expires_at)


def expires_cell(row: ApprovalRow) -> Cell:
    if row.status != ApprovalStatus.PENDING:
        return Cell(NOTHING, "dim")
    left = left_s(row)
    if left <= 0:
        return Cell("over", "fail")
    allowed_s = (row.expires_at - row.created_at).total_seconds()
    return Cell(span(left), "warn" if left < SOON_SHARE * allowed_s else "")


def brief(row: AskingWith) -> str:
    """Return the request and its arguments on one line."""
    return call_of(row, row.arguments)


def brief_cell(row: AskingWith) -> Cell:
    return Cell(brief(row), shrink=lambda cells: call_of(row, row.arguments, cells=cells))


def agreed(row: ApprovalRow) -> str:
    """Return the number of approvals so far and the number needed."""
    return f"{row.agreed}/{row.people}"


def decided(row: ApprovalRow) -> str:
    """Return who decided the request and how long ago, for a list; empty while it waits."""
    if row.decided_at is None:
        return ""
    passed = age(since_s(row, row.decided_at))
    by = f" by {row.decided_by}" if row.decided_by else ""
    return safe(f"{passed if passed == 'now' else f'{passed} ago'}{by}")


def over_briefly(requests: Iterable[ApprovalRow], now: datetime | None = None) -> str | None:
    """Return how the first of them ended that did, in one short line; None: all are open.

    `now`: the instant to judge by; None: when each was read.
    """
    briefs = (_over_briefly(each, now or each.now) for each in requests)
    return next(filter(None, briefs), None)


def _over_briefly(row: ApprovalHead, now: datetime) -> str | None:
    match row.status_at(now):
        case ApprovalStatus.PENDING:
            return None
        case ApprovalStatus.EXPIRED:
            return f"expired {day_time(row.expires_at)}: nothing was executed"
        case ApprovalStatus.CANCELLED:
            return f"void: {row.reason}"
        case _:
            return f"already {ended_briefly(row)}"


def ended_briefly(row: ApprovalHead) -> str:
    """Return how, by whom, when and where it was decided: `denied by li, 12:29:51Z, page`."""
    parts = [
        f"{row.status.lower()} by {row.decided_by}",
        "" if row.decided_at is None else day_time(row.decided_at),
        row.channel or "",
    ]
    return ", ".join(filter(None, parts))
