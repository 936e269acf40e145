"""The runner of the outbox: deliveries, repetitions, and hostile receivers."""

import base64
from collections.abc import MutableMapping
from typing import Any

import pytest
import trio

from cortex.actors.runner import TickResult
from cortex.domain.breaker import BreakerState
from cortex.domain.errors import RejectedError, UsageError
from cortex.domain.messages.message import Message, MessageStatus
from cortex.durable.context import Context
from cortex.durable.message_handlers import handler
from cortex.http_client.addresses import AllowedAddresses
from cortex.http_client.webhooks import is_authentic
from cortex.runtime.calls.breakers import BreakerRegistry
from cortex.runtime.outbox import leases
from cortex.store import breakers, dead_letters, tasks
from cortex.store.background import outbox
from cortex.store.dead_letters import Resubmission
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.records.factories import JOB_TYPE, Bench
from tests.support.records.rows import job_row, move_clock, new_id
from tests.support.records.sending import (
    BUDGET,
    SECRETS,
    hook,
    make,
    only,
    publish,
    rows,
    subscribe,
)
from tests.support.servers.postgres import sql
from tests.support.servers.webhook_receiver import Receiver, receiving, status


async def test_a_webhook_gets_a_signed_message(bench: Bench, receiver: Receiver) -> None:
    await subscribe(bench, hook(receiver, secrets=["env:HOOK_OLD", "env:HOOK_NEW"]))
    (message_id,) = await publish(bench, 7)
    assert await make(bench).tick(BUDGET) == TickResult(items=1)
    (posted,) = receiver.posted
    assert posted.message_id == str(message_id)
    assert posted.json["type"] == "order.paid"
    assert posted.json["data"] == {"number": 7}
    now = int(posted.headers["webhook-timestamp"])
    for secret in SECRETS:
        assert is_authentic(posted.headers, posted.body, now=now, secrets=[secret])
    other = "whsec_" + base64.b64encode(bytes(32)).decode()
    assert not is_authentic(posted.headers, posted.body, now=now, secrets=[other])
    row = await only(bench)
    assert (row.status, row.attempts, row.last_error) == (MessageStatus.SENT, 1, None)


async def test_many_messages_share_a_few_connections(bench: Bench, receiver: Receiver) -> None:
    await subscribe(bench, hook(receiver))
    await publish(bench, *range(120))
    assert (await make(bench).tick(BUDGET)).items == 120
    assert len(set(receiver.ids)) == 120
    assert receiver.connections <= 10


async def test_messages_of_one_key_arrive_in_order(bench: Bench, receiver: Receiver) -> None:
    await subscribe(bench, hook(receiver))
    await publish(bench, *range(10), key="k")
    await publish(bench, *range(100, 110), key="l")
    await make(bench).tick(BUDGET)
    numbers = [each.json["data"]["number"] for each in receiver.posted]
    assert [n for n in numbers if n < 100] == list(range(10))
    assert [n for n in numbers if n >= 100] == list(range(100, 110))


async def test_a_huge_answer_is_not_read(bench: Bench, receiver: Receiver) -> None:
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000
    receiver.answer = lambda _: huge
    await subscribe(bench, hook(receiver))
    await publish(bench, 1, 2)
    await make(bench).tick(BUDGET)
    assert [each.status for each in await rows(bench)] == [MessageStatus.SENT] * 2
    assert receiver.connections == 2, "the connection of such an answer is closed"


async def test_a_private_address_is_refused(bench: Bench, receiver: Receiver) -> None:
    await subscribe(bench, hook(receiver))
    await publish(bench, 1)
    await make(bench, allowed=AllowedAddresses()).tick(BUDGET)
    row = await only(bench)
    assert row.status is MessageStatus.FAILED
    assert "not a public address" in (row.last_error or "")
    assert receiver.connections == 0


async def test_a_receiver_that_hangs_delays_no_other(bench: Bench, receiver: Receiver) -> None:
    async with receiving() as hangs:
        hangs.answer = lambda _: None
        await subscribe(bench, hook(hangs, name="hangs"))
        await subscribe(bench, hook(receiver, name="works"))
        await publish(bench, *range(60))
        await bench.start(make(bench, send_s=60.0))
        await receiver.until_posted(60)
        assert len(hangs.posted) == 10


async def test_a_receiver_that_hangs_times_out(bench: Bench, receiver: Receiver) -> None:
    receiver.answer = lambda _: None
    await subscribe(bench, hook(receiver))
    await publish(bench, 1)
    await make(bench, send_s=0.05).tick(BUDGET)
    row = await only(bench)
    assert (row.status, row.attempts) == (MessageStatus.PENDING, 1)
    assert "0.05 s" in (row.last_error or "")


async def test_a_breaker_opens_and_messages_wait_without_attempts(
    bench: Bench, receiver: Receiver, database: str
) -> None:
    receiver.answer = lambda _: status(500)
    await subscribe(bench, hook(receiver))
    await publish(bench, *range(40))
    registry = BreakerRegistry(bench.port, pod_id=bench.pod.id, rng=bench.rng)
    sends = make(bench, breakers=registry)
    await sends.tick(BUDGET)
    assert registry.states()["notify:a"] is BreakerState.OPEN
    posted = len(receiver.posted)
    assert posted < 40
    waiting = [row for row in await rows(bench) if row.attempts == 0]
    assert len(waiting) == 40 - posted
    await sends.tick(BUDGET)
    assert len(receiver.posted) == posted, "an open breaker lets no message be claimed"
    receiver.answer = Receiver(0).answer
    await bench.port(breakers.close, "notify:a", by="ana", reason="fixed")
    move_clock(database, 120)
    await registry.tick(BUDGET)
    await sends.tick(BUDGET)
    assert {row.status for row in await rows(bench)} == {MessageStatus.SENT}


async def test_a_dead_receiver_costs_no_connection(bench: Bench, receiver: Receiver) -> None:
    async with receiving() as gone:
        given = hook(gone)
    await subscribe(bench, given)
    await publish(bench, 1)
    await make(bench).tick(BUDGET)
    row = await only(bench)
    assert (row.status, row.attempts) == (MessageStatus.PENDING, 1)
    assert receiver.posted == []


async def test_a_missing_secret_is_named(bench: Bench, receiver: Receiver) -> None:
    await subscribe(bench, hook(receiver, secrets=["env:NOT_SET"]))
    await publish(bench, 1)
    await make(bench).tick(BUDGET)
    row = await only(bench)
    assert row.status is MessageStatus.FAILED
    assert "environment variable NOT_SET is not set" in (row.last_error or "")
    assert receiver.posted == []


async def test_slack_gets_a_text(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_URL", receiver.url)
    template = "order {payload.number}, {payload.agent|nobody}"
    await subscribe(bench, {"channel": "slack", "url": "env:SLACK_URL", "template": template})
    await publish(bench, 5)
    await make(bench).tick(BUDGET)
    (posted,) = receiver.posted
    assert posted.json == {"text": "order 5, nobody"}


async def test_slack_text_escapes_mentions_and_links(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_URL", receiver.url)
    await subscribe(bench, {"channel": "slack", "url": "env:SLACK_URL"})
    payload = {"text": "<!here> & <http://a.b|ok>"}
    await bench.port(outbox.publish, "order.paid", payload, tenant="<!channel>")
    await make(bench).tick(BUDGET)
    (posted,) = receiver.posted
    assert posted.json["text"].startswith("order.paid (&lt;!channel&gt;)")
    assert posted.json["text"].endswith("&lt;!here&gt; &amp; &lt;http://a.b|ok&gt;")


async def test_a_template_that_fails_fails_its_message_alone(
    bench: Bench, log_lines: list[MutableMapping[str, Any]]
) -> None:
    await subscribe(bench, {"name": "bad", "channel": "log", "template": "{payload.absent}"})
    await subscribe(bench, {"name": "good", "channel": "log", "level": "error"})
    await publish(bench, 1)
    await make(bench).tick(BUDGET)
    found = {row.subscription: row for row in await rows(bench)}
    assert found["good"].status is MessageStatus.SENT
    assert found["bad"].status is MessageStatus.FAILED
    assert found["bad"].last_error == "the message has no payload.absent"
    (line,) = [each for each in log_lines if each["event"] == "message"]
    assert (line["log_level"], line["topic"]) == ("error", "order.paid")


# --- handlers


async def test_a_handler_gets_id_and_attempt(bench: Bench, database: str) -> None:
    calls: list[Message] = []

    @handler("order.*")
    async def on_order(message: Message) -> None:
        calls.append(message)
        if message.attempt == 1:
            raise ValueError("not yet")

    sends = make(bench, on_order)
    await sends.tick(BUDGET)
    (message_id,) = await publish(bench, 3)
    await sends.tick(BUDGET)
    move_clock(database, 6)
    await sends.tick(BUDGET)
    assert [(each.id, each.attempt) for each in calls] == [(message_id, 1), (message_id, 2)]
    assert calls[0].payload == {"number": 3}
    assert (await only(bench)).status is MessageStatus.SENT


async def test_outbox_runs_ten_handlers_and_two_heavy_ones_at_a_time(bench: Bench) -> None:
    running, most = {"light": 0, "heavy": 0}, {"light": 0, "heavy": 0}

    async def call(kind: str, _: Message) -> None:
        running[kind] += 1
        most[kind] = max(most[kind], running[kind])
        for _turn in range(20):
            await trio.lowlevel.checkpoint()
        running[kind] -= 1

    @handler("order.*")
    async def light(message: Message) -> None:
        await call("light", message)

    @handler("order.*", heavy=True)
    async def heavy(message: Message) -> None:
        await call("heavy", message)

    @handler("order.*", heavy=True)
    async def heavy_too(message: Message) -> None:
        await call("heavy", message)

    sends = make(bench, light, heavy, heavy_too)
    await sends.tick(BUDGET)
    await publish(bench, *range(30))
    await sends.tick(BUDGET)
    assert {row.status for row in await rows(bench)} == {MessageStatus.SENT}
    assert most == {"light": 10, "heavy": 2}


async def test_a_handler_that_never_returns_is_ended(bench: Bench) -> None:
    @handler("order.*", timeout=0.05)
    async def on_order(_: Message) -> None:
        await trio.sleep_forever()

    sends = make(bench, on_order)
    await sends.tick(BUDGET)
    await publish(bench, 1)
    await sends.tick(BUDGET)
    row = await only(bench)
    assert (row.status, row.attempts) == (MessageStatus.PENDING, 1)
    assert "0.05 s" in (row.last_error or "")


async def test_rejected_message_is_final(bench: Bench) -> None:
    @handler("order.*")
    async def on_order(_: Message) -> None:
        raise RejectedError("no such customer")

    sends = make(bench, on_order)
    await sends.tick(BUDGET)
    await publish(bench, 1)
    await sends.tick(BUDGET)
    row = await only(bench)
    assert (row.status, row.last_error) == (MessageStatus.FAILED, "no such customer")


async def test_messages_of_a_handler_wait_for_a_pod_that_has_it(bench: Bench) -> None:
    @handler("order.*")
    async def on_order(_: Message) -> None: ...

    await make(bench, on_order).tick(BUDGET)
    await publish(bench, 1)
    await make(bench).tick(BUDGET)
    assert (await only(bench)).status is MessageStatus.PENDING
    await make(bench, on_order).tick(BUDGET)
    assert (await only(bench)).status is MessageStatus.SENT


async def test_a_handler_cannot_take_the_name_of_a_channel(bench: Bench) -> None:
    @handler("order.*", name="a")
    async def on_order(_: Message) -> None: ...

    await subscribe(bench, {"channel": "log"})
    with pytest.raises(UsageError, match="has the name of a subscription by log"):
        await make(bench, on_order).tick(BUDGET)


# --- what jobs publish


async def test_a_job_publishes_once_however_often_it_runs(bench: Bench, database: str) -> None:
    await bench.start_committing()
    await subscribe(bench, {"channel": "log"})
    attempts: list[int] = []

    async def work(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        for number in range(2):
            await ctx.publish("order.paid", {"number": number}, key="k")
        if ctx.attempt == 1:
            raise OSError("again")

    bench.handle(work)
    (claim,) = await bench.claimed(tenant="acme")
    bench.run(claim)
    await bench.running.wait_until_empty()
    ready = "UPDATE cortex_worker.task SET state = 'READY', run_at = cortex.now()"
    sql(database, ready)
    (again,) = await bench.port(tasks.claim, pod_id=bench.pod.id, types=[JOB_TYPE], limit=1)
    bench.run(again)
    await bench.running.wait_until_empty()
    assert attempts == [1, 2]
    assert [row.payload for row in await rows(bench)] == [{"number": 0}, {"number": 1}]
    assert {(row.key, row.tenant) for row in await rows(bench)} == {("k", "acme")}
    kinds = sql(database, "SELECT kind, key FROM cortex.job_step ORDER BY seq")
    assert [tuple(row) for row in kinds] == [
        ("message", "publish order.paid"),
        ("message", "publish order.paid#2"),
    ]


async def test_a_retried_job_does_not_publish_again(bench: Bench, database: str) -> None:
    await bench.start_committing()
    await subscribe(bench, {"channel": "log"})

    async def work(ctx: Context) -> None:
        await ctx.publish("order.paid", {"number": 1})
        raise RejectedError("no")

    bench.handle(work)
    (claim,) = await bench.claimed()
    bench.run(claim)
    await bench.running.wait_until_empty()
    retried = Resubmission(job_id=claim.lease.job_id, new_id=new_id())
    await bench.port(dead_letters.resubmit, [retried], by="ana", reason="mended")
    assert sql(database, "SELECT count(*) FROM cortex.job_step WHERE attempt = 0")[0][0] == 1
    assert [row.payload for row in await rows(bench)] == [{"number": 1}], "its step was copied"


@pytest.mark.parametrize("topic", ["job.failed", "Order", "a b"])
async def test_a_job_cannot_publish_under_the_runtimes_topics(
    bench: Bench, database: str, topic: str
) -> None:
    await bench.start_committing()

    async def work(ctx: Context) -> None:
        await ctx.publish(topic, {})

    bench.handle(work)
    (claim,) = await bench.claimed()
    bench.run(claim)
    await bench.running.wait_until_empty()
    assert job_row(database, claim.lease.job_id)["error_code"] == "usage"


# --- leases and outages


async def test_two_pods_send_each_message_once(bench: Bench, receiver: Receiver) -> None:
    await subscribe(bench, hook(receiver))
    await publish(bench, *range(60))
    await publish(bench, *range(60, 70), key="k")
    other = Bench(bench.port, bench.jobs)
    async with trio.open_nursery() as nursery:
        for each in (bench, other):
            nursery.start_soon(make(each).tick, BUDGET)
    assert len(receiver.ids) == len(set(receiver.ids)) == 70


async def test_a_lost_lease_stops_a_handler_and_its_record(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.05)
    began, was_cancelled = trio.Event(), trio.Event()

    @handler("order.*")
    async def on_order(_: Message) -> None:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            was_cancelled.set()

    await make(bench, on_order).tick(BUDGET)
    await publish(bench, 1)
    await bench.start(make(bench, on_order))
    await began.wait()
    taken = "UPDATE cortex.outbox SET locked_by = gen_random_uuid(), claim = 2"
    sql(database, taken)
    with trio.fail_after(WITHIN_S):
        await was_cancelled.wait()
    row = await only(bench)
    assert (row.status, row.attempts) == (MessageStatus.PROCESSING, 1)


async def test_a_pod_killed_before_it_recorded_leads_to_the_same_id_again(
    bench: Bench, receiver: Receiver, database: str
) -> None:
    await subscribe(bench, hook(receiver))
    await publish(bench, 1)
    for _ in range(20):
        bench.port.refuse(outbox.record)
    async with trio.open_nursery() as pod:
        pod.start_soon(make(bench).tick, BUDGET)
        await eventually_async(lambda: bench.port.faults_left < 20, what="it begins to record")
        pod.cancel_scope.cancel()
    assert len(receiver.ids) == 1
    while bench.port.faults_left:
        with pytest.raises(Exception, match="not there"):
            await bench.port(outbox.record, pod_id=bench.pod.id, outcomes=[])
    move_clock(database, 61)
    await make(Bench(bench.port, bench.jobs)).tick(BUDGET)
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1
    row = await only(bench)
    assert (row.status, row.attempts, row.lost_count) == (MessageStatus.SENT, 1, 1)


async def test_an_outage_between_claim_and_record_is_waited_out(
    bench: Bench, receiver: Receiver
) -> None:
    await subscribe(bench, hook(receiver))
    await publish(bench, 1, 2)
    bench.port.refuse(outbox.record)
    bench.port.lose_reply(outbox.record)
    await make(bench).tick(BUDGET)
    assert [row.status for row in await rows(bench)] == [MessageStatus.SENT] * 2
    assert len(receiver.ids) == 2


async def test_a_stop_hands_the_leases_back(bench: Bench, receiver: Receiver) -> None:
    receiver.answer = lambda _: None
    await subscribe(bench, hook(receiver))
    await publish(bench, *range(30))
    async with trio.open_nursery() as nursery:
        await nursery.start(make(bench).run)
        await receiver.until_posted(10)
        nursery.cancel_scope.cancel()
    assert {(row.status, row.attempts) for row in await rows(bench)} == {(MessageStatus.PENDING, 0)}


@pytest.mark.timeout(30)
async def test_a_stop_while_it_starts_ends_it(bench: Bench) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await make(bench).run()
    assert scope.cancelled_caught


async def test_a_new_message_is_sent_when_the_runner_is_woken(
    bench: Bench, receiver: Receiver
) -> None:
    await subscribe(bench, hook(receiver))
    sends = make(bench)
    await bench.start(sends)
    await publish(bench, 1)
    sends.wake()
    with trio.fail_after(WITHIN_S):
        await receiver.until_posted(1)
    await eventually_async(
        lambda: sql_status(bench) == ["SENT"], what="the message is recorded as sent"
    )


def sql_status(bench: Bench) -> list[str]:
    dsn = bench.port._profile.dsn
    return [row["status"] for row in sql(dsn, "SELECT status FROM cortex.outbox")]
