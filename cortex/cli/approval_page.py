"""One request as a person must see it before deciding: the exact arguments, and what follows."""

from collections.abc import Iterator
from typing import Any, Final

from cortex.cli.approval_words import is_over, left_s, risk_cell, state_cell
from cortex.cli.cells import pad
from cortex.cli.job_page import block
from cortex.cli.phrases import money, rfc3339, short_id, span
from cortex.cli.terminal import Terminal
from cortex.domain.approval import ApprovalStatus
from cortex.domain.approval_words import (
    REVERSIBLE,
    ended,
    if_approved,
    if_denied,
    if_expired,
    what,
)
from cortex.domain.argument_diff import Change, changes
from cortex.domain.canonical import canonical
from cortex.domain.safe import safe

LABEL_CELLS: Final = 12
DIGEST_DIGITS: Final = 12


def page(approval: dict[str, Any], terminal: Terminal) -> Iterator[str]:
    """Yield all that decides about a request; of its arguments nothing is left out."""
    state, risk = state_cell(approval), risk_cell(approval)
    head = safe(f"approval {short_id(approval['id'])}  {what(approval)}")
    yield "  ".join(
        (
            terminal.paint(risk.text, risk.style),
            terminal.paint(head, "bold"),
            terminal.paint(state.text, state.style),
        )
    )
    yield from _labelled(_facts(approval), terminal)
    yield from ("", terminal.paint(f"  {_arguments_title(approval)}", "dim"))
    yield from arguments(approval["arguments"], terminal)
    if approval["digest"] != approval["asked_digest"]:
        title = f"  edited by {approval['edited_by']}: as asked, and as it stands"
        yield from ("", terminal.paint(safe(title), "dim"))
        yield from diff(changes(approval["asked"], approval["arguments"]), terminal)
    if approval["said"]:
        title = "  what the model said: it may be wrong, do not decide by it"
        yield from ("", terminal.paint(title, "dim"))
        yield from block(approval["said"], indent="    ")
    if approval["votes"]:
        yield from ("", terminal.paint("  who agreed", "dim"))
        yield from (_vote(vote, approval) for vote in approval["votes"])
    yield ""
    yield from _labelled(_consequences(approval), terminal)


def arguments(value: dict[str, Any], terminal: Terminal) -> Iterator[str]:
    """Yield every argument as canonical JSON, a line each; hidden characters become visible."""
    if not value:
        yield "    none"
    for name, item in value.items():
        line = f"{canonical(name)}: {canonical(item)}"
        shown = safe(line)
        mark = "" if shown == line else terminal.paint("  !! holds what nobody sees", "warn")
        yield f"    {shown}{mark}"


def diff(found: list[Change], terminal: Terminal) -> Iterator[str]:
    """Yield both sides of each place that differs."""
    for change in found:
        yield f"    {safe(change.field)}"
        if change.old is not None:
            yield terminal.paint(f"      - {change.old}", "fail")
        if change.new is not None:
            yield terminal.paint(f"      + {change.new}", "done")


def _labelled(facts: dict[str, str], terminal: Terminal) -> Iterator[str]:
    for label, text in facts.items():
        if text:
            yield f"  {terminal.paint(pad(label, LABEL_CELLS), 'dim')}{safe(text)}"


def _facts(approval: dict[str, Any]) -> dict[str, str]:
    return {
        "id": str(approval["id"]),
        "effect": _effect(approval),
        "asked by": _asker(approval),
        "asked at": rfc3339(approval["created_at"]),
        "policy": approval["policy"] or "",
        "so far": _so_far(approval),
        "people": _people(approval),
        "expires": _expires(approval),
        "decision": ended(approval),
        "ran as": _ran(approval),
        "link": f"made by {approval['token_by']}" if approval["has_link"] else "",
    }


def _effect(approval: dict[str, Any]) -> str:
    undo = REVERSIBLE[approval["reversible"]]
    return f"{approval['effect']} · {undo}" if approval["effect"] else undo


def _asker(approval: dict[str, Any]) -> str:
    agent = f"{approval['agent']} v{approval['agent_version']} in " if approval["agent"] else ""
    by = f", submitted by {approval['requested_by']}" if approval["requested_by"] else ""
    return f"{agent}job {approval['job_id']} ({approval['job_type']}{by}), step {approval['key']}"


def _so_far(approval: dict[str, Any]) -> str:
    head = approval["job_head"] or {}
    steps = head.get("seq", 0)
    cost = f" · {money(float(head['cost_usd']))}" if "cost_usd" in head else ""
    return f"{steps} {'step' if steps == 1 else 'steps'}{cost}"


def _people(approval: dict[str, Any]) -> str:
    if approval["people"] == 1:
        return ""
    return f"{approval['agreed']} of {approval['people']} different people agreed"


def _expires(approval: dict[str, Any]) -> str:
    if approval["status"] != ApprovalStatus.PENDING:
        return ""
    at = rfc3339(approval["expires_at"])
    if is_over(approval):
        return f"expired at {at}: nobody can decide any more"
    return f"in {span(left_s(approval))}, at {at}"


def _ran(approval: dict[str, Any]) -> str:
    if approval["effect_id"] is None:
        return ""
    return f"effect {approval['effect_id']}, {approval['effect_status']}"


def _arguments_title(approval: dict[str, Any]) -> str:
    digest = approval["digest"].hex()[:DIGEST_DIGITS]
    label = "what is asked about" if approval["tool"] is None else "arguments, exactly as they run"
    return f"{label}  sha256 {digest}…"


def _vote(vote: dict[str, Any], approval: dict[str, Any]) -> str:
    edited = " edited the arguments and" if vote["edited"] else ""
    stands = vote["digest"] == approval["digest"].hex()
    other = "" if stands else ", to other arguments than these: it does not count"
    why = f": {vote['reason']}" if vote["reason"] else ""
    return safe(
        f"    {vote['person']}{edited} agreed at {vote['at']} on {vote['channel']}{other}{why}"
    )


def _consequences(approval: dict[str, Any]) -> dict[str, str]:
    if approval["status"] != ApprovalStatus.PENDING or is_over(approval):
        return {}
    return {
        "on approve": if_approved(approval),
        "on deny": if_denied(approval),
        "no answer": if_expired(approval),
    }
