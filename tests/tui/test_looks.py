"""What a look at the jobs brings along, how often there is one, and what is painted after it."""

import pytest

from cortex_tui.widgets.drawn import Drawn
from cortex_tui.widgets.virtual_table import VirtualTable
from tests.support.tui import FakeBackend, on_asyncio
from tests.tui.conftest import ALONE, Sit


@pytest.mark.parametrize("is_open", [False, True])
@on_asyncio
async def test_the_head_comes_along_with_the_jobs(
    cluster: FakeBackend, sit: Sit, is_open: bool
) -> None:
    cluster.add(1, status="RUNNING")
    async with sit() as seat:
        if is_open:
            await seat.press("enter")
        await seat.pass_time(3)
        cluster.asked.clear()
        cluster.heads["dead"] = 7
        await seat.pass_time(10)
        assert "head" not in cluster.asked, "a statement for it alone"
        assert "dead 7" in seat.lines[0]


@on_asyncio
async def test_where_it_does_not_come_along_it_is_asked_for(cluster: FakeBackend, sit: Sit) -> None:
    async with sit(first="pods") as seat:
        cluster.asked.clear()
        cluster.heads["dead"] = 7
        await seat.pass_time(10)
        assert 8 <= cluster.asked.count("head") <= 11
        assert "dead 7" in seat.lines[0]


@on_asyncio
async def test_while_jobs_change_each_look_is_at_them(cluster: FakeBackend, sit: Sit) -> None:
    job = cluster.add(1, status="RUNNING")
    async with sit(size=ALONE) as seat:
        await seat.pass_time(3)
        cluster.asked.clear()
        for attempt in range(40):
            cluster.change(job, attempt=attempt)
            await seat.pass_time(0.25)
        assert 36 <= cluster.asked.count("seen") <= 42
        await seat.pass_time(0.5)
        assert " 39 " in next(line for line in seat.lines if "…000001" in line)


@on_asyncio
async def test_new_jobs_are_counted_without_being_read(cluster: FakeBackend, sit: Sit) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.asked.clear()
        for number in range(2, 200):
            cluster.add(number)
        await seat.pass_time(1)
        assert "▲ 99+ new" in seat.text
        assert set(cluster.asked) == {"seen"}


@on_asyncio
async def test_only_lines_that_look_otherwise_are_painted(
    cluster: FakeBackend, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [cluster.add(number) for number in range(1, 11)]
    async with sit() as seat:
        await seat.pass_time(200)  # ages are in minutes
        painted: list[int] = []
        render = Drawn.render_line

        def noting(self: Drawn, y: int) -> object:
            if isinstance(self, VirtualTable):
                painted.append(y)
            return render(self, y)

        monkeypatch.setattr(Drawn, "render_line", noting)
        await seat.pass_time(5)
        assert painted == []
        cluster.change(jobs[7], status="CANCELLED", cancelled_by="ana")
        await seat.pass_time(1)
        assert painted == [3], "titles, and two jobs that are newer"
        assert "⊘ canc" in seat.lines[2 + 3]
        painted.clear()
        await seat.press("j")
        assert painted == [1, 2], "where the cursor was, and where it is"
        seat.app.action_next_theme()
        await seat.settle()
        assert set(painted) > set(range(11)), "all of them in other colours"
