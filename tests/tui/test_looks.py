"""Refreshes of the jobs: what one reads, how often one happens, and what is painted after it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from cortex.domain.job import JobStatus
from cortex.view.cells import Cell
from cortex_tui.render.job_rows import COLUMNS
from cortex_tui.render.table import Layout, cells_line
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets import virtual_table
from cortex_tui.widgets.virtual_table import VirtualTable
from tests.support.records.job_rows import a_listed_job
from tests.support.terminal.tui import FakeBackend, instant, on_asyncio
from tests.tui.conftest import ALONE, OpenSession


@pytest.mark.parametrize("is_open", [False, True])
@on_asyncio
async def test_head_is_read_together_with_jobs(
    cluster: FakeBackend, sit: OpenSession, is_open: bool
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
async def test_head_is_read_alone_on_other_screens(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit(first="pods") as seat:
        cluster.asked.clear()
        cluster.heads["dead"] = 7
        await seat.pass_time(10)
        assert 8 <= cluster.asked.count("head") <= 11
        assert "dead 7" in seat.lines[0]


@on_asyncio
async def test_changing_jobs_are_read_on_every_poll(cluster: FakeBackend, sit: OpenSession) -> None:
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
async def test_new_jobs_are_counted_without_being_read(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.asked.clear()
        for number in range(2, 200):
            cluster.add(number)
        await seat.pass_time(1)
        assert "▲ 99+ new" in seat.text
        assert set(cluster.asked) == {"seen"}


@on_asyncio
async def test_only_changed_lines_are_repainted(
    cluster: FakeBackend, sit: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [cluster.add(number) for number in range(1, 11)]
    async with sit() as seat:
        await seat.pass_time(200)  # ages are in minutes
        painted: list[int] = []
        refresh = Widget.refresh

        def noting(self: Widget, *regions: Region, **options: bool) -> Widget:
            if isinstance(self, VirtualTable):
                for region in regions or (self.size.region,):
                    painted.extend(region.line_range)
            return refresh(self, *regions, **options)

        monkeypatch.setattr(Widget, "refresh", noting)
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


@on_asyncio
async def test_line_is_laid_out_again_only_when_its_time_changes(
    cluster: FakeBackend, sit: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        cluster.add(number)
    laid_out: list[int] = []

    def noting(shown: Layout[Any], output: Sequence[Cell], **how: Any) -> Strip:
        laid_out.append(int(output[0].text.removeprefix("…"), 16))
        return cells_line(shown, output, **how)

    async with sit() as seat:
        await seat.pass_time(200)  # ages are in minutes
        monkeypatch.setattr(virtual_table, "cells_line", noting)
        await seat.pass_time(5)
        assert laid_out == []
        await seat.press("j")
        assert sorted(laid_out) == [4, 5], "where the cursor was, and where it is"
        laid_out.clear()
        await seat.pass_time(60)
        assert sorted(laid_out) == [1, 2, 3, 4, 5], "each age once"


@pytest.mark.parametrize("status", JobStatus)
def test_fixed_column_depends_only_on_its_row(cluster: FakeBackend, status: JobStatus) -> None:
    row = a_listed_job(cluster.rows[cluster.add(1, status=status)])
    now = instant(cluster.clock)
    for column in COLUMNS:
        later = column.cell(row, now + timedelta(days=40))
        assert not column.is_fixed or column.cell(row, now) == later


@pytest.mark.parametrize("screen", ["pulse", "pods"])
@on_asyncio
async def test_unchanged_data_is_redrawn_only_by_the_clock(
    cluster: FakeBackend, sit: OpenSession, monkeypatch: pytest.MonkeyPatch, screen: str
) -> None:
    async with sit(first=screen) as seat:
        await seat.pass_time(10)
        drawn: list[str] = []
        repaint = Frame.repaint

        def noting(self: Frame) -> None:
            drawn.append(self.NAME)
            repaint(self)

        monkeypatch.setattr(Frame, "repaint", noting)
        await seat.pass_time(20)
        assert 19 <= len(drawn) <= 26, "the clock, and the few looks that brought another time"
