"""What a request for approval means, in words: the same for every surface that shows one.

All take a request as `store.approvals.show` gives it. What they return may hold text of jobs and
people: it goes through `safe` before it is shown.
"""

from collections.abc import Mapping
from typing import Any, Final

from cortex.domain.approval import ApprovalStatus
from cortex.domain.argument_brief import BRIEF_CELLS, call_brief, call_name

REVERSIBLE: Final = {
    True: "can be undone",
    False: "cannot be undone",
    None: "nobody said whether it can be undone",
}


def what(approval: Mapping[str, Any]) -> str:
    """Return what is asked for: the tool, or the gate in the job's own code; harmless to show."""
    return call_name(str(approval["tool"] or approval["key"]))


def call_of(approval: Mapping[str, Any], arguments: Any, *, cells: int = BRIEF_CELLS) -> str:
    """Return what is asked for with these arguments, on one line: see `call_brief`."""
    return call_brief(str(approval["tool"] or approval["key"]), arguments, cells=cells)


def if_approved(approval: Mapping[str, Any]) -> str:
    """Return what happens when a person agrees now."""
    missing = approval["people"] - approval["agreed"] - 1
    if missing > 0:
        others = "one other person" if missing == 1 else f"{missing} other people"
        return f"it waits for {others} to agree to the same arguments, too"
    return _goes_on(approval)


def if_denied(approval: Mapping[str, Any]) -> str:
    """Return what happens when a person says no."""
    return f"{what(approval)} is not executed; {_follows(approval, approval['on_deny'])}"


def if_expired(approval: Mapping[str, Any]) -> str:
    """Return what happens when nobody decides."""
    told = f"{what(approval)} is not executed, and nobody is taken to have said no"
    return f"{told}; {_follows(approval, approval['on_expiry'])}"


def ended(approval: Mapping[str, Any]) -> str:
    """Return how it was decided, by whom, how and why; empty while it waits."""
    status = ApprovalStatus(approval["status"])
    if status is ApprovalStatus.PENDING:
        return ""
    at = f"{approval['decided_at']:%Y-%m-%dT%H:%M:%SZ}"
    why = f": {approval['reason']}" if approval["reason"] else ""
    match status:
        case ApprovalStatus.EXPIRED:
            return f"expired at {at}: nobody decided, nothing was executed"
        case ApprovalStatus.CANCELLED:
            return f"void since {at}{why}"
        case _:
            how = f" on {approval['channel']}" if approval["channel"] else ""
            where = f" from {approval['address']}" if approval["address"] else ""
            return f"{status.lower()} by {approval['decided_by']} at {at}{how}{where}{why}"


def _goes_on(approval: Mapping[str, Any]) -> str:
    if approval["tool"] is None:
        return "the job goes on"
    return f"{what(approval)} runs with exactly these arguments, once"


def _follows(approval: Mapping[str, Any], follow: str) -> str:
    if follow == "fail":
        return "the job fails"
    told = "the job's code" if approval["agent_id"] is None else "the agent"
    return f"{told} is told and goes on"
