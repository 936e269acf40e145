"""The inbox tells why nothing was asked, what is not marked any more, and what it does not show."""

from uuid import UUID

import pytest

from cortex_tui.model.inbox import ROWS_MAX
from tests.support.tui import on_asyncio
from tests.support.tui_approvals import FakeApprovals
from tests.tui.conftest import Sit
from tests.tui.test_approvals import QUIET_S, enter, keys


@pytest.mark.parametrize("name, asked", [("approve", "approve …000001"), ("deny", "deny …000001")])
@on_asyncio
async def test_what_is_chosen_by_its_name_is_asked_when_keys_count(
    inbox: FakeApprovals, sit: Sit, name: str, asked: str
) -> None:
    inbox.add(1, risk="LOW")
    async with sit() as seat:
        await enter(seat)
        await seat.press(":")
        await seat.type(name)
        await seat.until_found()
        await seat.press("enter")
        await seat.settle()
        assert asked not in seat.lines[-2]
        await seat.pass_time(QUIET_S)
        assert asked in seat.lines[-2]
        assert inbox.decisions == []
        await seat.press("escape", ":")
        await seat.type(name)
        await seat.until_found()
        await seat.press("enter", "j")
        assert "a key came before it was asked" in seat.lines[-2]
        await seat.pass_time(3)
        assert asked not in seat.lines[-2]


@on_asyncio
async def test_marks_do_not_leave_silently(inbox: FakeApprovals, sit: Sit) -> None:
    inbox.add(1)
    inbox.add(2)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "space", "space")
        await seat.pass_time(1)
        assert "* 2 marked" in seat.text, seat.lines[-2]
        await seat.press("A")
        assert "2 marked before: not marked any more" in seat.lines[-2]


@on_asyncio
async def test_decisions_that_are_not_shown_are_told(inbox: FakeApprovals, sit: Sit) -> None:
    for number in range(1, ROWS_MAX + 1):
        inbox.add(number)
        inbox.end(UUID(int=number), "DENIED")
    async with sit() as seat:
        await enter(seat)
        await seat.press("tab", "tab")
        await seat.pass_time(2)
        await seat.press("G")
        assert "older ones: cortex approvals ls --all" in seat.text
