"""`cortex outbox ls`: messages, the newest first."""

from typing import Final

import click

from cortex.cli.options import ROW_NUMBER, Command, Options, Text, TopicPattern, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.messages.message import MessageStatus
from cortex.domain.policy import NAME_MAX
from cortex.store.background import outbox as store
from cortex.store.background import subscriptions
from cortex.view.resources.messages import MESSAGES

STATES: Final = tuple(each.value.lower() for each in MessageStatus)


@click.command(cls=Command, columns=MESSAGES.fields)
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
@limit_option(50)
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
    output.resource(MESSAGES, rows)
    if output.is_for_people and len(rows) == limit:
        output.say(f"more: --before {rows[-1].seq}", "dim")
