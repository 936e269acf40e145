"""`cortex subscriptions test`: one message by a subscription's channel, from this machine."""

from typing import Final

import click
import trio

from cortex.cli.options import Command, Options
from cortex.cli.screen.logs import configure_logs
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.clock import Chance, system_chance
from cortex.domain.errors import NotFoundError, RejectedError, UsageError
from cortex.domain.failure import Failure
from cortex.domain.messages.message import Message
from cortex.domain.messages.subscription import Channel, Subscription
from cortex.domain.safe import safe
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.poster import Poster
from cortex.http_client.proxies import Proxies
from cortex.runtime.outbox.senders import SEND_S, SenderParts, send_within
from cortex.store import clock
from cortex.store.background import subscriptions as store

TOPIC: Final = "cortex.test"
PAYLOAD: Final = {"text": "a test of this subscription"}


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.pass_obj
def test(options: Options, *, name: str) -> None:
    """Send one message by a subscription's channel now, from this machine.

    Its topic is cortex.test. It is not written to the outbox, and it is not tried again. Secrets
    are read here, not on a pod; so is CORTEX_HTTP_ALLOW. A template may name keys of the payload
    that this message lacks.
    """
    options.refuse_columns("one message has no columns")
    output = Output(options)
    with session(options) as call:
        found = call(store.one, name)
        now = call(clock.now)
    if found is None:
        raise NotFoundError(
            f"subscription {name!r} does not exist", hint="list them: cortex subscriptions ls"
        )
    if found.channel is Channel.HANDLER:
        raise UsageError(
            f"subscription {name!r} is a handler in the code of pods",
            hint="publish a message of its topic: SELECT cortex.publish(…)",
        )
    configure_logs()
    chance = system_chance()
    message = Message(
        id=chance.new_id(), attempt=1, topic=TOPIC, payload=dict(PAYLOAD), created_at=now
    )
    failure = trio.run(_send, found, message, chance)
    if failure is not None:
        raise RejectedError(f"{name}: {failure.message}", hint="nothing was written")
    document = {"subscription": name, "message": str(message.id), "outcome": "sent"}
    output.record(document, name=name, page=lambda: [f"sent {message.id} to {safe(name)}"])


async def _send(subscription: Subscription, message: Message, chance: Chance) -> Failure | None:
    allowed = AllowedAddresses.of_environment()
    poster = Poster(allowed, proxies=Proxies.of_environment())
    try:
        sender = SenderParts(
            poster=poster, allowed=allowed, unix_ms=chance.unix_ms, send_s=SEND_S
        ).sender(subscription)
        if sender is None:
            raise AssertionError("only handlers may lack a sender")
        return await send_within(sender, message)
    finally:
        await poster.aclose()
