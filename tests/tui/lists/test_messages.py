"""The screen of messages that were not sent: what failed, why, and changes by people."""

from uuid import UUID

import pytest

from cortex_tui.backend.messages import SHOWN_MAX
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.tui.conftest import OpenSession


def seed(cluster: FakeBackend) -> None:
    """Two that failed, one to two subscriptions, and two that wait."""
    messages = cluster.messages
    messages.add(1, last_error="old", payload={"order": "o-old"})
    messages.add(2)
    messages.add(3, "PENDING", id=UUID(int=2), subscription="audit", is_parked=True)
    messages.add(4, "PROCESSING")


async def show(seat: Seat) -> None:
    await seat.press("9")
    await seat.pass_time(2)


@on_asyncio
async def test_failed_messages_come_first_with_their_reason(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    async with sit(size=(120, 40)) as seat:
        await show(seat)
        rows = [line for line in seat.lines if "order.paid" in line][:4]
        states = ["failed", "failed", "waits its turn", "processing"]
        assert [state in row for state, row in zip(states, rows, strict=True)] == [True] * 4
        assert "billing.example answered" in rows[0]
        assert "billing by webhook" in seat.text
        assert '"amount": 12.5' in seat.text
        assert "also to" in seat.text
        assert "audit" in seat.text
        await seat.press("j")
        await seat.pass_time(2)
        assert "o-old" in seat.text
        assert "12.5" not in seat.text


@pytest.mark.parametrize(
    "keys, done",
    [
        (["R", *"back", "enter", "y"], ("retry", 2, "ana", "back")),
        (["j", "X", *"test", "enter", "y"], ("discard", 1, "ana", "test")),
        (["R", "enter", "y"], None),
        (["R", *"back", "enter", "escape", "y"], None),
    ],
)
@on_asyncio
async def test_a_change_is_made_after_its_reason_and_y(
    cluster: FakeBackend, sit: OpenSession, keys: list[str], done: tuple[str, ...] | None
) -> None:
    seed(cluster)
    async with sit() as seat:
        await show(seat)
        await seat.press(*keys)
        assert cluster.messages.acted == ([done] if done else [])
        if done:
            await seat.press("at")
            assert f"cortex outbox {done[0]}" in seat.text


@pytest.mark.parametrize(
    "down, key, text",
    [(2, "R", "only failed messages are retried"), (3, "X", "a pod is sending it now")],
)
@on_asyncio
async def test_impossible_message_change_is_refused_without_a_question(
    cluster: FakeBackend, sit: OpenSession, down: int, key: str, text: str
) -> None:
    seed(cluster)
    async with sit() as seat:
        await show(seat)
        await seat.press(*["j"] * down, key)
        assert text in seat.text


@on_asyncio
async def test_message_list_is_bounded_and_shows_a_note_when_empty(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    async with sit() as seat:
        await show(seat)
        assert "every message was sent" in seat.text
        for seq in range(SHOWN_MAX):
            cluster.messages.add(seq + 1)
        await seat.pass_time(2)
        await seat.press("G")
        assert "more of them: cortex outbox ls" in seat.text


@on_asyncio
async def test_pulse_counts_messages_and_enter_lists_them(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    pulse = cluster.pulse
    pulse.failed_messages, pulse.waiting_messages, pulse.oldest_message_s = 2, 1, 754.0
    async with sit(first="pulse") as seat:
        await seat.pass_time(3)
        assert "2 messages could not be sent" in seat.text
        assert "the oldest message has waited for 12:34" in seat.text
        assert "1 message to send" in seat.text
        await seat.press("G", "enter")
        await seat.pass_time(1)
        assert "messages" in seat.lines[0]
