"""External effects, approvals and signals of a job, as its page shows them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from cortex.cli.screen.terminal import Terminal
from cortex.domain.approvals.approval import ApprovalRow, ApprovalStatus
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.effects import EffectRow
from cortex.store.signals import SignalRow
from cortex.view.cells import pad
from cortex.view.effects import remark, state_cell
from cortex.view.resources.approvals import APPROVALS
from cortex.view.resources.effects import EFFECTS
from cortex.view.resources.signals import SIGNAL
from cortex.view.signals import signal_text

EFFECT_CELLS: Final = len("✗ not applied") + 2


def documents_of(
    effects: Sequence[EffectRow], approvals: Sequence[ApprovalRow], signals: Sequence[SignalRow]
) -> dict[str, Any]:
    """Return them as JSON."""
    return {
        "signals": [SIGNAL.document(row) for row in signals],
        "effects": [EFFECTS.document(row) for row in effects],
        "approvals": [APPROVALS.document(row) for row in approvals],
    }


def approval_line(approval: ApprovalRow, terminal: Terminal) -> str:
    """Describe the request, and the decision or the time left for it."""
    text = f"{short_id(approval.id)} {approval.tool or approval.key} {approval.risk}"
    if approval.status == ApprovalStatus.PENDING:
        agreed = f"{approval.agreed} of {approval.people} agreed"
        text += f" · waits, {agreed}, expires {terminal.date(approval.expires_at)}"
    else:
        by = f" by {approval.decided_by}" if approval.decided_by else ""
        text += f" · {approval.status.lower()}{by}"
    text += f": {approval.reason}" if approval.reason else ""
    return f"  {moment(approval.created_at, terminal)}  {safe(text)}"


def effect_line(effect: EffectRow, terminal: Terminal) -> str:
    """Describe the call and its state."""
    cell, why = state_cell(effect), remark(effect)
    text = f"{short_id(effect.id)} {effect.tool}" + (f" · {why}" if why else "")
    state = terminal.paint(pad(cell.text, EFFECT_CELLS), cell.style)
    return f"  {moment(effect.created_at, terminal)}  {state}{safe(text)}"


def signal_line(signal: SignalRow, terminal: Terminal) -> str:
    """Describe the signal, and whether the job has received it."""
    style = "" if signal.taken_step is None else "dim"
    text = terminal.paint(safe(signal_text(signal)), style)
    return f"  {moment(signal.sent_at, terminal)}  {text}"


def moment(instant: datetime, terminal: Terminal) -> str:
    """Return an instant for the start of a line."""
    return terminal.paint(terminal.clock(instant), "dim")
