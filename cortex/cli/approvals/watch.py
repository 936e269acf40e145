"""`cortex approvals watch`: requests and decisions as they arrive, until Ctrl-C."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import click

from cortex.cli.options import Command, Format, Options
from cortex.cli.screen.live_line import live_line
from cortex.cli.screen.output import Output, document_of
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.approvals.approval import ApprovalRow
from cortex.domain.errors import UnavailableError, UsageError
from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.postgres.session import Session
from cortex.store import approvals as store
from cortex.store.approvals import ApprovalEvent, InboxCount
from cortex.view.approvals import RISKS, brief
from cortex.view.cells import fit, pad
from cortex.view.phrases import since_s

POLL_S: Final = 1.0
OUTAGE_POLL_S: Final = 2.0
LATE_MAX: Final = timedelta(seconds=10)
"""No transaction lasts longer, so an event appears at most this much after its timestamp."""
EVENTS_MAX: Final = 2000
WAITING_MAX: Final = 50
"""Requests shown at the start."""
COUNT_MAX: Final = 1000
EVENT_CELLS: Final = len("approved")
STYLES: Final = {"asked": "appr", "agreed": "warn", "approved": "done", "denied": "fail"}


@click.command(cls=Command)
@click.option("--plain", is_flag=True, help="One line per event, as in a pipe.")
@click.pass_obj
def watch(options: Options, *, plain: bool) -> None:
    """Follow requests and decisions until Ctrl-C; starts with the waiting requests."""
    output = Output(options)
    if output.format in {Format.YAML, Format.NAME}:
        raise UsageError(
            f"approvals watch does not support format {output.format}",
            hint="use json, or no format",
        )
    with (
        session(options) as call,
        live_line(output.terminal, is_on=_is_live(output, plain)) as live,
    ):
        for events, inbox in _looks(call, output):
            if events:
                live.clear()
            for event in events:
                _print(event, output)
            live.show(_standing(inbox, output.terminal))


def _is_live(output: Output, plain: bool) -> bool:  # noqa: FBT001
    return output.is_for_people and not plain


def _looks(call: Session, output: Output) -> Iterator[tuple[list[ApprovalEvent], InboxCount]]:
    """Yield each event once, poll by poll; waits while the database is unavailable."""
    inbox = call(store.inbox, limit=COUNT_MAX)
    since = inbox.now - LATE_MAX
    observed = {_key(event) for event in call(store.changes, since=since, limit=EVENTS_MAX)}
    yield [_asked(row) for row in call(store.pending, limit=WAITING_MAX)], inbox
    is_away = False
    while True:
        call.pause(OUTAGE_POLL_S if is_away else POLL_S)
        try:
            found = call(store.changes, since=since, limit=EVENTS_MAX)
            inbox = call(store.inbox, limit=COUNT_MAX)
        except UnavailableError as error:
            if not is_away:
                output.say(f"{error.message}; trying again", "warn")
            is_away = True
            continue
        is_away = False
        yield [event for event in found if _key(event) not in observed], inbox
        if len(found) == EVENTS_MAX:
            since = found[-1].at
            observed |= {_key(event) for event in found}
        else:  # re-read only as far back as a late event may appear
            since = inbox.now - LATE_MAX
            observed = {_key(event) for event in found}


def _key(event: ApprovalEvent) -> tuple[Any, ...]:
    return event.id, event.event, event.person


def _asked(row: ApprovalRow) -> ApprovalEvent:
    return ApprovalEvent(
        at=row.created_at,
        event="asked",
        id=row.id,
        person=row.requested_by,
        reason=None,
        job_id=row.job_id,
        tool=row.tool,
        key=row.key,
        risk=row.risk,
        people=row.people,
        agreed=row.agreed,
        arguments=row.arguments,
        channel=None,
        expires_at=row.expires_at,
        agent=row.agent,
        now=row.now,
    )


def _print(event: ApprovalEvent, output: Output) -> None:
    if output.is_for_people:
        output.line(_line(event, output.terminal))
        return
    kept = ("at", "event", "id", "person", "reason", "job_id", "risk", "tool", "key", "arguments")
    rest = ("people", "agreed", "expires_at", "agent")
    output.json_line(document_of(event, (*kept, *rest)))


def _line(event: ApprovalEvent, terminal: Terminal) -> str:
    moment = terminal.clock(event.at)
    what = pad(event.event.replace("cancelled", "void"), EVENT_CELLS)
    risk = RISKS[event.risk]
    text = f"{short_id(event.id)} {brief(event)}{_more(event, terminal)}"
    line = f"{terminal.paint(moment, 'dim')}  {terminal.paint(what, STYLES.get(event.event, ''))}"
    return f"{line}  {terminal.paint(risk.text, risk.style)} {safe(text)}"


def _more(event: ApprovalEvent, terminal: Terminal) -> str:
    parts = []
    if event.event == "asked":
        agent = f" by {event.agent}" if event.agent else ""
        parts.append(f"requested{agent}, expires {terminal.date(event.expires_at)}")
    elif event.event == "agreed":
        parts.append(f"{event.agreed} of {event.people}")
    if event.person and event.event != "asked":
        parts.append(f"by {event.person}")
    if event.reason and event.event != "asked":
        parts.append(str(event.reason))
    return "".join(f" · {each}" for each in parts)


def _standing(inbox: InboxCount, terminal: Terminal) -> str:
    if not inbox.count or inbox.expires_at is None:
        return terminal.paint("◆ nothing waits", "dim")
    more = "+" if inbox.count >= COUNT_MAX else ""
    left = max(0.0, -since_s(inbox, inbox.expires_at))
    noun = "waits" if inbox.count == 1 else "wait"
    return fit(f"◆ {inbox.count}{more} {noun}, first expires in {span(left)}", terminal.width - 1)
