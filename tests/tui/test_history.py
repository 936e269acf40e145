"""`[` and `]`: back to the screens where one was, and forth again."""

from cortex_tui.model.history import VISITS_MAX, History, Place
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.tui.conftest import OpenSession


async def at(seat: Seat) -> str:
    await seat.pass_time(0.5)
    return seat.lines[0].split("   ")[0].split(" > ", 1)[1].strip()


@on_asyncio
async def test_back_and_forth_over_screens_and_jobs(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    cluster.add(2)
    async with sit() as seat:
        seen = [await at(seat)]
        for keys in (("enter",), ("escape",), ("j", "enter"), ("4",), ("6",)):
            await seat.press(*keys)
            seen.append(await at(seat))
        assert seen == [
            "jobs",
            "jobs > …000002",
            "jobs",
            "jobs > …000001",
            "pods",
            "breakers",
        ]
        back = []
        for _ in range(5):
            await seat.press("[")
            back.append(await at(seat))
        assert back == seen[-2::-1]
        await seat.press("[")
        assert "no earlier screen" in seat.text
        forth = []
        for _ in range(5):
            await seat.press("]")
            forth.append(await at(seat))
        assert forth == seen[1:]
        await seat.press("]")
        assert "no later screen" in seat.text


@on_asyncio
async def test_visiting_a_screen_discards_later_history(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("4", "6", "[")
        assert await at(seat) == "pods"
        await seat.press("1")
        await at(seat)
        await seat.press("]")
        assert "no later screen" in seat.text
        await seat.press("[", "[")
        assert await at(seat) == "jobs"


@on_asyncio
async def test_the_help_is_no_place_to_come_back_to(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("4", "?", "escape", "[")
        assert await at(seat) == "jobs"


@on_asyncio
async def test_a_job_that_was_closed_opens_again(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, steps=[])
    async with sit() as seat:
        await seat.press("enter", "escape", "4", "[", "[")
        assert await at(seat) == "jobs > …000001"
        await seat.press("escape")
        assert await at(seat) == "jobs"


def test_number_of_kept_visits_is_limited() -> None:
    history = History()
    for number in range(VISITS_MAX + 50):
        history.visit(Place(f"{number}"))
    back = 0
    while history.go(-1) is not None:
        back += 1
    assert back == VISITS_MAX - 1
