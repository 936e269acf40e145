"""The pane beside a list: what the cursor is on, in full, with nothing that is read per key."""

from uuid import UUID

import pytest

from tests.support.tui import FakeBackend, Seat, instant, on_asyncio
from tests.tui.conftest import Sit

NARROW, WIDE, WIDEST = (119, 24), (120, 24), (160, 24)


def beside(seat: Seat) -> str:
    """Return what stands in the pane."""
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
async def test_a_job_is_told_in_full(cluster: FakeBackend, sit: Sit) -> None:
    a_retry(cluster)
    cluster.add(1, status="FAILED", error_message="404: no such page", error_code="not_found")
    async with sit(size=WIDE) as seat:
        for told in ("…000002", "↻ retry", "llm:gpt", "retries in", "$0.2100", "4 call_llm"):
            assert told in beside(seat), told
        assert "429: slow down" in beside(seat)
        await seat.press("j")
        assert "…000001" in beside(seat)
        assert "429" not in beside(seat)
        assert "404: no such page" in beside(seat)
        assert "not_found" in beside(seat)


@on_asyncio
async def test_no_key_reads_anything_for_it(cluster: FakeBackend, sit: Sit) -> None:
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
async def test_it_goes_along_with_the_looks(cluster: FakeBackend, sit: Sit) -> None:
    a_retry(cluster)
    async with sit(size=WIDE) as seat:
        (job,) = cluster.rows
        cluster.change(job, status="RUNNING", pod="eu-7", last_error="503: gone away")
        await seat.pass_time(2)
        for told in ("● run", "eu-7", "503: gone away"):
            assert told in beside(seat), told


@pytest.mark.parametrize("first", ["jobs", "dead"])
@on_asyncio
async def test_a_narrow_screen_has_none(cluster: FakeBackend, sit: Sit, first: str) -> None:
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
async def test_an_error_is_told_with_its_newest_letter_and_its_acts(
    cluster: FakeBackend, sit: Sit
) -> None:
    dead = cluster.dead
    dead.add(1, "f1", error_message="no such page " * 9 + "at all", step="7 crawl")
    dead.add(2, "f2")
    dead.add_act(which="--fingerprint f1 --limit 100", done_count=40)
    dead.add_act(which="--fingerprint f2 --limit 100", state="PAUSED", changed_by="li")
    async with sit(first="dead", size=(120, 40)) as seat:
        await seat.pass_time(3)
        assert "act 2" in beside(seat)
        assert "paused by li" in beside(seat)
        await seat.press("j")
        for told in ("1 letter", " all\n", "7 crawl", "act 1: retried 40 of 100"):
            assert told in beside(seat), told
        assert "act 2" not in beside(seat)


@on_asyncio
async def test_letters_are_read_once_the_cursor_rests(cluster: FakeBackend, sit: Sit) -> None:
    for number in range(1, 6):
        cluster.dead.add(number, f"f{number}", step=f"{number} plan")
    cluster.dead.add(99, "f1", step="9 send", created_at=instant(cluster.clock))
    async with sit(first="dead", size=(120, 40)) as seat:
        await seat.pass_time(3)
        before = cluster.asked.count("letters")
        for _ in range(4):
            await seat.press("j")
        assert cluster.asked.count("letters") == before
        await seat.pass_time(4)
        assert cluster.asked.count("letters") == before + 1
        newest = beside(seat).partition("newest jobs")[2]
        assert "9 send" in newest
        assert "1 plan" in newest
        await seat.pass_time(6)
        assert cluster.asked.count("letters") == before + 1, "nothing has changed"


@on_asyncio
async def test_a_key_gives_its_room_to_the_columns(cluster: FakeBackend, sit: Sit) -> None:
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
async def test_columns_grow_with_what_comes_and_never_shrink(
    cluster: FakeBackend, sit: Sit
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
