"""The screen of schedules: when each fires, what became of its instants, changes by people."""

from typing import Any
from uuid import UUID

import pytest

from cortex.domain.job import JobStatus
from cortex.domain.schedules.schedule import Outcome, Overlap
from tests.support.hostile import PIECES, treacherous
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_schedules import TRIGGERED
from tests.tui.conftest import OpenSession


def seed(cluster: FakeBackend) -> None:
    schedules = cluster.schedules
    ran = {"last_outcome": Outcome.SUBMITTED, "last_instant": schedules.ago(125)}
    schedules.add(
        "digest", **ran, last_job_id=UUID(int=1), last_status=JobStatus.COMPLETED, backfill_s=21600
    )
    schedules.fired("digest", 125, Outcome.SUBMITTED)
    schedules.fired("digest", 3725, Outcome.SKIPPED)
    schedules.fired("digest", 7325, Outcome.FAILED)
    schedules.add(
        "paused",
        paused_at=schedules.ago(600),
        paused_by="li",
        pause_reason="deploy",
        overlap=Overlap.QUEUE,
    )
    schedules.add("unserved", is_served=False)
    schedules.add("zombie", is_declared=False, missed_count=7)


async def show(seat: Seat) -> None:
    await seat.press("7")
    await seat.pass_time(2)


@on_asyncio
async def test_schedules_show_next_time_and_problems(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    async with sit(size=(140, 30)) as seat:
        await show(seat)
        names = list(cluster.schedules.rows)
        rows = {name: next(line for line in seat.lines[2:] if name in line) for name in names}
        assert "0 3 * * *" in rows["digest"]
        assert "in 12m 3" in rows["digest"]
        assert "2m ago completed" in rows["digest"]
        assert "● ok" in rows["digest"]
        assert "paused by li" in rows["paused"]
        assert "no living pod runs digest" in rows["unserved"]
        assert "no living pod's code declares it" in rows["zombie"]


@on_asyncio
async def test_schedule_under_the_cursor_shows_its_instants(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    async with sit(size=(100, 30)) as seat:
        await show(seat)
        assert "backfill 6h 00m" in seat.text
        assert "completed" in seat.text
        assert "skipped" in seat.text
        assert "no such agent" in seat.text
        await seat.press("j")
        await seat.pass_time(2)
        assert "runs one job after another" in seat.text
        assert "no such agent" not in seat.text
        await seat.press("G")
        await seat.pass_time(2)
        assert "7 missed" in seat.text


@pytest.mark.parametrize(
    "keys, done",
    [
        (["P", *"deploy", "enter", "y"], ("pause", "digest", "ana", "deploy")),
        (["j", "P", "enter", "y"], ("resume", "paused", "ana", "")),
        (["T", *"now", "enter", "y"], ("trigger", "digest", "ana", "now")),
        (["P", "enter", "y"], None),
        (["P", *"deploy", "enter", "Y"], None),
        (["P", *"deploy", "enter", "escape", "y"], None),
        (["T", *"now", "y"], None),
        (["T", "enter", "y"], None),
        (["p", *"deploy", "enter", "y"], None),
    ],
)
@on_asyncio
async def test_a_change_is_made_after_its_reason_and_y(
    cluster: FakeBackend, sit: OpenSession, keys: list[str], done: tuple[str, ...] | None
) -> None:
    seed(cluster)
    async with sit() as seat:
        await show(seat)
        await seat.press(*keys)
        assert cluster.schedules.acted == ([done] if done else [])
        if done and done[0] == "trigger":
            assert f"submitted {TRIGGERED}" in seat.text


@on_asyncio
async def test_enter_opens_the_job_of_the_last_instant(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    seed(cluster)
    cluster.add(1, status="COMPLETED")
    async with sit() as seat:
        await show(seat)
        await seat.press("j", "enter")
        assert "its last instant has no job" in seat.text
        await seat.press("k", "enter")
        await seat.pass_time(2)
        assert "job" in seat.lines[0]


@on_asyncio
async def test_empty_schedule_list_suggests_apply(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit() as seat:
        await show(seat)
        assert "no schedule exists: cortex schedules apply FILE" in seat.text


@on_asyncio
async def test_hostile_text_stays_text(cluster: FakeBackend, sit: OpenSession) -> None:
    for number, text in enumerate(PIECES.values()):
        fields: dict[str, Any] = {"paused_by": text, "pause_reason": text, "type": text}
        cluster.schedules.add(f"s{number:02}", paused_at=cluster.schedules.ago(5), **fields)
        cluster.schedules.fired(f"s{number:02}", 9, Outcome.FAILED, error=text)
    async with sit(size=(120, 40)) as seat:
        await show(seat)
        for _ in PIECES:
            await seat.pass_time(1)
            assert treacherous(seat.text) == []
            await seat.press("j")
