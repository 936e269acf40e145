"""Approvals of a job that runs in this terminal: asked for here, or where to decide them."""

import sys
from typing import Final
from uuid import UUID

import click

from cortex.cli.approvals.choice import choose, decide, present, votes_on
from cortex.cli.asking import acting_in
from cortex.cli.jobs.facts import Snapshot
from cortex.cli.run.demo_approval import open_request
from cortex.cli.screen.live_line import LiveLine
from cortex.cli.screen.output import Output
from cortex.cli.screen.typed import typed
from cortex.config import Settings
from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import is_end_of_id, last_digits, needs_last_digits
from cortex.domain.errors import CortexError
from cortex.domain.waiting import ID_DIGITS
from cortex.postgres.session import Session

DENIED: Final = "denied where the job runs"


def ask_for(
    call: Session,
    observed: Snapshot,
    asked: set[UUID],
    *,
    output: Output,
    settings: Settings,
    live: LiveLine,
) -> None:
    """Ask once for the decision that the job waits for; without a terminal, say how to decide."""
    request = open_request(observed)
    if request is None or request.id in asked:
        return
    asked.add(request.id)
    live.clear()
    name = request.id.hex[-ID_DIGITS:]
    approve = typed("approvals", "approve", name, settings=settings)
    elsewhere = f"{request.what} waits for approval …{name}: {approve}"
    can_ask = output.is_for_people and sys.stdin.isatty() and sys.stderr.isatty()
    if output.options.no_input or not can_ask:
        output.say(elsewhere, "warn")
        return
    (approval,) = choose(call, [str(request.id)])
    present([approval], None, output)
    try:
        if not _decided(call, approval, output):
            output.say(elsewhere, "warn")
    except CortexError as error:  # such as a decision elsewhere, or one that needs another person
        output.say(f"{error.message}; {elsewhere}", "warn")


def _decided(call: Session, approval: Approval, output: Output) -> bool:
    """Ask, and decide; return whether this person decided."""
    yes = last_digits(approval.id) if needs_last_digits(approval) else "y"
    question = f"approve? {yes}: yes, n: no, enter: later"
    given: str = click.prompt(question, default="", show_default=False, err=True)
    word = given.strip()
    is_approved = is_end_of_id(approval, word) if yes != "y" else word.lower() in {"y", "yes"}
    if not is_approved and word.lower() not in {"n", "no"}:
        return False
    (vote,) = votes_on(
        [approval],
        is_approved=is_approved,
        by=acting_in(call, None),
        reason=None if is_approved else DENIED,
        confirm=word if is_approved and yes != "y" else None,
    )
    decide(call, [approval], [vote], output=output, key=None)
    return True
