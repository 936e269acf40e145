"""`cortex effects show`: everything recorded about one effect, and what a person can do."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import click

from cortex.cli.completing import known
from cortex.cli.jobs.job_page import block
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.approvals.approval import Approval
from cortex.domain.effect import EffectStatus
from cortex.domain.phrases import rfc3339, short_id
from cortex.domain.safe import safe
from cortex.store import approvals, effects
from cortex.store.effects import EffectDetail
from cortex.view.cells import pad
from cortex.view.effects import agreed_text, prospects, state_cell
from cortex.view.phrases import age, since_s
from cortex.view.resources.effects import EFFECT
from cortex.view.steps import numbered_step, step_label

LABEL_CELLS: Final = 12


@click.command(cls=Command)
@click.argument("name", metavar="ID", shell_complete=known("effect"))
@click.pass_obj
def show(options: Options, *, name: str) -> None:
    """Show an effect: its call, its outcome, and the consequence of each resolution."""
    options.refuse_columns("one effect has no columns")
    output = Output(options)
    with session(options) as call:
        effect = call(effects.show, call(effects.find, name))
        approval = None
        if effect.approval_id is not None:
            approval = call(approvals.show, effect.approval_id)
    output.record(
        {"effect": EFFECT.document(effect)},
        name=str(effect.id),
        page=lambda: _page(effect, approval, output.terminal),
        is_whole=True,
    )


def _page(effect: EffectDetail, approval: Approval | None, terminal: Terminal) -> Iterator[str]:
    state = state_cell(effect)
    head = terminal.paint(safe(f"effect {short_id(effect.id)}  {effect.tool}"), "bold")
    yield f"{head}  {terminal.paint(state.text, state.style)}"
    for label, text in _facts(effect, approval, terminal).items():
        if text:
            yield f"  {terminal.paint(pad(label, LABEL_CELLS), 'dim')}{safe(text)}"
    for title, value in (("arguments", effect.arguments), ("result", effect.returned)):
        if value is not None:
            yield from ("", terminal.paint(f"  {title}", "dim"), *block(value, indent="    "))
    if effect.status is EffectStatus.UNKNOWN:
        yield from ("", terminal.paint("  a person must record its outcome", "dim"))
        for resolution, message in prospects(effect).items():
            command = f"cortex effects resolve {short_id(effect.id)} {resolution} --reason TEXT"
            yield f"    {terminal.paint(command, 'bold')}"
            yield f"      {message}"


def _facts(effect: EffectDetail, approval: Approval | None, terminal: Terminal) -> dict[str, str]:
    def at(moment: datetime | None) -> str:
        if moment is None:
            return ""
        if not terminal.is_tty:
            return rfc3339(moment)
        passed = age(since_s(effect, moment))
        return "just now" if passed == "now" else f"{passed} ago"

    agent = f" of {effect.agent} v{effect.agent_version}" if effect.agent else ""
    step = numbered_step(effect.step, effect.key) if effect.step else step_label(effect.key)
    calls = "once," if effect.calls_count == 1 else f"{effect.calls_count} times, last"
    return {
        "id": str(effect.id),
        "job": f"{effect.job_id} ({effect.job_type}{agent}) is {effect.job_status}",
        "step": step,
        "intended": at(effect.created_at),
        "called": f"{calls} {at(effect.called_at)}; attempt {effect.attempt} has it",
        "ended": at(effect.finished_at),
        "why": effect.why or "",
        "other side": "can be asked" if effect.can_reconcile else "cannot be asked",
        "approval": _approval(approval),
        "said": f"{effect.resolution} by {effect.resolved_by} {at(effect.resolved_at)}: "
        f"{effect.resolved_reason}"
        if effect.resolution
        else agreed_text(effect),
        "sha256": effect.digest.hex(),
    }


def _approval(approval: Approval | None) -> str:
    if approval is None:
        return ""
    reason = f": {approval.reason}" if approval.reason else ""
    text = f"{short_id(approval.id)} {approval.status.lower()}"
    return f"{text} by {approval.decided_by}{reason}" if approval.decided_by else text
