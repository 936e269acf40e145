"""Notifications of people by jobs: choice of subscriptions, text sent, jobs submitted."""

from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from cortex.domain.clock import system_chance
from cortex.domain.errors import NotFoundError
from cortex.domain.failure import FailureClass
from cortex.domain.messages.message import Message
from cortex.domain.messages.subscription import Subscription
from cortex.runtime.outbox.job_notifications import StoreChannels
from cortex.store import specs
from cortex.store.background import subscriptions
from cortex.store.specs import SpecKind
from tests.support.records.factories import Bench, TrioClock, a_claim
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql


async def subscribe(bench: Bench, name: str, topic: str, **more: Any) -> None:
    row = Subscription(**{"name": name, "topic": topic, "channel": "log"} | more)
    await bench.port(subscriptions.put, row, by="test", reason="")


def channels_of(bench: Bench) -> StoreChannels:
    return StoreChannels(port=bench.port, chance=system_chance())


async def a_message(**payload: Any) -> Message:
    now = await TrioClock().now()
    return Message(id=new_id(), attempt=1, topic="a.b", payload=payload, created_at=now)


async def test_routes_are_those_of_the_topic_the_tenant_and_the_risk(bench: Bench) -> None:
    await subscribe(bench, "all", "*")
    await subscribe(bench, "acme", "notification.*", tenant="acme")
    await subscribe(bench, "grave", "notification.*", min_risk="HIGH")
    await subscribe(bench, "code", "*", channel="handler")
    routes = channels_of(bench).routes
    assert await routes("notification.x", tenant="acme", payload={}) == ["acme", "all"]
    payload = {"risk": "CRITICAL"}
    assert await routes("notification.x", tenant="b", payload=payload) == ["all", "grave"]
    assert await routes("order.paid", tenant="acme", payload=payload) == ["all"]


async def test_the_text_is_sent_whole_by_the_sender_of_the_subscription(bench: Bench) -> None:
    await subscribe(bench, "ops", "a.*", config={"level": "warning"})
    channels, text = channels_of(bench), "word " * 100
    with capture_logs() as lines:
        sent = await channels.send("ops", await a_message(title="disk", text=text), limit_s=9.0)
    assert sent is None
    (line,) = lines
    assert line["log_level"] == "warning"
    assert line["text"].startswith(f"a.b (default)\n> disk\n> {text.strip()}")


async def test_message_that_cannot_be_sent_here_names_the_problem(bench: Bench) -> None:
    await subscribe(bench, "chat", "a.*", channel="slack", config={"url": "env:NOT_SET_HERE"})
    channels = channels_of(bench)
    for name, problem in (("chat", "NOT_SET_HERE is not set"), ("gone", "does not exist any more")):
        failure = await channels.send(name, await a_message(), limit_s=9.0)
        assert failure is not None
        assert (failure.cls, problem in failure.message) == (FailureClass.PERMANENT, True)


async def test_an_agent_s_notification_is_one_job_of_its_tenant(
    bench: Bench, database: str
) -> None:
    spec = {"name": "bot", "model": "m", "system": "You test."}
    await bench.port(specs.apply, SpecKind.AGENT, new_id=new_id(), name="bot", spec=spec, by="ana")
    (row,) = sql(database, "SELECT agent_id, version FROM cortex.agent_version")
    claim = attrs.evolve(
        a_claim(), tenant="acme", agent_id=row["agent_id"], agent_version=row["version"]
    )
    job_id = new_id()
    for _ in range(2):
        await channels_of(bench).notify(claim, '{"text": "late"}', job_id=job_id, traceparent=None)
    (job,) = sql(database, "SELECT id, type, tenant, agent_id, max_retries FROM cortex.job")
    assert (job["id"], job["type"], job["tenant"]) == (job_id, "send_notification", "acme")
    assert (job["agent_id"], job["max_retries"]) == (row["agent_id"], 5)


async def test_a_request_that_does_not_exist_is_named(bench: Bench) -> None:
    with pytest.raises(NotFoundError):
        await channels_of(bench).remind("7f3c", message_id=new_id())
