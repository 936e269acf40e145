"""`cortex outbox show`: a message, and what became of it for each subscription."""

from collections.abc import Iterator
from typing import Final

import click

from cortex.cli.jobs.job_page import block
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.screen.terminal import Terminal
from cortex.cli.target import session
from cortex.domain.messages.message import MessageStatus
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.background import outbox as store
from cortex.store.background.outbox import MessageRow
from cortex.view.cells import pad
from cortex.view.messages import NOBODY, attempts_text, message_state
from cortex.view.phrases import exact
from cortex.view.resources.messages import MESSAGES

LABEL_CELLS: Final = 12
ROWS_MAX: Final = 1000
SHARED: Final = ("id", "topic", "key", "tenant", "trace", "headers", "payload", "created_at")
"""Fields that are the same for each subscription."""


@click.command(cls=Command)
@click.argument("name", metavar="ID")
@click.pass_obj
def show(options: Options, *, name: str) -> None:
    """Show a message: its content, and its state for each subscription."""
    options.refuse_columns("one message has no columns")
    output = Output(options)
    with session(options) as call:
        rows = call(store.page, message_id=call(store.find, name), limit=ROWS_MAX)[::-1]
    first = rows[0]
    documents = [MESSAGES.document(row) for row in rows]
    shared = {key: documents[0][key] for key in SHARED}
    to = [{key: value for key, value in each.items() if key not in SHARED} for each in documents]
    output.record(
        {"message": shared | {"to": to}},
        name=str(first.id),
        page=lambda: _page(rows, output.terminal),
        is_whole=True,
    )


def _page(rows: list[MessageRow], terminal: Terminal) -> Iterator[str]:
    first = rows[0]
    yield terminal.paint(safe(f"message {short_id(first.id)}  {first.topic}"), "bold")
    facts = {
        "id": str(first.id),
        "key": first.key,
        "tenant": first.tenant,
        "trace": first.trace,
        "published": exact(first.created_at),
    }
    for label, text in facts.items():
        if text:
            yield f"  {terminal.paint(pad(label, LABEL_CELLS), 'dim')}{safe(text)}"
    yield from ("", terminal.paint("  payload", "dim"), *block(first.payload, indent="    "), "")
    for row in rows:
        cell = message_state(row)
        to = safe(row.subscription or NOBODY)
        state = terminal.paint(cell.text, cell.style)
        after = f", after {safe(row.escalated_from)}" if row.escalated_from else ""
        yield f"  {pad(to, LABEL_CELLS)}{state}, {attempts_text(row)}{after}"
        if row.last_error:
            yield f"    {safe(row.last_error)}"
    if any(row.status is MessageStatus.FAILED for row in rows):
        command = f"cortex outbox retry {short_id(first.id)} --reason TEXT"
        yield from ("", f"  send it again: {terminal.paint(command, 'bold')}")
