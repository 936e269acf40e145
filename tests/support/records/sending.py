"""A runner of the outbox in a test: subscriptions, messages, and what became of them."""

import base64
from typing import Any
from uuid import UUID

import attrs

from cortex.actors.runner import TickBudget
from cortex.domain.clock import system_chance
from cortex.domain.messages.subscription import parse_subscription
from cortex.durable.message_handlers import MessageHandler
from cortex.http_client.addresses import AllowedAddresses
from cortex.runtime.calls.breakers import BreakerRegistry
from cortex.runtime.outbox.outbox import Outbox
from cortex.store.background import outbox, subscriptions
from cortex.store.background.outbox import MessageRow
from tests.support.records.factories import Bench
from tests.support.servers.webhook_receiver import Receiver

SECRETS = ["whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2)]
LOOPBACK = AllowedAddresses.parse("127.0.0.0/8")
BUDGET = TickBudget()


async def subscribe(bench: Bench, given: dict[str, Any]) -> None:
    document = {"name": "a", "topic": "order.*"} | given
    subscription = parse_subscription(document, where=lambda _: "test")
    await bench.port(subscriptions.put, subscription, by="test", reason="")


def hook(receiver: Receiver, **more: Any) -> dict[str, Any]:
    return {"channel": "webhook", "url": receiver.url, "secrets": ["env:HOOK_NEW"], **more}


async def publish(bench: Bench, *numbers: int, key: str | None = None) -> list[UUID]:
    return [
        await bench.port(outbox.publish, "order.paid", {"number": number}, key=key)
        for number in numbers
    ]


def make(bench: Bench, *handlers: MessageHandler, **more: Any) -> Outbox:
    registry = BreakerRegistry(bench.port, pod_id=bench.pod.id, rng=bench.rng)
    values: dict[str, Any] = {"allowed": LOOPBACK, "breakers": registry}
    return Outbox(
        bench.port,
        pod_id=bench.pod.id,
        chance=attrs.evolve(system_chance(), rng=bench.rng),
        handlers={each.subscription.name: each for each in handlers},
        **{**values, **more},
    )


def make_alone(bench: Bench) -> Outbox:
    """One that reads the breakers itself, as in `cortex tick`."""
    registry = BreakerRegistry(bench.port, pod_id=bench.pod.id, rng=bench.rng)
    return make(bench, breakers=registry, read_breakers=registry.tick)


async def rows(bench: Bench) -> list[MessageRow]:
    """All messages, the oldest first."""
    found: list[MessageRow] = await bench.port(outbox.page, limit=1000)
    return found[::-1]


async def only(bench: Bench) -> MessageRow:
    (row,) = await rows(bench)
    return row
