"""`cortex approvals ls`: waiting requests and decisions."""

from collections.abc import Sequence
from typing import Final

import attrs
import click

from cortex.cli.listing import named_states
from cortex.cli.options import Command, Options, completions, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.approvals.approval import ApprovalRow, ApprovalStatus
from cortex.domain.errors import UsageError
from cortex.domain.phrases import short_id
from cortex.postgres.session import Session
from cortex.store import approvals as store
from cortex.view.resource import Field
from cortex.view.resources.approvals import APPROVALS

WHAT_LEAST: Final = 16
"""Minimum cells for the request where the decider stands beside it."""
WAITING: Final = (ApprovalStatus.PENDING,)
WORDS: Final = {status.value.lower(): status for status in ApprovalStatus}


@click.command(cls=Command, columns=APPROVALS.fields)
@click.option("--all", "with_decided", is_flag=True, help="Include decided requests, newest first.")
@click.option(
    "--status",
    multiple=True,
    metavar="STATE",
    shell_complete=lambda *given: completions(WORDS, given[-1]),
    help="pending, approved, denied, expired, cancelled [pending].",
)
@limit_option(50)
@click.option("--after", metavar="ID", help="Show the requests after this one: the next page.")
@click.pass_obj
def ls(
    options: Options, *, with_decided: bool, status: tuple[str, ...], limit: int, after: str | None
) -> None:
    """List waiting requests: the most dangerous first, then the first to expire."""
    if with_decided and status:
        raise UsageError("--all and --status exclude each other")
    output = Output(options)
    statuses = tuple(ApprovalStatus) if with_decided else named_states(status, WORDS) or WAITING
    fields = APPROVALS.fields if statuses == WAITING else _DECIDED
    with session(options) as call:
        rows = _page(call, statuses, after=after, limit=limit)
    if after:
        empty = "no more requests"
    else:
        empty = "nothing waits for a person" if statuses == WAITING else "no request matches"
    output.resource(attrs.evolve(APPROVALS, fields=fields), rows[:limit], empty=empty)
    if len(rows) > limit and output.terminal.is_tty:
        output.say(f"more: --after {short_id(rows[limit - 1].id)}", "dim")


def _page(
    call: Session, statuses: Sequence[ApprovalStatus], *, after: str | None, limit: int
) -> list[ApprovalRow]:
    """Return one page, plus one row if there are more."""
    found = call(store.find, after) if after else None
    if found is not None:
        call(store.show, found)  # an unknown id is an error, not the first page
    if tuple(statuses) == WAITING:
        return call(store.pending, after=found, limit=limit + 1)
    return call(store.page, statuses=statuses, before=found, limit=limit + 1)


def _with_decision(field: Field[ApprovalRow]) -> Field[ApprovalRow]:
    changed = {"status": True, "decided_at": True, "expires_in_s": False}
    is_default = changed.get(field.name, field.is_default)
    least = WHAT_LEAST if field.name == "what" else field.least
    return attrs.evolve(field, is_default=is_default, least=least)


_DECIDED: Final[Sequence[Field[ApprovalRow]]] = tuple(map(_with_decision, APPROVALS.fields))
