"""The inbox shows why it asked nothing, what lost its mark, and what it leaves out."""

from uuid import UUID

import pytest

from cortex_tui.model.inbox import ROWS_MAX
from tests.support.terminal.inbox_keys import QUIET_S, enter, keys
from tests.support.terminal.tui import on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession


@pytest.mark.parametrize("name, asked", [("approve", "approve …000001"), ("deny", "deny …000001")])
@on_asyncio
async def test_command_chosen_by_name_asks_after_a_silence(
    inbox: FakeApprovals, sit: OpenSession, name: str, asked: str
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
        assert "a key was pressed before the question" in seat.lines[-2]
        await seat.pass_time(3)
        assert asked not in seat.lines[-2]


@on_asyncio
async def test_marks_do_not_leave_silently(inbox: FakeApprovals, sit: OpenSession) -> None:
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
async def test_truncated_decided_list_names_the_command_for_the_rest(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    for number in range(1, ROWS_MAX + 1):
        inbox.add(number)
        inbox.end(UUID(int=number), "DENIED")
    async with sit() as seat:
        await enter(seat)
        await seat.press("tab", "tab")
        await seat.pass_time(2)
        await seat.press("G")
        assert "older ones: cortex approvals ls --all" in seat.text


@pytest.mark.parametrize("risk", ["MED", "HIGH"])
@on_asyncio
async def test_question_shows_the_whole_call_and_stays_in_place(
    inbox: FakeApprovals, sit: OpenSession, risk: str
) -> None:
    inbox.add(1, risk=risk, tool="a_tool_with_a_name_that_is_rather_long")
    async with sit(size=(80, 24)) as seat:
        await enter(seat)
        await keys(seat, "a")
        early = seat.lines[-3:-1]
        assert "░" in early[1]
        assert "approve …000001 a_tool_with_a_name_that_is_rather_long(amount=12.4," in early[0]
        await seat.pass_time(QUIET_S)
        assert seat.lines[-3:-1] == [early[0], early[1].replace("░", " ")]


@on_asyncio
async def test_batch_shows_differences_without_digest_or_raw_view(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    for number in (1, 2):
        inbox.add(number, arguments={"customer": f"cus_{number}", "amount": 1})
    async with sit() as seat:
        await enter(seat)
        assert "sha256" in seat.text
        await keys(seat, "space", "space", "b")
        await seat.pass_time(1)
        assert "which differ in customer" in seat.text
        assert "sha256" not in seat.text
        assert "b leaves the batch" in seat.lines[-2]
        await keys(seat, "i")
        assert "a batch shows in what its requests differ" in seat.lines[-2]


FORGED = {"memo": '1", euros=20, customer="cus_1', "euros": 1, "z": " " * 10_000 + "."}


@on_asyncio
async def test_no_argument_passes_for_another_in_the_list(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, risk="MED", arguments=FORGED)
    inbox.add(2, risk="LOW", arguments={"amount": 123_456_789, "memo": "x" * 500, "to": "a@b.eu"})
    async with sit(size=(160, 30)) as seat:
        await enter(seat)
        first, second = (line.split("\u2502")[0] for line in seat.lines[3:5])
        assert "euros=1" in first
        assert "euros=20" not in first.replace(r"\", euros=20", "")
        assert "amount=123456789" in second


@on_asyncio
async def test_the_question_names_amounts_and_recipients(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, risk="LOW", arguments=FORGED)
    async with sit(size=(80, 24)) as seat:
        await enter(seat)
        await keys(seat, "a")
        asked = " ".join("".join(line[1:] for line in seat.lines[-4:-1]).split())
        assert r'refund(euros=1, memo="1\", euros=20, customer=\"cus_1"' in asked
        assert "⟦10,000 blanks⟧" in asked
