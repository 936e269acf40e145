"""Taking a decision back: within three seconds, as if it had never been made."""

import pytest

from cortex.domain.errors import UnavailableError
from tests.support.terminal.inbox_keys import enter, keys
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession

RECALL_S = 3.0


def strip(seat: Seat) -> str:
    return seat.lines[-2]


@on_asyncio
async def test_a_decision_waits_and_is_sent(inbox: FakeApprovals, sit: OpenSession) -> None:
    first = inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        assert inbox.asked.count("decide") == 0
        assert "approve …000001 refund …" in strip(seat)
        assert "u recalls ████████" in strip(seat)
        await seat.pass_time(1.5)
        assert "u recalls ████░░░░" in strip(seat)
        assert inbox.asked.count("decide") == 0
        await seat.pass_time(1.5)
        assert inbox.approved == [first]
        assert "✓ approved …000001 refund" in strip(seat)
        assert "u recalls" not in strip(seat)


@pytest.mark.parametrize("decide", [("a", "y"), ("d", "1")])
@on_asyncio
async def test_decision_can_be_recalled(
    inbox: FakeApprovals, sit: OpenSession, decide: tuple[str, ...]
) -> None:
    inbox.add(1)
    inbox.add(2)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, *decide)
        await seat.pass_time(1)
        assert "…000002  refund" in seat.text, "the next one came by itself"
        await seat.press("u")
        assert "recalled: " in strip(seat)
        await seat.pass_time(10)
        assert "…000001  refund" in seat.text, "it is in front again"
        assert inbox.asked.count("decide") == 0
        await seat.press("u")
        assert "there is nothing to recall" in strip(seat)
        await keys(seat, *decide)
        await seat.pass_time(RECALL_S)
        assert len(inbox.decisions) == 1


@on_asyncio
async def test_recall_hint_is_shown_beside_a_long_name(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1, tool="a_tool_with_a_name_of_sixty_characters_as_some_servers_have")
    async with sit(size=(80, 24), recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        assert "approve …000001 a_tool_with" in strip(seat)
        assert "u recalls ████████" in strip(seat)


@on_asyncio
async def test_decision_can_be_recalled_from_the_decided_tab(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    second = inbox.add(2)
    async with sit(recall_s=60.0) as seat:
        await enter(seat)
        await keys(seat, "n", "a", "y", "tab", "tab")
        await seat.pass_time(1)
        await seat.press("u")
        assert "recalled: " in strip(seat)
        await seat.pass_time(2)
        assert "…000002  refund" in seat.text, "it is in front again"
        await keys(seat, "a", "y", "a", "y")
        assert inbox.approved == [second]


@on_asyncio
async def test_sent_decision_cannot_be_recalled(inbox: FakeApprovals, sit: OpenSession) -> None:
    first = inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        await seat.pass_time(RECALL_S)
        await seat.press("u")
        assert "there is nothing to recall: what you decided was sent" in strip(seat)
        assert inbox.approved == [first]


@pytest.mark.parametrize("risk", ["HIGH", "CRITICAL"])
@on_asyncio
async def test_dangerous_decision_is_sent_at_once(
    inbox: FakeApprovals, sit: OpenSession, risk: str
) -> None:
    grave = inbox.add(0x7F3C, risk=risk, people=2 if risk == "CRITICAL" else 1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", *"7f3c")
        assert [each.approval_id for each in inbox.decisions] == [grave]
        assert "u recalls" not in seat.text


@on_asyncio
async def test_decision_close_to_its_expiry_is_sent_at_once(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    soon = inbox.add(1, expires_s=8.0)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        assert inbox.approved == [soon]


@on_asyncio
async def test_the_next_decision_sends_the_one_before(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    first, second = inbox.add(1), inbox.add(2)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        await seat.pass_time(0.3)
        await keys(seat, "a", "y")
        assert inbox.approved == [first]
        assert "approve …000002 refund …" in seat.text or "u recalls" in strip(seat)
        await seat.press("u")
        await seat.pass_time(10)
        assert inbox.approved == [first], "the second one was taken back"
        await keys(seat, "a", "y")
        await seat.pass_time(RECALL_S)
        assert inbox.approved == [first, second]


@on_asyncio
async def test_dangerous_decision_after_a_pending_one_keeps_both(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    light = inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        grave = inbox.add(0x7F3C, risk="HIGH")
        await seat.pass_time(1)
        await keys(seat, "n", "a", *"7f3c")
        await seat.pass_time(1)
        assert [each.approval_id for each in inbox.decisions] == [light, grave]


@on_asyncio
async def test_pending_decision_cannot_be_made_twice(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    only = inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y", "a")
        assert "you have just decided it: u recalls that" in strip(seat)
        await keys(seat, "d")
        await seat.pass_time(RECALL_S)
        assert inbox.approved == [only]


@pytest.mark.parametrize("key", ["2", "o", "question_mark"])
@on_asyncio
async def test_leaving_the_inbox_sends_the_decision(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession, key: str
) -> None:
    first = inbox.add(1)
    cluster.add(1001)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        await seat.press({"question_mark": "?"}.get(key, key))
        await seat.settle()
        assert inbox.approved == [first]


@on_asyncio
async def test_quitting_sends_the_decision(inbox: FakeApprovals, sit: OpenSession) -> None:
    first = inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        await seat.press("q")
        assert inbox.approved == [first]
        assert not seat.app.is_running


@on_asyncio
async def test_quitting_shows_that_a_decision_could_not_be_sent(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        inbox.error = UnavailableError("cannot reach the database")
        await seat.press("q")
        assert seat.app.is_running
        assert "✗ cannot reach the database" in strip(seat)
        await seat.press("q")
        assert not seat.app.is_running


@on_asyncio
async def test_decision_without_a_link_is_refused_at_once(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a")
        cluster.down()
        await seat.pass_time(1)
        await seat.press("y")
        assert "✗ the database does not answer" in strip(seat)
        assert "recalls" not in seat.text
        assert inbox.decisions == []


@on_asyncio
async def test_lost_link_drops_the_pending_decision(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        cluster.down()
        await seat.pass_time(RECALL_S + 1)
        assert "✗ the database does not answer" in strip(seat)
        cluster.up()
        await seat.pass_time(10)
        assert inbox.decisions == [], "nothing is done behind anybody's back later"
        await seat.press("@")
        assert "approvals approve" in seat.text
        assert "✗ the database does not" in seat.text


@on_asyncio
async def test_earlier_decision_by_another_person_wins(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    lost = inbox.add(1)
    inbox.add(2)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        inbox.end(lost, "DENIED")
        await seat.pass_time(RECALL_S)
        assert "already denied by li" in strip(seat)
        assert inbox.decisions == []


@on_asyncio
async def test_arguments_that_change_meanwhile_are_not_agreed_to(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    changed = inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        inbox.change(changed, arguments={"customer": "cus_88", "amount": 1240}, version=2)
        await seat.pass_time(RECALL_S)
        assert inbox.decisions == []
        assert [each.approval_id for each in inbox.refused] == [changed]


@on_asyncio
async def test_a_batch_is_held_as_one(inbox: FakeApprovals, sit: OpenSession) -> None:
    for number in (1, 2):
        inbox.add(number)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "space", "space", "b")
        await seat.pass_time(1)
        await keys(seat, "a", "y")
        assert inbox.decisions == []
        assert "u recalls" in strip(seat)
        await seat.press("u")
        await seat.pass_time(10)
        assert inbox.decisions == []


@on_asyncio
async def test_request_that_comes_to_the_front_needs_a_silence(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    inbox.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        await seat.pass_time(1)
        inbox.add(2)
        await seat.pass_time(1)
        await seat.pass_time(RECALL_S - 2)
        assert len(inbox.decisions) == 1
        assert "…000002  refund" in seat.text, "it came to the front by itself"
        await seat.press("a")
        assert "approve …000002" not in strip(seat), "nobody had seen it"


@on_asyncio
async def test_a_batch_that_is_asked_about_stays_when_the_decision_before_is_sent(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    for number in range(1, 5):
        inbox.add(number)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        await seat.press("space", "space")
        await keys(seat, "b")
        await seat.pass_time(0.5)
        await keys(seat, "a")
        assert "approve 2 times" in strip(seat)
        await seat.pass_time(RECALL_S)
        assert len(inbox.decisions) == 1
        assert "approve 2 times" in strip(seat)
        await keys(seat, "y")
        await seat.pass_time(RECALL_S)
        assert len(inbox.decisions) == 3
