"""Acts on many dead letters: seen while pods work them off, paused, ended, and what they left."""

from datetime import timedelta

import pytest

from tests.support.terminal.tui import FakeBackend, Seat, instant, on_asyncio
from tests.tui.conftest import OpenSession

HOSTILE = "\x1b]52;c;aGk=\x07\u202eboom\n[@click=app.quit]"


def act_line(seat: Seat) -> str:
    """The line below the errors."""
    return seat.lines[-3]


@on_asyncio
async def test_one_that_was_begun_is_seen_going_on(cluster: FakeBackend, sit: OpenSession) -> None:
    for number in range(40):
        cluster.dead.add(number)
    async with sit(first="dead") as seat:
        await seat.press("R", "w", "h", "y", "enter", "y")
        await seat.pass_time(2)
        assert "░░░░" in act_line(seat)
        assert "act 1: retried 0 of 40 · P pauses · 50/s" in act_line(seat)
        cluster.dead.all_acts[1] |= {"done_count": 20, "failed_count": 2}
        await seat.pass_time(2)
        assert "█" * 11 + "░" * 9 in act_line(seat)
        assert "retried 20 of 40, 2 not" in act_line(seat)
        cluster.dead.all_acts[1] |= {
            "done_count": 38,
            "state": "DONE",
            "ended_at": instant(cluster.clock),
        }
        await seat.pass_time(2)
        assert "✓ act 1: retried 38 of 40, 2 not" in act_line(seat)
        cluster.dead.all_acts[1]["ended_at"] = instant(cluster.clock) - timedelta(minutes=11)
        await seat.pass_time(2)
        assert "act 1" not in act_line(seat)


@on_asyncio
async def test_who_comes_back_finds_it_going_on(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.dead.add_act(done_count=30)
    async with sit(first="dead") as seat:
        await seat.pass_time(1)
        assert "act 1: retried 30 of 100" in act_line(seat)


@on_asyncio
async def test_the_line_and_its_key_are_about_one_that_goes_on(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.dead.add_act(done_count=30)
    cluster.dead.add_act(state="PAUSED", changed_by="li", change_reason="")
    async with sit(first="dead") as seat:
        await seat.pass_time(1)
        assert "act 1: retried 30 of 100 · 1 more" in act_line(seat)
        await seat.press("P", "enter", "y")
        assert cluster.dead.changed == [("paused", 1, "ana", "")]


@on_asyncio
async def test_without_a_pod_it_says_what_it_waits_for(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.dead.add_act(has_pod=False)
    async with sit(first="dead") as seat:
        await seat.pass_time(1)
        assert "waits for a pod: none is alive" in act_line(seat)


@on_asyncio
async def test_it_tells_that_somebody_holds_its_letter(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    act_id = cluster.dead.add_act(batch_max=1)
    cluster.dead.all_acts[act_id]["due_at"] += timedelta(seconds=5)
    async with sit(first="dead") as seat:
        await seat.pass_time(1)
        assert "waits for a locked letter" in act_line(seat)


@pytest.mark.parametrize("screen", ["dead", "acts"])
@on_asyncio
async def test_it_is_paused_and_goes_on(
    cluster: FakeBackend, sit: OpenSession, screen: str
) -> None:
    cluster.dead.add_act(done_count=30)
    async with sit(first="dead") as seat:
        await seat.pass_time(1)
        if screen == "acts":
            await seat.press("tab")
            await seat.pass_time(1)
        await seat.press("P")
        assert "pause act 1: retried 30 of 100?" in seat.lines[-2]
        await seat.press("enter", "y")
        assert cluster.dead.changed == [("paused", 1, "ana", "")]
        await seat.pass_time(2)
        assert "paused by ana" in seat.text
        await seat.press("P", "enter", "y")
        assert "✓ act 1 was resumed" in seat.lines[-2]
        await seat.press("@")
        assert "cortex dead acts pause 1 --as ana" in seat.text
        assert "cortex dead acts resume 1 --as ana" in seat.text


@on_asyncio
async def test_it_is_ended_from_the_list(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.dead.add_act(done_count=30)
    async with sit(first="dead") as seat:
        await seat.press("tab")
        await seat.pass_time(1)
        await seat.press("K")
        assert "end act 1: retried 30 of 100; 70 stay as they are?" in seat.lines[-2]
        await seat.press("n", "o", "w", "enter", "y")
        assert cluster.dead.changed == [("cancelled", 1, "ana", "now")]
        await seat.press("@")
        assert "cortex dead acts cancel 1 --reason now --yes --as ana" in seat.text
        await seat.press("escape", "tab")
        await seat.pass_time(2)
        assert 'ended by ana: "now"' in seat.text


@pytest.mark.parametrize("other", ["Y", "enter", "space", "n", "K", "P", "j", "q", "2", ":"])
@on_asyncio
async def test_no_other_key_agrees(cluster: FakeBackend, sit: OpenSession, other: str) -> None:
    cluster.dead.add_act()
    async with sit(first="dead") as seat:
        await seat.pass_time(1)
        await seat.press("P", "enter", other)
        assert cluster.dead.changed == []
        await seat.press("escape", "y")
        assert cluster.dead.changed == []


@pytest.mark.parametrize("key", ["P", "K"])
@on_asyncio
async def test_what_is_over_or_not_there_is_left_alone(
    cluster: FakeBackend, sit: OpenSession, key: str
) -> None:
    async with sit(first="dead") as seat:
        await seat.press("tab")
        await seat.pass_time(1)
        assert "nothing was begun for all letters of an error" in seat.text
        await seat.press(key)
        assert "no act is under way here" in seat.lines[-2]
        cluster.dead.add_act(state="DONE", done_count=100, ended_at=instant(cluster.clock))
        await seat.pass_time(1)
        await seat.press(key, "enter", "y")
        assert cluster.dead.changed == []


@pytest.mark.parametrize("key", ["P", "K"])
@on_asyncio
async def test_read_only_says_why(cluster: FakeBackend, sit: OpenSession, key: str) -> None:
    cluster.dead.add_act()
    async with sit(first="dead", is_read_only=True) as seat:
        await seat.press("tab")
        await seat.pass_time(1)
        await seat.press(key, "y")
        assert "read-only: start cortex tui without --read-only" in seat.text
        assert cluster.dead.changed == []


@on_asyncio
async def test_who_was_first_is_told(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.dead.add_act()
    async with sit(first="dead") as seat:
        await seat.pass_time(1)
        await seat.press("P", "enter")
        cluster.dead.all_acts[1] |= {"state": "DONE", "ended_at": instant(cluster.clock)}
        await seat.press("y")
        assert "✗ act 1 is done by li" in seat.lines[-2]


@on_asyncio
async def test_what_it_could_not_settle_opens_with_why(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(7, status="FAILED")
    act_id = cluster.dead.add_act(done_count=98, failed_count=2)
    cluster.dead.fail(act_id, 7)
    cluster.dead.fail(act_id, 9, state=None, agent=None)
    async with sit(first="dead") as seat:
        await seat.press("tab")
        await seat.pass_time(1)
        await seat.press("enter")
        await seat.pass_time(1)
        assert "> dead > acts > act 1" in seat.lines[0]
        assert "…000007" in seat.text
        assert "it was discarded by li" in seat.text
        await seat.press("enter")
        await seat.pass_time(1)
        assert "> jobs > …000007" in seat.lines[0]


@on_asyncio
async def test_tab_goes_there_and_back(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit(first="dead") as seat:
        await seat.press("tab")
        assert "> dead > acts" in seat.lines[0]
        await seat.press("tab")
        assert seat.lines[0].split(" > ")[-1].startswith("dead ")


@on_asyncio
async def test_the_looks_take_turns(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit(first="dead") as seat:
        cluster.asked.clear()
        await seat.pass_time(20)
        assert len(cluster.asked) <= 4 * 20
        assert cluster.asked.count("errors") <= 11
        assert cluster.asked.count("acts") >= 10


@on_asyncio
async def test_hostile_text_stays_text(cluster: FakeBackend, sit: OpenSession) -> None:
    old = instant(cluster.clock) - timedelta(hours=5)
    words = {"asked_by": HOSTILE, "reason": HOSTILE, "which": HOSTILE, "changed_by": HOSTILE}
    act_id = cluster.dead.add_act(**words)
    cluster.dead.add_act(**words, state="PAUSED", change_reason=HOSTILE, created_at=old)
    cluster.dead.fail(act_id, 1, error=HOSTILE, error_code=HOSTILE, agent=HOSTILE, state=None)
    async with sit(first="dead") as seat:
        for keys in ((), ("P",), ("escape", "tab"), ("K",), ("escape", "j", "enter")):
            await seat.press(*keys)
            await seat.pass_time(1)
            assert "\x1b" not in seat.text
            assert "\u202e" not in seat.text
        assert seat.app.is_running


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)])
@on_asyncio
async def test_the_columns_that_decide_are_there_at_every_size(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int]
) -> None:
    cluster.dead.add_act(done_count=3, failed_count=1)
    async with sit(first="dead", size=size) as seat:
        await seat.press("tab")
        await seat.pass_time(1)
        for title in ("act", "what", "state", "letters", "done", "not", "why", "age"):
            assert title in seat.lines[1], title
        assert "● run" in seat.lines[2]
