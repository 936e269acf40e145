"""One request in full, for a person to decide: the exact arguments and the consequences."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from cortex.cli.screen.terminal import Terminal
from cortex.domain.approvals.approval import Approval, ApprovalStatus, ended
from cortex.domain.argument_check import ArgumentChange
from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.view.approval_facts import Facts, Vote, facts_of
from cortex.view.approvals import risk_cell, state_cell
from cortex.view.arguments import marked_json
from cortex.view.cells import chopped, pad
from cortex.view.phrases import at_instant, localised

LABEL_CELLS: Final = 14
DIGEST_DIGITS: Final = 12
BAR: Final = "    │ "
CONTINUED: Final = "      … "
SAID_LINES_MAX: Final = 40


def page(approval: Approval, terminal: Terminal) -> Iterator[str]:
    """Yield everything a decision is based on; no argument is left out."""
    facts = facts_of(approval)
    state, risk = state_cell(approval), risk_cell(approval)
    head = f"approval {short_id(facts.id)}  {facts.title}"
    painted = (
        terminal.paint(risk.text, risk.style),
        terminal.paint(head, "bold"),
        terminal.paint(state.text, state.style),
    )
    yield "  ".join(painted)
    yield from _labelled(_facts(facts, approval, is_tty=terminal.is_tty), terminal)
    label = "arguments, exactly as they run" if approval.tool else "the question"
    digest = f"sha256 {facts.digest[:DIGEST_DIGITS]}…"
    lines = arguments(approval.arguments, terminal)
    yield from _titled(f"{label}  {digest}", lines, terminal)
    if facts.hidden_count:
        warning = f"  !! {facts.hidden_count} invisible characters are shown as ⟦U+…⟧"
        yield terminal.paint(warning, "warn")
    if facts.changes:
        title = f"edited by {facts.edited_by}: as requested, and as edited"
        yield from _titled(title, diff(facts.changes, terminal), terminal)
    if facts.said:
        title = "what the model said: it may be wrong, do not decide by it"
        yield from _titled(title, _said(facts.said, terminal), terminal)
    if facts.votes:
        yield from _titled("who agreed", _votes(facts.votes, terminal), terminal)
    yield ""
    yield from _labelled(_consequences(facts), terminal)


def arguments(value: dict[str, Any], terminal: Terminal) -> Iterator[str]:
    """Yield every argument as canonical JSON, each at the start of a line."""
    if not value:
        yield "    none"
    for name, item in value.items():
        yield from broken(f"{marked_json(name)}: {marked_json(item)}", terminal, first="    ")


def broken(line: str, terminal: Terminal, *, first: str, other: str = CONTINUED) -> Iterator[str]:
    """Wrap a line as the terminal would, and mark the continuation as such."""
    if not terminal.is_tty:
        yield first + line
        return
    begins = first
    for piece in chopped(line, terminal.width - max(len(first), len(other)) - 1):
        yield begins + piece
        begins = other


def diff(changes: Iterable[ArgumentChange], terminal: Terminal) -> Iterator[str]:
    """Yield both sides of each difference."""
    for change in changes:
        yield from broken(safe(change.field), terminal, first="    ")
        for sign, text, style in (("-", change.old, "fail"), ("+", change.new, "done")):
            if text is not None:
                for line in broken(text, terminal, first=f"      {sign} "):
                    yield terminal.paint(line, style)


def _said(text: str, terminal: Terminal) -> Iterator[str]:
    """Yield untrusted text behind a bar, so that its lines cannot pass for ours."""
    lines = text.split("\n")
    for line in lines[:SAID_LINES_MAX]:
        yield from broken(line, terminal, first=BAR, other=BAR)
    if (more := len(lines) - SAID_LINES_MAX) > 0:
        yield f"{BAR}… {more:,} more lines: --json has them"


def _titled(title: str, lines: Iterable[str], terminal: Terminal) -> Iterator[str]:
    yield from ("", terminal.paint(f"  {title}", "dim"))
    yield from lines


def _labelled(message: dict[str, str], terminal: Terminal) -> Iterator[str]:
    """Yield each text beside its label, wrapped within its column."""
    blank = " " * (2 + LABEL_CELLS)
    for label, text in message.items():
        if text:
            first, *others = broken(text, terminal, first=blank, other=f"{blank}… ")
            painted = terminal.paint(pad(label, LABEL_CELLS), "dim")
            yield f"  {painted}{first.removeprefix(blank)}"
            yield from others


def _facts(facts: Facts, approval: Approval, *, is_tty: bool) -> dict[str, str]:
    effect_id = approval.effect_id
    return {
        "id": str(facts.id),
        "effect": " · ".join(filter(None, (facts.effect, facts.undo))),
        "requested by": _asker(facts),
        "requested at": at_instant(facts.created_at, is_tty=is_tty),
        "policy": facts.policy,
        "so far": facts.so_far,
        "people": facts.votes_words,
        "expires": _expires(facts, is_tty=is_tty),
        "decision": safe(localised(ended(approval)) if is_tty else ended(approval)),
        "ran as": f"effect {effect_id}, {approval.effect_status}" if effect_id else "",
        "link": safe(f"made by {approval.token_by}") if approval.has_link else "",
    }


def _asker(facts: Facts) -> str:
    agent = f"{facts.agent} in " if facts.agent else ""
    by = f", submitted by {facts.submitted_by}" if facts.submitted_by else ""
    return f"{agent}job {facts.job_id} ({facts.job_type}{by}), at {facts.step}"


def _expires(facts: Facts, *, is_tty: bool) -> str:
    at = at_instant(facts.expires_at, is_tty=is_tty)
    if facts.is_open:
        return f"in {span(facts.left_s)}, at {at}"
    is_over = facts.status is ApprovalStatus.EXPIRED
    return f"expired at {at}: can no longer be decided" if is_over else ""


def _votes(votes: Iterable[Vote], terminal: Terminal) -> Iterator[str]:
    for vote in votes:
        yield from broken(_vote(vote, terminal), terminal, first="    ")


def _vote(vote: Vote, terminal: Terminal) -> str:
    edited = " edited the arguments and" if vote.was_edited else ""
    other = f", {vote.why_not}: it does not count" if vote.why_not else ""
    why = f": {vote.reason}" if vote.reason else ""
    at = at_instant(vote.at, is_tty=terminal.is_tty)
    return f"{vote.person}{edited} agreed at {at} on {vote.channel}{other}{why}"


def _consequences(facts: Facts) -> dict[str, str]:
    if not facts.is_open:
        return {}
    return {
        "on approve": facts.if_approved,
        "on deny": facts.if_denied,
        "no answer": facts.if_expired,
    }
