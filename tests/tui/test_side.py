"""The panes beside a list: what the cursor is on in full, and the steps of its job."""

from uuid import UUID

import pytest

from cortex.domain.waiting import PERSON
from cortex.view.phrases import NOTHING
from tests.support.terminal.tui import FakeBackend, Seat, instant, on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.support.terminal.tui_job import a_step
from tests.tui.conftest import OpenSession

NARROW, WIDE, WIDER, WIDEST = (119, 24), (120, 24), (160, 24), (200, 24)


def beside(seat: Seat) -> str:
    """Return the text of the pane."""
    return "\n".join(line.partition("▏")[2] for line in seat.lines)


def a_retry(cluster: FakeBackend) -> None:
    now = instant(cluster.clock)
    cluster.add(
        2,
        status="RETRY",
        attempt=2,
        retry_count=1,
        next_retry_at=now.replace(year=now.year + 1),
        waiting_on="llm:gpt",
        last_error="429: slow down",
        checkpoint={"seq": 4, "key": "call_llm", "cost_usd": "0.21"},
    )


@on_asyncio
async def test_side_pane_shows_the_whole_job(cluster: FakeBackend, sit: OpenSession) -> None:
    a_retry(cluster)
    cluster.add(1, status="FAILED", error_message="404: no such page", error_code="not_found")
    async with sit(size=WIDE) as seat:
        for output in ("…000002", "↻ retry", "llm:gpt", "retries in", "$0.2100", "4 · call_llm"):
            assert output in beside(seat), output
        assert "429: slow down" in beside(seat)
        await seat.press("j")
        assert "…000001" in beside(seat)
        assert "429" not in beside(seat)
        assert "404: no such page" in beside(seat)
        assert "not_found" in beside(seat)


@on_asyncio
async def test_side_pane_shows_the_whole_reason_of_a_wait(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.reasons[cluster.add(1)] = f"queue default paused by ana: {'deploy ' * 20}· and more"
    doubt = "a person has to say whether pay was applied: peer · went away, and nobody can tell"
    cluster.add(2, status="WAITING_FOR_APPROVAL", waiting_on=f"{PERSON}x", last_error=doubt)
    async with sit(size=WIDE) as seat:
        await seat.pass_time(2)
        assert "nobody can tell" in in_a_row(seat)
        assert f"next {NOTHING}" in in_a_row(seat)
        await seat.press("j")
        assert f"why queue default paused by ana: {'deploy ' * 20}· and more" in in_a_row(seat)
        assert f"next {NOTHING}" in in_a_row(seat)


def in_a_row(seat: Seat) -> str:
    return " ".join(beside(seat).split())


@on_asyncio
async def test_moving_the_cursor_reads_nothing_for_the_side_pane(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 9):
        cluster.add(number)
    async with sit(size=WIDE) as seat:
        before = list(cluster.asked)
        for number in range(7, 0, -1):
            await seat.press("j")
            assert f"…00000{number}" in beside(seat)
        assert cluster.asked == before
        await seat.pass_time(5)
        assert "look" not in cluster.asked


@on_asyncio
async def test_side_pane_follows_the_polls(cluster: FakeBackend, sit: OpenSession) -> None:
    a_retry(cluster)
    async with sit(size=WIDE) as seat:
        (job,) = cluster.rows
        cluster.change(job, status="RUNNING", pod="eu-7", last_error="503: gone away")
        await seat.pass_time(2)
        for output in ("● run", "eu-7", "503: gone away"):
            assert output in beside(seat), output


@pytest.mark.parametrize("first", ["jobs", "dead"])
@on_asyncio
async def test_narrow_screen_has_no_side_pane(
    cluster: FakeBackend, sit: OpenSession, first: str
) -> None:
    cluster.add(1)
    cluster.dead.add(1)
    async with sit(first=first, size=NARROW) as seat:
        await seat.pass_time(5)
        assert "▏" not in seat.text
        assert "letters" not in cluster.asked
        await seat.pilot.resize_terminal(*WIDE)
        await seat.pass_time(1)
        narrow = min(line.index("▏") for line in seat.lines if "▏" in line)
        await seat.pilot.resize_terminal(*WIDEST)
        await seat.pass_time(1)
        wide = {line.index("▏") for line in seat.lines if "▏" in line}
        assert WIDEST[0] - min(wide) > WIDE[0] - narrow
        assert len(wide) == 1


@on_asyncio
async def test_side_pane_shows_an_error_with_its_newest_letter(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    dead = cluster.dead
    dead.add(1, "f1f1", error_message="no such page " * 9 + "at all", step="7 crawl")
    dead.add(2, "f2f2")
    async with sit(first="dead", size=(120, 40)) as seat:
        await seat.pass_time(3)
        await seat.press("j")
        for output in ("1 letter", " all\n", "7 · crawl"):
            assert output in beside(seat), output


@on_asyncio
async def test_letters_are_read_once_the_cursor_rests(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 6):
        cluster.dead.add(number, f"f{number}f{number}", step=f"{number} plan")
    cluster.dead.add(99, "f1f1", step="9 send", created_at=instant(cluster.clock))
    async with sit(first="dead", size=(120, 40)) as seat:
        await seat.pass_time(3)
        before = cluster.asked.count("letters")
        for _ in range(4):
            await seat.press("j")
        assert cluster.asked.count("letters") == before
        await seat.pass_time(4)
        assert cluster.asked.count("letters") == before + 1
        newest = beside(seat).partition("newest jobs")[2]
        assert "9 · send" in newest
        assert "1 · plan" in newest
        await seat.pass_time(6)
        assert cluster.asked.count("letters") == before + 1, "nothing has changed"


@on_asyncio
async def test_a_key_gives_its_room_to_the_columns(cluster: FakeBackend, sit: OpenSession) -> None:
    for number, agent in enumerate(("crm", "mail-bot"), 1):
        cluster.add(number, agent=agent, checkpoint={"seq": 4, "key": "call", "cost_usd": "0.21"})
    async with sit(size=WIDE) as seat:
        assert "cost" not in seat.lines[2].partition("▏")[0]
        assert "z shows " in seat.lines[1]
        assert "cost" in seat.lines[1]
        await seat.press("z")
        assert "z shows" not in seat.lines[1]
        assert "▏" not in seat.text
        for title in ("step", "att", "retry", "cost", "age"):
            assert title in seat.lines[2], title
        assert "crm       ○ pend" in seat.text, "the column is as wide as its longest agent"
        await seat.press("5")
        assert "▏" not in seat.text
        await seat.press("z")
        assert "▏" in seat.text
        await seat.press("2")
        assert "▏" in seat.text


@on_asyncio
async def test_columns_grow_with_their_content_and_never_shrink(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1, agent="crm")
    async with sit(size=NARROW) as seat:
        narrow = seat.lines[2].index("state")
        cluster.change(UUID(int=1), agent="a-longer-name")
        await seat.pass_time(2)
        wide = seat.lines[2].index("state")
        assert wide == narrow + len("a-longer-name") - len("agent")
        cluster.change(UUID(int=1), agent="x" * 99)
        await seat.pass_time(2)
        assert seat.lines[2].index("state") == wide + 16 - len("a-longer-name")
        cluster.change(UUID(int=1), agent="crm")
        await seat.pass_time(2)
        assert seat.lines[2].index("state") == wide + 16 - len("a-longer-name")


@on_asyncio
async def test_a_wider_screen_has_all_columns_beside_the_pane(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    a_retry(cluster)
    async with sit(size=WIDER) as seat:
        titles = seat.lines[2].partition("▏")[0]
        for title in ("step", "att", "retry", "cost", "age", "pod", "why / next"):
            assert title in titles, title
        assert "z shows" not in seat.lines[1]
        assert "▏" in seat.text


@on_asyncio
async def test_the_widest_screen_has_the_steps_as_a_third_column(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    steps = [a_step(1, "1 plan"), a_step(2, "2 fetch", is_error=True)]
    working = cluster.add(2, status="RUNNING", checkpoint={"seq": 2, "key": "2 fetch"}, steps=steps)
    cluster.add(1, steps=[a_step(1, "1 digest")])
    async with sit(size=(199, 24)) as seat:
        await seat.pass_time(5)
        assert "look" not in cluster.asked
        await seat.pilot.resize_terminal(*WIDEST)
        await seat.pass_time(1)
        for output in ("steps of …000002", "turn 1 · plan", "turn 2 · fetch · error"):
            assert output in beside(seat), output
        before = cluster.asked.count("look")
        await seat.press("j", "k", "j")
        assert "steps of …000001" in beside(seat)
        assert "turn 1 · plan" not in beside(seat)
        assert cluster.asked.count("look") == before, "the cursor moves"
        await seat.pass_time(2)
        assert "turn 1 · digest" in beside(seat)
        assert cluster.asked.count("look") == before + 1
        await seat.pass_time(5)
        assert cluster.asked.count("look") == before + 1, "the job stands as it did"
        await seat.press("k")
        row = cluster.rows[working]
        added = [*row["steps"], a_step(3, "3 send")]
        cluster.change(working, steps=added, checkpoint={"seq": 3, "key": "3 send"})
        await seat.pass_time(4)
        assert "turn 3 · send" in beside(seat)
        await seat.press("z")
        assert "▏" not in seat.text


@on_asyncio
async def test_following_steps_keeps_the_list_polled(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1, status="RUNNING", steps=[])
    async with sit(size=WIDEST) as seat:
        await seat.pass_time(2)
        cluster.asked.clear()
        for number in range(40):
            cluster.change(job, checkpoint={"seq": number + 1, "key": "x"})
            await seat.pass_time(0.25)
        assert 5 <= cluster.asked.count("look") <= 11
        assert cluster.asked.count("seen") > cluster.asked.count("look")


@pytest.mark.parametrize("width, lists", [(100, 52), (120, 72), (160, 84), (200, 84)])
@on_asyncio
async def test_the_inbox_leaves_a_page_its_room(
    inbox: FakeApprovals, sit: OpenSession, width: int, lists: int
) -> None:
    inbox.add(1)
    async with sit(size=(width, 24)) as seat:
        await seat.press("3")
        await seat.pass_time(1)
        assert {line.index("▏") for line in seat.lines if "▏" in line} == {lists}


@on_asyncio
async def test_similar_requests_are_distinguishable_at_120_columns(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    for number in range(1, 7):
        inbox.add(number, arguments={"customer": "cus_88", "amount": 12.5 * number})
    async with sit(size=WIDE) as seat:
        await seat.press("3")
        await seat.pass_time(2)
        for number in range(1, 7):
            assert f"amount={12.5 * number}" in seat.text, number


@on_asyncio
async def test_the_inbox_shows_the_steps_of_the_job_that_asks(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    job = cluster.add(1001, steps=[a_step(1, "turn 1 · look_up customer")])
    inbox.add(1, job_id=job)
    async with sit(size=WIDEST) as seat:
        await seat.press("3")
        await seat.pass_time(3)
        assert "turn 1 · look_up customer" in seat.text
        await seat.press("z")
        assert "turn 1 · look_up customer" not in seat.text
        await seat.pilot.resize_terminal(*WIDER)
        await seat.press("z")
        assert "needs 200 columns" in seat.lines[-2]
