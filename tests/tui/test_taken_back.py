"""A question withdrawn while the operator types the answer: none of the keys is a command."""

from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from cortex_tui.app import CortexApp
from cortex_tui.link import STALE_AFTER_S
from tests.support.terminal.inbox_keys import enter, keys
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession

COMMANDS = (*"jkGnoibEadKRDXPq:/?12345@[]zA", "enter", "tab", "space", "ctrl+p", "ctrl+z")
"""Keys that do something on some screen."""
FIRST = UUID(int=1)
End = Callable[[Seat, FakeBackend], Awaitable[None]]


async def expires(seat: Seat, cluster: FakeBackend) -> None:
    await seat.pass_time(20)


async def is_decided(seat: Seat, cluster: FakeBackend) -> None:
    cluster.approvals.end(FIRST, "DENIED")


async def is_void(seat: Seat, cluster: FakeBackend) -> None:
    cluster.approvals.end(FIRST, "CANCELLED", by=None)
    cluster.approvals.change(FIRST, reason="its job was cancelled")


async def changes(seat: Seat, cluster: FakeBackend) -> None:
    cluster.approvals.change(FIRST, arguments={"customer": "cus_88", "amount": 9}, version=2)


async def has_no_room(seat: Seat, cluster: FakeBackend) -> None:
    await seat.pilot.resize_terminal(40, 10)
    await seat.settle()
    await seat.pilot.resize_terminal(100, 30)
    await seat.settle()


async def is_clicked_away(seat: Seat, cluster: FakeBackend) -> None:
    await seat.pilot.click("#list", offset=(4, 2))


ENDS: dict[str, tuple[End, str]] = {
    "expired": (expires, "expired 13:46:55Z: nothing was executed"),
    "decided": (is_decided, "already denied by li"),
    "void": (is_void, "void: its job was cancelled"),
    "changed": (changes, "the arguments were changed: look at them again"),
    "no room": (has_no_room, "not in sight any more: nothing was done"),
    "another in front": (is_clicked_away, "not in sight any more: nothing was done"),
}


def state(seat: Seat) -> tuple[object, ...]:
    app = seat.app
    return (app.current_mode, len(app.screen_stack), app.screen, app.focused, app.is_running)


@pytest.mark.parametrize("end", ENDS)
@on_asyncio
async def test_the_strip_stays_and_takes_the_keys_of_an_answer(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession, end: str
) -> None:
    inbox.add(1, risk="HIGH", expires_s=15.0)
    inbox.add(2, risk="LOW")
    happens, output = ENDS[end]
    async with sit(size=(100, 30)) as seat:
        await enter(seat)
        await keys(seat, "a")
        await keys(seat, "0", "0")
        assert "type 0001: 00__" in seat.text
        await happens(seat, cluster)
        await seat.pass_time(3)
        before = state(seat)
        assert output in seat.lines[-2]
        assert "esc continue" in seat.lines[-2]
        for key in ("0", "1", *COMMANDS, "y"):
            await seat.press(key)
            assert state(seat) == before, f"{key} is a command"
        assert output in seat.lines[-2]
        assert (inbox.decisions, inbox.refused) == ([], [])
        await seat.press("escape")
        assert "esc continue" not in seat.text
        await keys(seat, "?")
        assert state(seat) != before, "a key is a key again"


@pytest.mark.parametrize("key", ["a", "d"])
@on_asyncio
async def test_withdrawn_question_requires_a_silence_before_deciding(
    inbox: FakeApprovals, sit: OpenSession, key: str
) -> None:
    inbox.add(1, expires_s=6.0)
    inbox.add(2, risk="LOW")
    async with sit() as seat:
        await enter(seat)
        await keys(seat, key)
        await seat.pass_time(8)
        await seat.press("escape", "n", "a", "y", "d", "1")
        assert inbox.decisions == []
        assert "esc no" not in seat.text


async def _switch(app: CortexApp) -> None:
    await app.switch_mode("jobs")


async def _open(app: CortexApp) -> None:
    app.context.open("log")


@pytest.mark.parametrize("leave", [_switch, _open])
@on_asyncio
async def test_a_screen_that_changes_under_a_question_takes_its_keys_along(
    cluster: FakeBackend,
    inbox: FakeApprovals,
    sit: OpenSession,
    leave: Callable[[CortexApp], Awaitable[None]],
) -> None:
    cluster.add(1)
    inbox.add(1, risk="HIGH")
    async with sit(size=(100, 30)) as seat:
        await enter(seat)
        await keys(seat, "a")
        await keys(seat, "0")
        await leave(seat.app)
        before = None
        for key in ("0", "0", "1", "K", "y", "q", *COMMANDS):
            await seat.press(key)
            before = before or state(seat)
            assert state(seat) == before, f"{key} is a command"
        assert "approve …000001" in " ".join(seat.lines[-4:])
        assert "esc continue" in " ".join(seat.lines[-4:])
        await seat.press("escape")
        assert (inbox.decisions, cluster.acted) == ([], [])
        assert seat.app.context.asking is None


@on_asyncio
async def test_a_lost_link_leaves_the_question_where_it_is(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, risk="HIGH")
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        await keys(seat, "0", "0")
        cluster.down()
        await seat.pass_time(STALE_AFTER_S + 2)
        await keys(seat, "K", "0", "0", "0", "1")
        assert inbox.decisions == []
        assert "✗" in seat.lines[-2]
