"""Views of the list of jobs: orders, columns, faults, owners."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.terminal.tui import FakeBackend, ManualClock, Seat, instant, on_asyncio
from tests.tui.conftest import ALONE, OpenSession
from tests.tui.test_jobs import at_cursor, numbers


@on_asyncio
async def test_oldest_first_order_appends_new_jobs(cluster: FakeBackend, sit: OpenSession) -> None:
    for number in range(1, 4):
        cluster.add(number)
    async with sit() as seat:
        assert "3 jobs · newest first" in seat.lines[1]
        await seat.press("s")
        await seat.pass_time(1)
        assert numbers(seat) == [1, 2, 3]
        assert "3 jobs · oldest first" in seat.lines[1]
        cluster.add(4)
        await seat.pass_time(3)
        assert numbers(seat) == [1, 2, 3, 4]
        assert at_cursor(seat) == 1
        await seat.press("s", "s")
        await seat.pass_time(1)
        assert numbers(seat) == [4, 3, 2, 1]


@on_asyncio
async def test_long_list_pages_both_ways_in_each_order(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 3_001):
        cluster.add(number)
    async with sit(size=(120, 25)) as seat:
        await seat.press("s")
        await seat.pass_time(1)
        assert at_cursor(seat) == 1
        await seat.press("G")
        await seat.pass_time(1)
        assert at_cursor(seat) == 3_000
        for _ in range(25):
            await seat.press("ctrl+u")
            await seat.pass_time(0.5)
        assert at_cursor(seat) == 2_750
        shown = numbers(seat)
        assert shown == list(range(shown[0], shown[0] + len(shown)))
        await seat.press("g")
        await seat.pass_time(1)
        assert at_cursor(seat) == 1


def due(clock: ManualClock, in_s: float, **more: Any) -> dict[str, Any]:
    """Value of a job in the column RETRY."""
    at = instant(clock) + timedelta(seconds=in_s)
    return {"status": "RETRY", "next_retry_at": at, **more}


async def sort_by_due(seat: Seat) -> None:
    await seat.press("s", "s")
    await seat.pass_time(1)


@on_asyncio
async def test_next_due_jobs_come_first(
    cluster: FakeBackend, clock: ManualClock, sit: OpenSession
) -> None:
    for number, in_s in ((1, 90), (2, 30), (3, 60)):
        cluster.add(number, **due(clock, in_s))
    running = cluster.add(4)
    async with sit() as seat:
        await sort_by_due(seat)
        assert numbers(seat) == [2, 3, 1]
        assert "3 jobs · next due first" in seat.lines[1]
        cluster.change(running, **due(clock, 5))
        cluster.change(UUID(int=2), status="RUNNING", next_retry_at=None)
        await seat.pass_time(4)
        assert numbers(seat) == [2, 3, 1], "no row slides under the cursor"
        assert "● run" in seat.text
        assert "▲ 1 new" in seat.text
        await seat.press(".")
        await seat.pass_time(1)
        assert numbers(seat) == [4, 3, 1]


@on_asyncio
async def test_selection_of_all_is_limited_to_listed_jobs(
    cluster: FakeBackend, clock: ManualClock, sit: OpenSession
) -> None:
    """All that fit are, in this order, those in RETRY."""
    cluster.add(1, **due(clock, 30))
    cluster.add(2)
    async with sit() as seat:
        await sort_by_due(seat)
        await seat.press("*", "K", "enter", "y")
        assert [[job.int for job in each.job_ids] for each, _ in cluster.begun] == [[1]]
        await seat.press("@", "c", "c")
        assert "--filter status:RETRY --limit" in seat.app.clipboard


@on_asyncio
async def test_selection_of_all_is_empty_when_no_due_job_matches(
    cluster: FakeBackend, clock: ManualClock, sit: OpenSession
) -> None:
    cluster.add(1, **due(clock, 30))
    cluster.add(2)
    async with sit() as seat:
        await sort_by_due(seat)
        await seat.press("/")
        await seat.type("status:pend")
        await seat.press("enter")
        await seat.pass_time(1)
        assert "no job matches" in seat.text
        await seat.press("*", "K")
        assert cluster.begun == []
        assert "no job under the cursor" in seat.text


@on_asyncio
async def test_action_applies_to_the_job_under_the_cursor_in_any_order(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1)
    cluster.add(2)
    async with sit() as seat:
        await seat.press("s")
        await seat.pass_time(1)
        await seat.press("K", "y")
        assert cluster.acted == [("cancel", job, "ana")]


@on_asyncio
async def test_columns_are_chosen_and_stay_chosen(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, queue_name="mail", agent="sorter")
    async with sit(size=ALONE) as seat:
        titles = seat.lines[2].split()
        assert "pod" in titles
        assert "queue" not in titles
        await seat.press("w", "6", "8")
        assert "6-pod" in seat.lines[-2]
        assert "8+queue" in seat.lines[-2]
        assert "queue" in seat.lines[2].split()
        await seat.press("enter")
        assert "mail" in seat.lines[3]
        await seat.press("o")  # another list shows the same ones
        await seat.pass_time(1)
        assert "queue" in seat.lines[2].split()
        await seat.press("w", "8", "escape")
        assert "queue" in seat.lines[2].split(), "esc leaves them as they were"


@pytest.mark.parametrize("width", [60, 80, 120])
@on_asyncio
async def test_the_question_for_columns_fits(
    cluster: FakeBackend, sit: OpenSession, width: int
) -> None:
    cluster.add(1)
    async with sit(size=(width, 24)) as seat:
        await seat.press("w")
        assert len(seat.lines[-2]) <= width
        assert width < 80 or "9-tenant  enter" in seat.lines[-2]


@on_asyncio
async def test_n_moves_to_jobs_with_problems(cluster: FakeBackend, sit: OpenSession) -> None:
    for number in range(1, 7):
        cluster.add(number)
    cluster.add(2, status="FAILED")
    cluster.add(4, status="WAITING_FOR_APPROVAL", waiting_on="person:mend it")
    async with sit() as seat:
        found = []
        for key in "nnnN":
            await seat.press(key)
            found.append(at_cursor(seat))
        assert found == [4, 2, 4, 2]


@on_asyncio
async def test_n_reports_when_no_job_has_a_problem(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit() as seat:
        await seat.press("n")
        assert "nothing is wrong" in seat.text
        cluster.add(1)
        await seat.pass_time(2)
        await seat.press("N")
        assert "nothing is wrong" in seat.text


@on_asyncio
async def test_o_opens_the_jobs_of_the_agent(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, agent="big bot")
    cluster.add(2, agent=None)
    async with sit() as seat:
        await seat.press("o")
        assert "no agent's job" in seat.text
        await seat.press("j", "o")
        await seat.pass_time(1)
        assert seat.lines[1].startswith(' / agent:"big bot"')
        await seat.press("escape")
        await seat.pass_time(1)
        assert at_cursor(seat) == 1


@pytest.mark.parametrize("width", [80, 100, 120, 200])
@on_asyncio
async def test_the_footer_always_names_the_help(sit: OpenSession, width: int) -> None:
    async with sit(size=(width, 24)) as seat:
        assert seat.lines[-1].endswith(": command")
        assert "? all keys" in seat.lines[-1]
        assert "K cancel" in seat.lines[-1]
        assert "space mark" in seat.lines[-1]
