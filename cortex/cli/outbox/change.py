"""`cortex outbox retry` and `discard`: one message, or all that match."""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import click

from cortex.cli.changes import DO_NOT_ASK, ChangeRequest, changes
from cortex.cli.options import Command, Text, TopicPattern
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.policy import NAME_MAX
from cortex.postgres.database import Database
from cortex.store.background import outbox as store
from cortex.store.background import subscriptions
from cortex.store.background.outbox import CHANGED_DEFAULT, CHANGED_MAX, MessageChoice

Work = Callable[..., Awaitable[int]]


def _chosen(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--limit",
            type=click.IntRange(1, CHANGED_MAX),
            default=CHANGED_DEFAULT,
            show_default=True,
            metavar="N",
            help="Maximum number of messages, the oldest first.",
        ),
        click.option(
            "--topic",
            type=TopicPattern(),
            metavar="PATTERN",
            help="All of these topics; * is anything.",
        ),
        click.option(
            "--subscription", type=Text(NAME_MAX), metavar="NAME", help="All to this subscription."
        ),
        click.argument("name", metavar="[ID]", required=False),
    ):
        command = option(command)
    return command


@click.command(cls=Command)
@_chosen
@changes(is_reason_required=True)
def retry(change: ChangeRequest, **chosen: Any) -> None:
    """Send failed messages again, with all their attempts, under the same ids.

    Give an ID, --subscription or --topic. A message may then come after later ones of its key.
    """
    _write(change, store.retry, "retried", chosen)


@click.command(cls=Command)
@_chosen
@changes(is_reason_required=True, yes=DO_NOT_ASK)
def discard(change: ChangeRequest, **chosen: Any) -> None:
    """Delete messages that failed or still wait; they are never sent.

    Give an ID, --subscription or --topic. Facts record who and why.
    """
    change.confirm("delete unsent messages")
    _write(change, store.discard, "discarded", chosen)


def _write(change: ChangeRequest, work: Work, verb: str, chosen: dict[str, Any]) -> None:
    name, limit = chosen["name"], chosen["limit"]
    subscription, topic = chosen["subscription"], chosen["topic"]
    if name is None and subscription is None and topic is None:
        raise UsageError("no message is chosen", hint="give an ID, --subscription or --topic")
    with session(change.options) as call:
        choice = MessageChoice(
            message_id=None if name is None else call(store.find, name),
            subscription=subscription,
            topic=topic,
            limit=limit,
        )

        async def write(db: Database, *, by: str, reason: str) -> dict[str, int]:
            return {verb: await work(db, choice, by=by, reason=reason)}

        done = change.write(
            call, write, operation=f"outbox.{work.__name__}", request=attrs.asdict(choice)
        )
        if subscription is not None and not done[verb]:
            call(subscriptions.require, subscription)
    count = done[verb]
    noun = "message" if count == 1 else "messages"
    change.output.record(done, name=str(count), page=lambda: [f"{verb} {count} {noun}"])
