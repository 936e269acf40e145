"""Signals in job code, in memory: the same journal as in a pod."""

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import attrs
import pytest

import cortex as library
from cortex.domain.errors import InvalidSignalError
from cortex.durable.context import Context
from cortex.durable.registry import job
from cortex.testing import Cortex
from cortex.testing.outcome import StuckError


@attrs.frozen
class Payment:
    amount: Decimal
    at: datetime


PAID = {"amount": "12.50", "at": "2026-01-02T03:04:05+00:00"}


@job
async def pays(ctx: Context) -> str:
    payment = await ctx.receive("payment", Payment)
    assert isinstance(payment, Payment)
    return f"{payment.amount} at {payment.at:%H:%M}"


@job
async def collects(ctx: Context, count: int) -> list[Any]:
    return [await ctx.receive("item") for _ in range(count)]


@job
async def gathers(ctx: Context) -> list[Any]:
    return await ctx.gather(*(ctx.receive(name) for name in ("one", "two")))


@job
async def impatient(ctx: Context, timeout: float) -> list[Any]:
    try:
        first = await ctx.receive("x", timeout=timeout)
    except library.TimedOutError as error:
        first = error.message
    return [first, await ctx.receive("x", timeout=timedelta(seconds=1), default="none")]


@job
async def picky(ctx: Context) -> list[Any]:
    try:
        return [await ctx.receive("payment", Payment)]
    except library.InvalidSignalError as error:
        return [error.payload, str((await ctx.receive("payment", Payment)).amount)]


def test_a_signal_comes_in_the_type_that_the_job_receives(cortex: Cortex) -> None:
    cortex.signal("payment", PAID)
    run = cortex.run_sync(pays)
    assert run.result == "12.50 at 03:04"
    assert run.steps == ["payment"]
    run.replays()


def test_signals_come_in_the_order_of_their_arrival(cortex: Cortex) -> None:
    cortex.signal("item", "late", after_s=3_600)
    for number in range(3):
        cortex.signal("item", number)
    run = cortex.run_sync(collects, count=4)
    assert run.result == [0, 1, 2, "late"]
    assert run.steps == ["item", "item#2", "item#3", "item#4"]
    assert run.attempts == 2, "it waited once, without a pod"
    run.replays()
    assert cortex.crash_everywhere_sync(collects, count=4) > 8


def test_jobs_receive_within_gather(cortex: Cortex) -> None:
    cortex.signal("two", "b", after_s=60)
    cortex.signal("one", "a", after_s=120)
    run = cortex.run_sync(gathers)
    assert run.result == ["a", "b"]
    assert run.attempts == 3
    run.replays()


@pytest.mark.parametrize(
    "after_s, result, steps",
    [
        (0, [1, "none"], ["x", "x#2", "x#2 until"]),
        (59, [1, "none"], ["x", "x until", "x#2", "x#2 until"]),
        (61, [None, 1], ["x", "x until", "x#2", "x#2 until"]),
        (65, [None, "none"], ["x", "x until", "x#2", "x#2 until"]),
    ],
)
def test_a_wait_ends_at_its_time_out_and_the_record_keeps_it(
    cortex: Cortex, after_s: int, result: list[Any], steps: list[str]
) -> None:
    cortex.signal("x", 1, after_s=after_s)
    run = cortex.run_sync(impatient, timeout=60.0)
    first, second = run.result
    if result[0] is None:
        result[0] = "signal 'x' did not come in time, until 2026-01-01T00:01:00+00:00"
    assert [first, second] == result
    assert run.steps == steps
    run.replays()


def test_a_killed_job_waits_for_the_rest_of_its_time(cortex: Cortex) -> None:
    cortex.signal("x", 1, after_s=61)
    assert cortex.crash_everywhere_sync(impatient, timeout=60.0) > 6


def test_nothing_that_is_received_blocks_what_follows(cortex: Cortex) -> None:
    cortex.signal("payment", {"amount": "much"})
    cortex.signal("payment", PAID)
    run = cortex.run_sync(picky)
    assert run.result == [{"amount": "much"}, "12.50"]
    run.replays()
    failed = cortex.run_sync(pays)
    assert isinstance(failed.error, InvalidSignalError)
    assert failed.attempts == 1, "it would be the same again"
    assert "signal 'payment'" in failed.error.message
    assert "in step 'payment', is no " in failed.error.message
    assert "much" not in failed.error.message, "what came may be secret"


def test_a_time_out_that_nobody_catches_fails_the_job_at_once(cortex: Cortex) -> None:
    @job
    async def waits(ctx: Context) -> None:
        await ctx.receive("x", timeout=5)

    run = cortex.run_sync(waits)
    assert isinstance(run.error, library.TimedOutError)
    assert run.attempts == 2, "no retry: it is on record"


def test_a_job_that_waits_for_nothing_is_stuck_in_a_test(cortex: Cortex) -> None:
    cortex.signal("payment", PAID, key="order-1")
    with pytest.raises(StuckError, match=r"call cortex\.signal\('payment', …\) before it runs"):
        cortex.run_sync(pays)


def test_a_job_receives_what_was_sent_to_a_key(cortex: Cortex) -> None:
    @job
    async def keyed(ctx: Context, number: int) -> Any:
        return await ctx.receive("paid", key=f"order-{number}")

    cortex.signal("paid", "others", key="order-1")
    cortex.signal("paid", "own", key="order-2")
    cortex.signal("paid", "job's")
    run = cortex.run_sync(keyed, number=2)
    assert run.result == "own"
    run.replays()


@pytest.mark.parametrize(
    "terms, message",
    [
        ({"name": 7}, "signal name 7 is not text of 1 to 100 printable characters"),
        ({"name": ""}, "signal name '' is not text of 1 to 100 printable characters"),
        ({"name": "x" * 101}, "signal name 'xxx"),
        ({"name": "a\nb"}, "signal name 'a\\nb' is not text of 1 to 100 printable characters"),
        ({"name": "a\ud800"}, "signal name 'a\\ud800' is not text of 1 to 100 printable"),
        ({"key": "k" * 501}, "signal key 'kkk"),
        ({"key": 5}, "signal key 5 is not text of 1 to 500 printable characters"),
        ({"timeout": -1}, "signal 'x': timeout -1 s is not from 0 to"),
        ({"timeout": float("nan")}, "signal 'x': timeout nan s is not from 0 to"),
        ({"timeout": timedelta(days=3_650_000)}, "signal 'x': timeout 3.1536e+11 s is not from 0"),
        ({"timeout": 10**400}, "signal 'x': timeout inf s is not from 0"),
        ({"timeout": "1h"}, "signal 'x': timeout is '1h', not seconds or a timedelta"),
        ({"default": 1}, "signal 'x' has a default and no timeout"),
        ({"type": Cortex}, "signal 'x' cannot be made from JSON: "),
    ],
)
def test_impossible_terms_are_refused_in_one_line(
    cortex: Cortex, terms: dict[str, Any], message: str
) -> None:
    @job
    async def asks(ctx: Context) -> None:
        await ctx.receive(**{"name": "x", **terms})

    run = cortex.run_sync(asks)
    assert isinstance(run.error, library.CortexError)
    assert run.error.message.startswith(message)
    assert "\n" not in run.error.message
    assert run.attempts == 1


@pytest.mark.parametrize(
    "sent, message",
    [
        ({"after_s": -1}, "signal 'x': after_s -1 s is not from 0 to"),
        ({"after_s": "1h"}, "signal 'x': after_s is '1h', not seconds"),
        ({"name": ""}, "signal name '' is not text"),
        ({"key": 5}, "signal key 5 is not text"),
        ({"payload": 1e22}, "signal 'x' has a number that does not fit 64 bits"),
        ({"payload": "x" * 262_144}, "signal 'x' is 262,146 bytes of JSON"),
    ],
)
def test_signals_of_tests_are_checked_as_in_a_pod(
    cortex: Cortex, sent: dict[str, Any], message: str
) -> None:
    with pytest.raises(library.CortexError, match=re.escape(message)):
        cortex.signal(**{"name": "x", **sent})
