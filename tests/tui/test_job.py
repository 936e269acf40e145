"""The screen of one job on a fake cluster: head, steps paged, panes, keys, the stream."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.answer_text import PollHint
from tests.support.hostile import HOSTILE, LINES, treacherous
from tests.support.records.job_rows import TRACE_ID
from tests.support.terminal.tui import FakeBackend, Seat, instant, on_asyncio
from tests.support.terminal.tui_job import BEGAN, a_step
from tests.tui.conftest import OpenSession

SIZES = [(80, 24), (160, 50)]


def running(cluster: FakeBackend, **fields: Any) -> UUID:
    known = {"status": "RUNNING", "attempt": 1, "started_at": BEGAN, "pod": "eu-2"}
    return cluster.add(1, **known | {"heartbeat_at": instant(cluster.clock)} | fields)


async def opened(seat: Seat) -> None:
    await seat.press("enter")
    await seat.pass_time(2)


@on_asyncio
async def test_head_shows_agent_state_pod_and_cost(cluster: FakeBackend, sit: OpenSession) -> None:
    limit = {"name": "agent:invoice-bot:usd:run", "unit": "usd", "limit_amount": 1, "spent": 0.08}
    running(cluster, budgets=[limit], checkpoint={"cost_usd": "0.08"})
    async with sit(size=(120, 30)) as seat:
        await opened(seat)
        for message in ("job …000001", "invoice-bot v14", "● run", "pod eu-2", "$0.08 of $1.00"):
            assert message in seat.lines[1]
        await seat.pass_time(100)
        assert "! heartbeat" in seat.lines[1]
        await seat.pass_time(220)
        assert "zombie" in seat.lines[1]


@on_asyncio
async def test_the_head_judges_a_heartbeat_by_the_settings_of_its_pod(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    running(cluster, silent_after_s=305.0, zombie_s=1000.0)
    async with sit(size=(120, 30)) as seat:
        await opened(seat)
        await seat.pass_time(250)
        assert "heartbeat 25" in seat.lines[1]
        assert "/1000s" in seat.lines[1]
        assert "!" not in seat.lines[1]


@on_asyncio
async def test_retry_shows_reason_and_time(cluster: FakeBackend, sit: OpenSession) -> None:
    due = instant(cluster.clock) + timedelta(seconds=44)
    fields = {"waiting_on": "llm:gpt", "breaker_state": "HALF_OPEN", "last_error_code": "429"}
    cluster.add(1, status="RETRY", retry_count=2, max_retries=5, next_retry_at=due, **fields)
    async with sit(size=(160, 30)) as seat:
        await opened(seat)
        assert "↻ retry 2/5" in seat.lines[1]
        for message in ("429", "retries in 00:4", f"{due:%H:%M:%SZ}", "breaker llm:gpt half_open"):
            assert message in seat.lines[2]


@on_asyncio
async def test_twenty_thousand_steps_load_the_newest_and_page_back(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    running(cluster, steps=[a_step(n, f"s{n}") for n in range(1, 20_001)])
    async with sit(size=(80, 24)) as seat:
        await opened(seat)
        assert "s20000" in seat.text
        assert "of 20,000" in seat.text
        assert "5:32:00" in seat.lines[3], "time counts from the job's start, not from this page"
        cluster.asked.clear()
        for _ in range(60):
            await seat.press("ctrl+u")
            await seat.pass_time(0.5)
        assert 1 <= cluster.asked.count("steps_before") <= 12
        await seat.press("g")
        await seat.pass_time(2)
        assert "s1 " in seat.text
        await seat.press("G")
        await seat.pass_time(2)
        assert "s20000" in seat.text


@on_asyncio
async def test_new_steps_appear_and_a_moved_cursor_stays(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    steps = [a_step(n, f"s{n}") for n in range(1, 4)]
    job = running(cluster, steps=steps)
    async with sit(size=(80, 24)) as seat:
        await opened(seat)
        await seat.press("k", "k")
        at = next(line for line in seat.lines if line.startswith("▌"))
        cluster.change(job, steps=[*steps, a_step(4, "s4")])
        await seat.pass_time(2)
        assert "s4" in seat.text
        assert next(line for line in seat.lines if line.startswith("▌"))[:12] == at[:12]


@on_asyncio
async def test_a_step_in_full_stands_beside_or_instead(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    running(cluster, steps=[a_step(1, "1 pay", "tool")])
    cluster.one.details["1 pay"] = {
        "effect_id": UUID(int=7),
        "effect_status": "COMPLETED",
        "calls_count": 2,
        "can_reconcile": True,
        "arguments": '{"to":"a@b.eu"}',
        "output": '{"receipt":"r-1"}',
        "output_bytes": 17,
        "input": '["pay",{"to":"a@b.eu"}]… [5,000 bytes in all]',
    }
    for size in SIZES:
        async with sit(size=size) as seat:
            await opened(seat)
            await seat.press("k")
            await seat.pass_time(1)
            if size[0] < 100:
                assert "a@b.eu" not in seat.text
                await seat.press("tab")
                await seat.pass_time(1)
            for message in ("a@b.eu", "applied", "2 times", "r-1", str(UUID(int=7))):
                assert message in seat.text
            await seat.press("i")
            assert '"receipt"' in seat.text
            if size[1] > 24:
                assert "5,000 bytes in all" in seat.text
            await seat.press("i", ">", ">")
            assert "◂ prompt ▸" in seat.text


@on_asyncio
async def test_an_answer_of_a_model_is_read_as_its_words_and_calls(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    running(cluster, steps=[a_step(1, "1 model", "model")])
    call = '{"type":"tool_use","name":"pay","id":"t1","input":{"to":"a@b.eu"}}'
    said = (
        f'{{"content":[{{"type":"text","text":"I shall pay."}},{call}],"stop_reason":"tool_use"}}'
    )
    cluster.one.details["1 model"] = {"output": said, "output_bytes": len(said)}
    async with sit(size=(140, 40)) as seat:
        await opened(seat)
        await seat.press("k")
        await seat.pass_time(1)
        for message in ("I shall pay.", "calls pay", "a@b.eu", "tool_use"):
            assert message in seat.text
        assert "content[0]" not in seat.text
        await seat.press("i")
        assert '"type": "text"' in seat.text
        await seat.press("i", ">")
        assert re.search(rf"trace +{TRACE_ID}", seat.text)


@pytest.mark.parametrize("payload", ["[" * 4_000 + "]" * 4_000, "7" * 5_000, "[" * 300 + "7" * 300])
@on_asyncio
async def test_a_payload_that_cannot_be_read_is_shown_as_text(
    cluster: FakeBackend, sit: OpenSession, payload: str
) -> None:
    running(cluster, steps=[a_step(1, "1 plan", "model")])
    cluster.one.details["1 plan"] = {"payload": payload}
    async with sit(size=(120, 40)) as seat:
        await opened(seat)
        await seat.press("k")
        await seat.pass_time(1)
        await seat.press(">", ">")
        assert "what the job was given" in seat.text
        assert payload[:40] in seat.text


@on_asyncio
async def test_model_text_is_streamed_and_bounded(cluster: FakeBackend, sit: OpenSession) -> None:
    job = running(cluster)
    async with sit(size=(80, 24)) as seat:
        await opened(seat)
        assert [ear.is_open for ear in cluster.one.ears] == [True]
        cluster.one.say(job, "Dear customer", key="1 model")
        await seat.settle()
        assert "Dear customer" in seat.text
        assert "stream turn 1 · model" in seat.text
        long = "word " * 100_000
        cluster.one.say(job, long, offset=13, key="1 model")
        cluster.one.say(job, "\nthe end", offset=13 + len(long), key="1 model")
        await seat.settle()
        assert "the end" in seat.text
        cluster.change(job, steps=[a_step(1, "1 model", "model")])
        cluster.one.send(PollHint(job))
        await seat.pass_time(1)
        assert "committed" in seat.text


@on_asyncio
async def test_token_rate_ignores_earlier_text(cluster: FakeBackend, sit: OpenSession) -> None:
    job = running(cluster)
    async with sit(size=(80, 24)) as seat:
        await opened(seat)
        cluster.one.say(job, "word " * 1_000, key="1 model")
        await seat.settle()
        assert "following" in seat.text
        assert "tok/s" not in seat.text
        cluster.one.say(job, "twelve chars", offset=5_000, key="1 model")
        await seat.settle()
        assert "≈ 1 tok/s" in seat.text


@on_asyncio
async def test_listening_stops_when_the_screen_is_left(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = running(cluster)
    async with sit(size=(80, 24)) as seat:
        await opened(seat)
        (ear,) = cluster.one.ears
        cluster.change(job, attempt=2, pod="eu-3")
        await seat.pass_time(2)
        assert ear.renewed_count == 1, "another pod has it now"
        await seat.press("?")
        await seat.settle()
        assert not ear.is_open
        await seat.press("escape")
        await seat.settle()
        assert ear.is_open
        cluster.change(job, status="COMPLETED", finished_at=instant(cluster.clock))
        await seat.pass_time(2)
        assert not ear.is_open


@on_asyncio
async def test_a_budget_is_raised_by_a_number_and_y(cluster: FakeBackend, sit: OpenSession) -> None:
    limit = {"name": "agent:bot:usd:run", "unit": "usd", "limit_amount": 1, "spent": 1}
    running(cluster, budgets=[limit])
    async with sit(size=(120, 24)) as seat:
        await opened(seat)
        await seat.press("B", "y", "0", ".", "5", "y")
        assert "more than $1.00" in seat.text
        assert cluster.one.raised == []
        await seat.press("backspace", "7", "ctrl+u", "2", "y")
        await seat.pass_time(1)
        assert cluster.one.raised == [("agent:bot:usd:run", Decimal(2), "ana")]
    async with sit(size=(120, 24), is_read_only=True) as seat:
        await opened(seat)
        await seat.press("B")
        assert "read-only" in seat.text


@on_asyncio
async def test_job_waiting_for_money_names_the_key_that_helps(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    name = "agent:bot:usd:run"
    cluster.add(1, status="WAITING_FOR_APPROVAL", waiting_on=f"budget:{name}")
    async with sit(size=(80, 24)) as seat:
        await opened(seat)
        assert f"budget {name} is spent · B raises it" in seat.lines[2]


@on_asyncio
async def test_viewing_keys_move_fold_and_zoom(cluster: FakeBackend, sit: OpenSession) -> None:
    steps = [
        a_step(1, "1 model", "model"),
        a_step(2, "1 fetch", "tool", is_error=True),
        a_step(3, "2 model", "model"),
    ]
    running(cluster, steps=steps)
    async with sit(size=(120, 30)) as seat:
        await opened(seat)
        await seat.press("n")
        assert "turn 1 · fetch" in next(line for line in seat.lines if line.startswith("▌"))
        await seat.press("h")
        assert "▸ turn 1 · model +1" in seat.text
        await seat.press("l")
        assert "▾ turn 1 · model" in seat.text
        for key in ("+", "+", "-", "0", "f", "f", "z", "tab", "z", "c", "a", "N"):
            await seat.press(key)
            assert len(seat.lines) == 30
        assert "nothing went wrong" not in seat.text


@pytest.mark.parametrize("size", [(60, 15), SIZES[-1]])
@on_asyncio
async def test_hostile_text_is_escaped_on_the_job_screen(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int]
) -> None:
    ended = {"attempt": 1, "outcome": "retry", "ended_at": BEGAN, "due_at": None}
    ended |= {"error": LINES, "error_class": HOSTILE, "error_code": HOSTILE, "pod": HOSTILE}
    job = running(cluster, steps=[a_step(1, LINES, "tool")], attempts=[ended], pod=HOSTILE)
    cluster.one.details[LINES] = {"output": f'"{"x" * 99}', "output_bytes": 9, "why": LINES}
    async with sit(size=size) as seat:
        await opened(seat)
        cluster.one.say(job, LINES, key=HOSTILE)
        for key in ("k", "tab", ">", ">", ">", ">", "tab", "z", "K", "escape", "i"):
            await seat.press(key)
            await seat.pass_time(0.5)
            assert treacherous(seat.text) == []
