"""Deciding from the command line: shows the chosen requests, asks, and decides exactly those.

A decision carries the digest of the displayed arguments; if they changed in between, it is
rejected.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import attrs
import click

from cortex.cli.approvals.page import arguments, broken, diff, page
from cortex.cli.asking import NO_TERMINAL, confirm
from cortex.cli.idempotent import mutate
from cortex.cli.options import Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.table import lines_of
from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import (
    LAST_DIGITS,
    Vote,
    check_batch,
    is_end_of_id,
    last_digits,
    needs_last_digits,
    varying,
)
from cortex.domain.argument_brief import argument_name
from cortex.domain.argument_check import changes
from cortex.domain.canonical import canonical, parse
from cortex.domain.errors import UsageError
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store import approvals as store
from cortex.view.approvals import brief, if_approved, if_denied, what
from cortex.view.arguments import marked_json, with_marked_blanks
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field
from cortex.view.spelled import spelled

CHANNEL: Final = "cli"


def choose(call: Session, names: Sequence[str]) -> list[Approval]:
    """Return the named requests, each once. Raises unless all have the same shape."""
    ids = dict.fromkeys(call(store.find, name) for name in names)
    found = [call(store.show, each) for each in ids]
    check_batch(found)
    return found


def votes_on(approvals: Sequence[Approval], **answer: Any) -> list[Vote]:
    """Return one person's votes on requests as this terminal shows them."""
    return [
        Vote(approval_id=each.id, seen=each.digest, channel=CHANNEL, **answer) for each in approvals
    ]


def present(approvals: Sequence[Approval], edited: str | None, output: Output) -> None:
    """Show the requests to be decided on stderr; `edited`: arguments of a single request."""
    if not output.is_for_people:
        return
    talk = output.talk
    edit = None if edited is None else parse(edited)
    if talk.is_ascii:
        approvals, edit = spelled(approvals), spelled(edit)
    lines = [*page(approvals[0], talk)] if len(approvals) == 1 else _batch(approvals, output)
    if edit is not None:
        found = changes(approvals[0].arguments, edit)
        lines += ["", talk.paint("  your edit: the requested arguments, and yours", "dim")]
        lines += diff(found, talk)
    for line in [*lines, ""]:
        talk.write(line)
    talk.flush()


def agree(
    approvals: Sequence[Approval],
    edited: str | None,
    options: Options,
    *,
    is_agreed: bool,
    confirmed: str | None,
) -> str | None:
    """Ask whether to approve: y/N, or the end of the id if the risk is high; return that.

    Raises `UsageError` if there is no terminal and the answer was not given.
    """
    if confirmed is not None:
        if not confirmed.strip():  # such as an unset variable of a script: it approves nothing
            raise UsageError(
                "--confirm is empty", hint=f"give the last {LAST_DIGITS} characters of the id"
            )
        return confirmed
    first = approvals[0]
    if len(approvals) > 1:
        question = f"approve {len(approvals)} times {what(first)}"
    elif edited is None:
        question = f"approve {brief(first)}"
    else:
        question = f"approve {brief(attrs.evolve(first, arguments=parse(edited)))}, as edited"
    if needs_last_digits(first):
        return _end_of_id(first, f"{question} ({first.risk})", options)
    confirm(question, options, is_agreed=is_agreed)
    return None


def decide(
    call: Session,
    approvals: Sequence[Approval],
    votes: Sequence[Vote],
    *,
    output: Output,
    key: str | None,
) -> None:
    """Decide all or none, and report the result. Raises the errors of `store.approvals.decide`."""
    first = votes[0]

    async def work(db: Database) -> list[dict[str, Any]]:
        results = await store.decide(db, votes)
        return [
            {"id": each.approval_id, "outcome": result.outcome, "agreed": result.agreed_count}
            for each, result in zip(votes, results, strict=True)
        ]

    text = mutate(
        call,
        work,
        output=output,
        key=key,
        operation="approvals.approve" if first.is_approved else "approvals.deny",
        request={
            "approvals": sorted(each.approval_id for each in votes),
            "by": first.by.name,
            "credential": first.by.credential,
            "reason": first.reason,
            "edited": first.edited,
        },
    )
    by_id = {each.id: each for each in approvals}
    rows = [
        _Taken(by_id[UUID(each["id"])], outcome=each["outcome"], agreed=each["agreed"])
        for each in text
    ]
    output.listing("approvals", DECIDED_COLUMNS, rows, empty="")


def _end_of_id(approval: Approval, question: str, options: Options) -> str:
    if options.no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{question}: {NO_TERMINAL}",
            hint=f"add --confirm=ID with the last {LAST_DIGITS} characters of its id",
        )
    prompt = f"{question}: type {last_digits(approval.id)} to approve it"
    given: str = click.prompt(prompt, default="", show_default=False, err=True)
    if not is_end_of_id(approval, given):
        click.echo("nothing was done", err=True)
        raise click.exceptions.Exit(1)
    return given


def _batch(approvals: Sequence[Approval], output: Output) -> list[str]:
    """Return the common properties once, then a table of the differences."""
    names = varying(approvals)
    first, talk = approvals[0], output.talk
    same = {name: value for name, value in first.arguments.items() if name not in names}
    lines = [safe(f"{len(approvals)} times {what(first)}: {if_approved(first)}")]
    for text in (first.effect, first.policy):
        lines += broken(safe(with_marked_blanks(text)), talk, first="  ") if text else []
    lines += arguments(same, talk) if same else []
    columns: Sequence[Field[Approval]] = [
        Field(name="id", shown=lambda r: Cell(short_id(r.id), "bold")),
        Field(name="agent", shown=lambda r: Cell(safe(r.agent or r.job_type or NOTHING))),
        *(_argument_column(name) for name in names),
    ]
    return [*lines, "", *lines_of(columns, approvals, terminal=talk, headers=True)]


def _argument_column(name: str) -> Field[Approval]:
    return Field(
        name=argument_name(name),
        value=lambda r: canonical(r.arguments[name]),
        shown=lambda r: Cell(marked_json(r.arguments[name])),
    )


@attrs.frozen
class _Taken:
    """A request, and what its decision led to."""

    approval: Approval
    outcome: str
    agreed: int


def _follows(row: _Taken) -> str:
    approval = row.approval
    match row.outcome:
        case "approved":
            last = attrs.evolve(approval, agreed=approval.people - 1)
            return f"approved: {if_approved(last)}"
        case "agreed":
            return f"{row.agreed} of {approval.people} agreed: another person must agree, too"
        case _:
            return f"denied: {if_denied(approval)}"


DECIDED_COLUMNS: Final[Sequence[Field[_Taken]]] = (
    Field(
        name="id",
        value=lambda r: r.approval.id,
        shown=lambda r: Cell(short_id(r.approval.id), "bold"),
    ),
    Field(name="outcome", is_default=False),
    Field(
        name="remark",
        title="what happens",
        value=_follows,
        shown=lambda r: Cell(safe(_follows(r))),
        least=20,
        is_for_people=True,
    ),
    Field(name="agreed", is_default=False),
    Field(name="people", value=lambda r: r.approval.people, is_default=False),
    Field(
        name="job_id",
        title="job",
        value=lambda r: r.approval.job_id,
        shown=lambda r: Cell(short_id(r.approval.job_id), "dim"),
    ),
)
