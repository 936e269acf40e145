"""Number and span of the attempts at a message: days if its receiver is outside."""

import pytest
import trio

from cortex.domain.messages.message import PAUSES_S, Message, MessageStatus
from cortex.durable.message_handlers import handler
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench
from tests.support.records.rows import move_clock
from tests.support.records.sending import (
    BUDGET,
    hook,
    make,
    make_alone,
    only,
    publish,
    rows,
    subscribe,
)
from tests.support.servers.webhook_receiver import Receiver, status


async def test_a_webhook_is_tried_for_days_with_the_same_id(
    bench: Bench, receiver: Receiver, database: str
) -> None:
    receiver.answer = lambda _: status(503, body="busy")
    await subscribe(bench, hook(receiver))
    await publish(bench, 1, 2, key="k")
    sends, passed_s = make_alone(bench), 0.0
    for nth, pause_s in enumerate(PAUSES_S, start=1):
        await sends.tick(BUDGET)
        row, behind = await rows(bench)
        assert (row.status, row.attempts, behind.attempts) == (MessageStatus.PENDING, nth, 0)
        wait_s = (row.available_at - row.now).total_seconds()
        assert pause_s - 1 < wait_s <= 1.1 * pause_s
        move_clock(database, passed_s + wait_s - 2)
        await sends.tick(BUDGET)
        passed_s += wait_s + 1
        move_clock(database, passed_s)
    assert passed_s > 3 * 86_400
    assert len(set(receiver.ids)) == 1
    assert len(receiver.ids) == len(PAUSES_S)
    await sends.tick(BUDGET)
    row, behind = await rows(bench)
    assert row.status is MessageStatus.FAILED
    assert behind.attempts == 1, "the next one of its key goes once it is given up"


async def test_a_receiver_that_was_away_for_hours_gets_all_in_order(
    bench: Bench, receiver: Receiver, database: str
) -> None:
    receiver.answer = lambda _: status(503)
    await subscribe(bench, hook(receiver))
    await publish(bench, *range(4), key="k")
    sends = make_alone(bench)
    for hour in (0.0, 0.1, 1.0, 2.5, 6.0):
        move_clock(database, 3600 * hour)
        await sends.tick(BUDGET)
        assert {each.status for each in await rows(bench)} == {MessageStatus.PENDING}
    receiver.posted.clear()
    receiver.answer = lambda _: status(200)
    move_clock(database, 3600 * 12.0)
    await sends.tick(BUDGET)
    assert [each.json["data"]["number"] for each in receiver.posted] == [0, 1, 2, 3]
    assert {each.status for each in await rows(bench)} == {MessageStatus.SENT}


async def test_a_subscription_has_attempts_and_a_time_out_of_its_own(
    bench: Bench, receiver: Receiver, database: str
) -> None:
    receiver.answer = lambda _: status(503)
    await subscribe(bench, hook(receiver, attempts=2, timeout_s=30))
    await publish(bench, 1)
    sends = make(bench)
    await sends.tick(BUDGET)
    assert (await only(bench)).status is MessageStatus.PENDING
    assert [each.sender.limit_s for each in sends._lanes] == [30]
    move_clock(database, 6)
    await sends.tick(BUDGET)
    assert (await only(bench)).status is MessageStatus.FAILED


async def test_a_message_with_a_fallback_is_tried_three_times_with_the_same_id(
    bench: Bench, receiver: Receiver, database: str
) -> None:
    receiver.answer = lambda _: status(503, body="busy")
    await subscribe(bench, {"name": "last", "topic": "other.*", "channel": "log"})
    await subscribe(bench, hook(receiver, fallback="last"))
    await publish(bench, 1)
    sends = make(bench)
    waits = []
    for nth in range(1, 4):
        await sends.tick(BUDGET)
        row = (await rows(bench))[0]
        waits.append((row.available_at - row.now).total_seconds())
        assert row.attempts == nth
        move_clock(database, 20.0 * nth)
    row = (await rows(bench))[0]
    assert row.status is MessageStatus.FAILED
    assert row.last_error == "127.0.0.1 answered with status 503: busy"
    assert 4 < waits[0] <= 5.5
    assert 9 < waits[1] <= 10.5
    assert len(receiver.ids) == 3
    assert len(set(receiver.ids)) == 1
    await sends.tick(BUDGET)
    assert len(receiver.ids) == 3


@pytest.mark.parametrize("code", [404, 401, 301])
async def test_answers_that_a_mistake_may_cause_are_tried_again(
    bench: Bench, receiver: Receiver, code: int
) -> None:
    receiver.answer = lambda _: status(code)
    await subscribe(bench, hook(receiver))
    await publish(bench, 1)
    await make(bench).tick(BUDGET)
    row = await only(bench)
    assert (row.status, row.attempts) == (MessageStatus.PENDING, 1)


@pytest.mark.parametrize("code", [410, 404, 400, 301])
async def test_failures_that_would_repeat_are_final(
    bench: Bench, receiver: Receiver, code: int
) -> None:
    receiver.answer = lambda _: status(code, "Location: http://169.254.169.254/latest?token=s3cret")
    await subscribe(bench, {"name": "last", "topic": "other.*", "channel": "log"})
    other_way = {} if code == 410 else {"fallback": "last"}
    await subscribe(bench, hook(receiver, **other_way))
    await publish(bench, 1)
    await make(bench).tick(BUDGET)
    row = (await rows(bench))[0]
    assert (row.status, row.attempts) == (MessageStatus.FAILED, 1)
    assert row.last_error == f"127.0.0.1 answered with status {code}" + (
        ": it points to http://169.254.169.254, and redirects are not followed"
        if code == 301
        else ""
    )
    assert len(receiver.posted) == 1, "a redirect is not followed"


async def test_a_retry_after_is_respected(bench: Bench, receiver: Receiver) -> None:
    receiver.answer = lambda _: status(429, "Retry-After: 60")
    await subscribe(bench, hook(receiver))
    await publish(bench, 1)
    await make(bench).tick(BUDGET)
    row = await only(bench)
    assert (row.available_at - row.now).total_seconds() > 55


async def test_a_stopping_pod_lets_deliveries_end(bench: Bench, receiver: Receiver) -> None:
    may_end = trio.Event()

    @handler("order.*")
    async def on_order(_: Message) -> None:
        await may_end.wait()

    sends = make(bench, on_order)
    await sends.tick(BUDGET)
    await publish(bench, 1)
    await bench.start(sends)
    await eventually_async(lambda: sends._leases, what="it sends")
    has_finished = trio.Event()

    async def finish() -> None:
        await sends.finish()
        has_finished.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(finish)
        await eventually_async(lambda: not sends._claims.is_open, what="it claims no more")
        await publish(bench, 2)
        sends.wake()
        assert not has_finished.is_set()
        may_end.set()
    first, second = await rows(bench)
    assert (first.status, second.status) == (MessageStatus.SENT, MessageStatus.PENDING)
