"""`cortex outbox retry` and `discard`: one message, or all that match."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import click

from cortex.cli.asking import confirm_count
from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.options import Command, Span, Text, TopicPattern, limit_option, stacked
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.messages.message import MessageStatus
from cortex.domain.policy import NAME_MAX
from cortex.postgres.database import Database
from cortex.postgres.session import Session
from cortex.store.background import outbox as store
from cortex.store.background import subscriptions
from cortex.store.background.outbox import (
    CHANGED_DEFAULT,
    CHANGED_MAX,
    RETRIED,
    UNSENT,
    MessageChoice,
)
from cortex.view.verbs import DISCARD_MESSAGE, RETRY_MESSAGE

Work = Callable[..., Awaitable[int]]


@attrs.frozen(kw_only=True)
class Words:
    """What a command does, and to which messages unless a person names states."""

    verb: str
    done: str
    statuses: tuple[MessageStatus, ...]
    is_asked_for_one: bool
    """Whether it asks before it changes a single message, too."""


RETRY: Final = Words(verb="retry", done="retried", statuses=RETRIED, is_asked_for_one=False)
DISCARD: Final = Words(verb="delete", done="discarded", statuses=UNSENT, is_asked_for_one=True)


_chosen: Final = stacked(
    click.argument("name", metavar="[ID]", required=False),
    click.option(
        "--subscription", type=Text(NAME_MAX), metavar="NAME", help="All to this subscription."
    ),
    click.option(
        "--status",
        "states",
        type=click.Choice([each.value.lower() for each in UNSENT]),
        multiple=True,
        help="Only messages in this state; may be repeated.",
    ),
    click.option(
        "--since",
        "since_s",
        type=Span(),
        metavar="TIME",
        help="Only those published within the last 2h, 3d …",
    ),
    click.option(
        "--older",
        "older_s",
        type=Span(),
        metavar="TIME",
        help="Only those published longer ago than 2h, 3d …",
    ),
    click.option(
        "--topic",
        type=TopicPattern(),
        metavar="PATTERN",
        help="All of these topics; * is anything.",
    ),
    limit_option(
        CHANGED_DEFAULT,
        "Maximum number of messages, the oldest first.",
        most=CHANGED_MAX,
        is_list=False,
    ),
)


@click.command(cls=Command)
@_chosen
@changes(RETRY_MESSAGE)
def retry(change: ChangeRequest, **chosen: Any) -> None:
    """Send failed messages again, with all their attempts, under the same ids.

    Give an ID or filters. With --status pending, messages that wait for their next attempt are
    sent now. A failed message may come after later ones of its key.
    """
    _write(change, store.retry, RETRY, chosen)


@click.command(cls=Command)
@_chosen
@changes(DISCARD_MESSAGE)
def discard(change: ChangeRequest, **chosen: Any) -> None:
    """Delete messages that failed or still wait; they are never sent.

    Give an ID or filters. Facts record who and why.
    """
    _write(change, store.discard, DISCARD, chosen)


def _write(change: ChangeRequest, work: Work, words: Words, chosen: dict[str, Any]) -> None:
    name, subscription = chosen.pop("name"), chosen["subscription"]
    states, limit = chosen.pop("states"), chosen.pop("limit")
    if name is None and not states and not any(chosen.values()):
        raise UsageError(
            "no message is chosen",
            hint="give an ID, --subscription, --topic, --status, --since or --older",
        )
    with session(change.options) as call:
        choice = MessageChoice(
            message_id=None if name is None else call(store.find, name),
            statuses=tuple(MessageStatus(each.upper()) for each in states) or None,
            limit=limit,
            **chosen,
        )
        if name is None or words.is_asked_for_one:
            _confirm(change, call, words, choice)

        async def write(db: Database, *, by: str, reason: str) -> dict[str, int]:
            return {words.done: await work(db, choice, by=by, reason=reason)}

        done = change.write(
            call, write, operation=f"outbox.{work.__name__}", request=attrs.asdict(choice)
        )
        if subscription is not None and not done[words.done]:
            call(subscriptions.require, subscription)
    count = done[words.done]
    page = [f"{words.done} {_messages(count)}"]
    change.output.record(done, name=str(count), page=lambda: page)


def _confirm(change: ChangeRequest, call: Session, words: Words, choice: MessageChoice) -> None:
    """Ask with the number of messages of each state, unless there is none."""
    counts = call(store.count, choice, words.statuses)
    if counts:
        parts = ", ".join(f"{count:,} {each.value.lower()}" for each, count in counts.items())
        count = sum(counts.values())
        question = f"{words.verb} {_messages(count)} ({parts})"
        confirm_count(question, count, change.options, is_agreed=change.is_agreed)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"
