"""Events between a question and its answer, and between a text and the terminal."""

import re

import pytest
from rich.segment import Segment
from textual import events
from textual.color import Color

from cortex_tui.line_filter import SafeFilter
from tests.support.hostile import HOSTILE, PIECES, treacherous
from tests.support.terminal.inbox_keys import enter, keys
from tests.support.terminal.tui import FakeBackend, on_asyncio, pressed
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession

HOUR_S = 3_600.0


@pytest.mark.parametrize("pasted", ["y", "yyyy\n", "K", "Ky"])
@on_asyncio
async def test_a_paste_neither_asks_nor_agrees(
    cluster: FakeBackend, sit: OpenSession, pasted: str
) -> None:
    cluster.add(1)
    async with sit() as seat:
        seat.app.post_message(events.Paste(pasted))
        await seat.settle()
        assert "cancel invoice-bot …000001" not in seat.lines[-2]
        await seat.press("K")
        assert "cancel invoice-bot …000001" in seat.lines[-2]
        seat.app.post_message(events.Paste(pasted))
        await seat.settle()
        assert "cancel invoice-bot …000001" in seat.lines[-2]
        assert cluster.acted == []


@pytest.mark.parametrize("opening", ["a", "d"])
@on_asyncio
async def test_paste_never_decides(inbox: FakeApprovals, sit: OpenSession, opening: str) -> None:
    inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        seat.app.post_message(events.Paste("ay"))
        await keys(seat, opening)
        await seat.pass_time(1)
        seat.app.post_message(events.Paste("y" if opening == "a" else "not this one\r"))
        await seat.settle()
        await keys(seat, "enter")
        assert inbox.decisions == []


@pytest.mark.parametrize("output", ["focus", "resume", ""])
@on_asyncio
async def test_keys_typed_before_refocus_never_confirm(
    inbox: FakeApprovals, sit: OpenSession, output: str
) -> None:
    inbox.add(1)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        if output == "resume":  # from the shell
            await seat.pass_time(5)
            seat.app.app_resume_signal.publish(seat.app)
        else:
            seat.app.post_message(events.AppBlur())
            await seat.pass_time(5)
        if output == "focus":
            seat.app.post_message(events.AppFocus())
            await seat.settle()
        await seat.press("y")
        assert inbox.decisions == []
        assert "approve …000001" in seat.lines[-2]
        await keys(seat, "y")
        assert len(inbox.decisions) == 1


@on_asyncio
async def test_key_press_counts_as_watching(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit() as seat:
        seat.app.post_message(events.AppBlur())
        await seat.pass_time(3)
        await seat.press("j")
        before = len(cluster.asked)
        await seat.pass_time(3)
        assert len(cluster.asked) - before > 3, "at the pace of who looks"


@on_asyncio
async def test_a_question_does_not_wait_behind_another_screen(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("K")
        seat.app.context.open("log")
        await seat.settle()
        await seat.press("y", "escape", "y")
        assert "nothing was done" in seat.lines[-2]
        assert cluster.acted == []


@on_asyncio
async def test_hidden_question_is_not_asked(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit(size=(59, 14)) as seat:
        await seat.press("K", "y")
        await seat.pilot.resize_terminal(80, 24)
        await seat.settle()
        await seat.press("y")
        assert cluster.acted == []


@on_asyncio
async def test_keys_typed_after_a_palette_command_are_ignored(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press(":")
        await seat.type("mute")
        await seat.until_found()
        for key in ("enter", "2", "K", "y"):
            seat.app.post_message(pressed(key))
        await seat.settle()
        assert "bell off for an hour" in seat.lines[-2], "nor does it take the command back"
        assert cluster.acted == []


@on_asyncio
async def test_late_keys_typed_before_the_palette_closed_are_ignored(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press(":")
        await seat.type("mute")
        await seat.until_found()
        late = [pressed(key) for key in ("2", "K", "y")]
        await seat.press("enter")
        for event in late:
            seat.app.post_message(event)
        await seat.settle()
        assert "bell off for an hour" in seat.lines[-2]
        assert cluster.acted == []


@on_asyncio
async def test_no_row_moves_while_somebody_is_asked(inbox: FakeApprovals, sit: OpenSession) -> None:
    inbox.add(2)
    inbox.add(3)

    def risks() -> list[str]:
        return [found for line in seat.lines[3:7] for found in re.findall("CRIT|med ", line[:10])]

    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        before = risks()
        inbox.add(1, risk="CRITICAL", people=2, expires_s=60.0)
        await seat.pass_time(2)
        assert risks() == before
        await keys(seat, "escape")
        assert risks() == ["CRIT", *before], "it comes when nobody is asked"


@on_asyncio
async def test_a_click_on_another_row_takes_the_question_back(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    inbox.add(2)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "a")
        assert "approve …000001" in seat.lines[-2]
        assert await seat.pilot.click("#list", offset=(4, 2))
        await seat.pass_time(1)
        assert "…000002  refund" in seat.text
        assert "approve" not in seat.lines[-2]
        await keys(seat, "y")
        assert inbox.decisions == []


@on_asyncio
async def test_all_times_are_the_databases(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    cluster.ahead_s = HOUR_S
    async with sit() as seat:
        mine = cluster.clock.now() % (24 * HOUR_S)
        await seat.press("K", "y", "@")
        assert f"{int((mine + HOUR_S) // HOUR_S):02}:" in seat.text.split("what became of it")[1]


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("text", [*PIECES.values(), HOSTILE, "tea \U0001f375 for \u4e24"])
def test_output_filter_escapes_treacherous_text(text: str, *, is_ascii: bool) -> None:
    (passed,) = SafeFilter(is_ascii=is_ascii).apply([Segment(text)], Color(0, 0, 0))
    assert treacherous(passed.text) == []
    assert not is_ascii or passed.text.isascii()
