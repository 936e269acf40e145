"""An operator's own action ends with its own outcome, whenever polls see its result."""

import asyncio

import pytest

from cortex.domain.errors import OutcomeUnknownError, UnavailableError
from tests.support.terminal.inbox_keys import enter, keys
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession

LOOKS_S = 3.0
BAR = " ░█"
"""The quiet time of a request that comes to the front this late."""


async def decide_slowly(seat: Seat, inbox: FakeApprovals, *pressed: str) -> str:
    """Press keys; return the strip when polls saw the result before the reply came."""
    inbox.reply = asyncio.Event()
    await keys(seat, *pressed)
    await seat.pass_time(LOOKS_S)
    assert "already" not in seat.lines[-2], "nobody else decided"
    inbox.reply.set()
    await seat.settle()
    output = seat.lines[-2].rstrip(BAR)
    await seat.pass_time(LOOKS_S)
    assert seat.lines[-2] == output
    return output


@pytest.mark.parametrize("more", [0, 1], ids=["the last one", "another one follows"])
@pytest.mark.parametrize("pressed, output", [(("a", "y"), "✓ approved"), (("d", "1"), "✓ denied")])
@on_asyncio
async def test_own_decision_is_shown_as_own_when_a_poll_sees_it_first(
    inbox: FakeApprovals, sit: OpenSession, pressed: tuple[str, ...], output: str, more: int
) -> None:
    for number in range(1, 2 + more):
        inbox.add(number)
    async with sit() as seat:
        await enter(seat)
        assert f"{output} …000001 refund" in await decide_slowly(seat, inbox, *pressed)


@on_asyncio
async def test_own_batch_decision_is_shown_as_own(inbox: FakeApprovals, sit: OpenSession) -> None:
    for number in (1, 2):
        inbox.add(number)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "space", "space", "b")
        await seat.pass_time(1)
        assert "✓ approved 2 times refund" in await decide_slowly(seat, inbox, "a", "y")


@on_asyncio
async def test_own_edit_is_not_reported_as_a_foreign_change(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "E")
        area = seat.app.screen.query_one("_Area")
        area.load_text('{"customer": "cus_88", "amount": 9}')  # type: ignore[attr-defined]
        await keys(seat, "ctrl+s")
        await seat.pass_time()
        assert "✓ approved …000001 refund" in await decide_slowly(seat, inbox, "y")


@on_asyncio
async def test_refused_decision_keeps_its_reason(inbox: FakeApprovals, sit: OpenSession) -> None:
    lost = inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        await seat.pass_time(1)
        inbox.end(lost, "DENIED")
        inbox.reply = asyncio.Event()
        await seat.press("y")
        await seat.pass_time(LOOKS_S)
        inbox.reply.set()
        await seat.settle()
        assert "✗ already denied by li" in seat.lines[-2]
        await seat.pass_time(LOOKS_S)
        assert "✗ already denied by li" in seat.lines[-2]


@on_asyncio
async def test_later_decision_by_another_person_is_shown(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    critical = inbox.add(0x7F3C, risk="CRITICAL", people=2)
    async with sit() as seat:
        await enter(seat)
        output = await decide_slowly(seat, inbox, "a", *"7f3c")
        assert "✓ 1 of 2 agreed to" in output
        inbox.end(critical, "APPROVED")
        await seat.pass_time(LOOKS_S)
        assert "already approved by li" in seat.lines[-2]


@pytest.mark.parametrize(
    "error", [UnavailableError("it does not answer"), OutcomeUnknownError("the line broke")]
)
@on_asyncio
async def test_news_is_shown_after_a_failed_decision(
    inbox: FakeApprovals, sit: OpenSession, error: UnavailableError
) -> None:
    one = inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        inbox.error = error
        await keys(seat, "a", "y")
        assert error.message in seat.lines[-2]
        inbox.end(one, "APPROVED")
        await seat.pass_time(LOOKS_S)
        assert "already approved by li" in seat.lines[-2]


@on_asyncio
async def test_late_count_does_not_replace_an_outcome(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1, status="RETRY")
    cluster.queues.add(None)
    async with sit() as seat:
        cluster.gate = asyncio.Event()
        await seat.press("space", "K")
        assert "counting" in seat.lines[-2]
        await seat.press("P", *"try", "enter", "y")
        assert "✓" in seat.lines[-2]
        await seat.press("1")  # an operator who has left gets no question
        cluster.gate.set()
        await seat.settle()
        await seat.press("2")
        assert "✓" in seat.lines[-2]
