"""`cortex outbox ls`: messages, the newest first."""

from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.options import ROW_NUMBER, Command, Options, Text, TopicPattern
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.messages.message import MessageStatus
from cortex.domain.phrases import NOTHING, age, short_id, since_s
from cortex.domain.policy import NAME_MAX
from cortex.domain.safe import safe
from cortex.store.background import outbox as store
from cortex.store.background import subscriptions
from cortex.store.background.outbox import MessageRow
from cortex.view.cells import Cell
from cortex.view.messages import message_state
from cortex.view.resource import Field, on_demand

LIMIT_MAX: Final = 1000
STATES: Final = tuple(each.value.lower() for each in MessageStatus)


@click.command(cls=Command)
@click.option(
    "--status",
    type=click.Choice(STATES),
    multiple=True,
    help="Only messages in this state; may be repeated.",
)
@click.option(
    "--subscription",
    type=Text(NAME_MAX),
    metavar="NAME",
    help="Only messages to this subscription.",
)
@click.option(
    "--topic", type=TopicPattern(), metavar="PATTERN", help="Only these topics; * is anything."
)
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, metavar="N"
)
@click.option("--before", type=ROW_NUMBER, metavar="SEQ", help="Only older ones: the next page.")
@click.pass_obj
def ls(
    options: Options,
    *,
    status: tuple[str, ...],
    subscription: str | None,
    topic: str | None,
    limit: int,
    before: int | None,
) -> None:
    """List messages, the newest first: one row for each subscription that gets one."""
    output = Output(options)
    output.chosen(COLUMNS)
    with session(options) as call:
        rows = call(
            store.page,
            statuses=[MessageStatus(each.upper()) for each in status] or tuple(MessageStatus),
            subscription=subscription,
            topic=topic,
            before=before,
            limit=limit,
        )
        if subscription is not None and not rows:
            call(subscriptions.require, subscription)
    output.listing("messages", COLUMNS, rows, empty="no message")
    if output.is_for_people and len(rows) == limit:
        output.say(f"more: --before {rows[-1].seq}", "dim")


COLUMNS: Final[Sequence[Field[MessageRow]]] = (
    Field(name="id", title="message", shown=lambda r: Cell(short_id(r.id), "bold")),
    Field(name="status", shown=message_state),
    Field(name="topic", shown=lambda r: Cell(safe(r.topic))),
    Field(
        name="subscription",
        shown=lambda r: Cell(safe(r.subscription)) if r.subscription else Cell("nobody", "dim"),
    ),
    Field(name="attempts", title="tries", shown=lambda r: Cell(str(r.attempts)), is_right=True),
    Field(
        name="created_at",
        title="published",
        shown=lambda r: Cell(age(since_s(r, r.created_at)), "dim"),
        is_spare=True,
    ),
    Field(
        name="last_error",
        title="error",
        shown=lambda r: Cell(safe(r.last_error)) if r.last_error else Cell(NOTHING, "dim"),
        least=12,
        is_spare=True,
    ),
    *on_demand(
        *("seq", "key", "payload", "headers", "tenant", "trace", "channel", "available_at"),
        *("lost_count", "is_parked", "locked_until", "pod", "finished_at"),
    ),
)
