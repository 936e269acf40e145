"""`v`: every field of the row under the cursor, of each resource that a screen lists."""

from typing import Final

import pytest
from rich.cells import cell_len

from cortex.domain.safe import safe
from cortex.view.resources import every
from cortex.view.resources.jobs import JOB
from cortex.view.resources.pods import PODS
from cortex_tui.app import SCREENS
from cortex_tui.render.field_lines import field_lines
from tests.support.hostile import HOSTILE, treacherous
from tests.support.records.store_rows import a_pod_row
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.support.terminal.tui_scenes import MARKUP, WIDE_TEXT, Scene, typical
from tests.tui.conftest import OpenSession

SIZE: Final = (160, 150)
"""High enough for all fields at once."""
LISTED: Final = {
    "breakers": Scene(first="breakers"),
    "messages": Scene(first="messages"),
    "queues": Scene(first="pods", keys=("tab",)),
    "jobs": Scene(),
    "approvals": Scene(first="approvals"),
    "effects": Scene(first="effects"),
    "errors": Scene(first="dead"),
    "letters": Scene(first="dead", keys=("enter",)),
    "pods": Scene(first="pods"),
    "quotas": Scene(first="effects", keys=("tab",)),
    "schedules": Scene(first="schedules"),
}
"""How to come to a row of each resource that a screen lists."""
ALL: Final = {each.noun: each for each in every()}


def test_each_resource_with_a_screen_is_tried() -> None:
    assert ALL.keys() & SCREENS.keys() <= LISTED.keys() <= ALL.keys()


@pytest.mark.parametrize("noun", LISTED)
@on_asyncio
async def test_a_screen_shows_all_fields_of_a_row(
    cluster: FakeBackend, sit: OpenSession, noun: str
) -> None:
    typical(cluster)
    cluster.schedules.add("nightly")
    scene = LISTED[noun]
    async with sit(first=scene.first, size=SIZE) as seat:
        await scene.enter(seat)
        await seat.press("v")
        await seat.pass_time(1)
        names = [line.lstrip("▌ ").split()[0] for line in seat.lines if line.strip()]
        for field in ALL[noun].fields:
            assert field.name in names
            assert all(word in seat.text for word in field.doc.split())
        await seat.press("escape")
        assert seat.app.frame is not None
        assert seat.app.frame.NAME != "fields"


@on_asyncio
async def test_fields_follow_the_row_until_it_leaves_the_list(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    pod_id = cluster.pods.add(1, running=3)
    cluster.pods.add(2)
    async with sit(first="pods", size=(100, 60)) as seat:
        await seat.pass_time(2)
        await seat.press("v")
        assert "3/8" in seat.text
        cluster.pods.change(pod_id, running=7, now=cluster.pods.now)
        await seat.pass_time(4)
        assert "7/8" in seat.text
        del cluster.pods.rows[pod_id]
        await seat.pass_time(4)
        assert "not in the list any more" in seat.text
        assert "7/8" in seat.text
        assert "eu-2" not in seat.text


@on_asyncio
async def test_the_value_under_the_cursor_is_copied_exactly(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.pods.add(1, name=f"eu {HOSTILE}", rss_bytes=96_468_992)
    async with sit(first="pods", size=(60, 15)) as seat:
        await seat.pass_time(2)
        await seat.press("v", *"j" * 7, "c", "v")
        assert seat.app.clipboard == "96468992"
        await seat.press("c", "j")
        assert '"rss_bytes": 96468992' in seat.app.clipboard
        await seat.press("g", "c", "v")
        assert seat.app.clipboard.startswith("eu ")
        assert treacherous(seat.app.clipboard) == []


@on_asyncio
async def test_the_cursor_reaches_the_last_field_on_a_small_terminal(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.pods.add(1)
    async with sit(first="pods", size=(60, 15)) as seat:
        await seat.pass_time(2)
        await seat.press("v")
        assert "moved" not in seat.text
        await seat.press("G")
        assert "moved" in seat.text
        await seat.press("g", "ctrl+d")
        assert "▲" in seat.text


@on_asyncio
async def test_a_screen_without_rows_has_no_fields(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit(first="pods") as seat:
        await seat.press("v")
        assert "there is nothing here" in seat.text


@pytest.mark.parametrize("width", [2, 20, 58, 99, 100, 200])
@pytest.mark.parametrize("text", [HOSTILE, WIDE_TEXT, MARKUP, "x" * 300])
def test_lines_of_fields_keep_to_their_width_and_leave_nothing_out(text: str, width: int) -> None:
    row = a_pod_row(name=text, drain_reason=text, job_types=[text])
    page = field_lines(PODS, row, width)
    for line in page.lines:
        assert sum(cell_len(cell.text) for cell in line) <= max(width, 4)
        assert treacherous("".join(cell.text for cell in line)) == []
    first = page.lines[: page.starts[1]]
    shown = "".join(line[1].text for line in first if len(line) > 1)
    assert shown.replace(" ", "").startswith(safe(text).replace(" ", ""))


@on_asyncio
async def test_the_page_of_a_job_shows_everything_recorded_about_it(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job_id = cluster.add(1, payload={"order": 7}, tags=["night"])
    async with sit(size=SIZE) as seat:
        await seat.press("enter")
        await seat.pass_time(2)
        await seat.press("v")
        await seat.pass_time(1)
        names = [line.lstrip("▌ ").split()[0] for line in seat.lines if line.strip()]
        assert {field.name for field in JOB.fields} <= {*names}
        assert '{"order":7}' in seat.text
        del cluster.rows[job_id]
        await seat.pass_time(4)
        assert "not in the list any more" in seat.text
        assert '{"order":7}' in seat.text
