"""The frame of every screen: the top bar, the link, help, themes, sizes, and quitting."""

from datetime import timedelta

import pytest
from rich.segment import Segment

from cortex_tui.app import SCREENS
from cortex_tui.keys import KEYS
from cortex_tui.line_filter import clean
from cortex_tui.link import Link
from cortex_tui.render.bars import link_cell
from tests.support.hostile import HOSTILE, LINES, treacherous
from tests.support.terminal.tui import FakeBackend, Seat, instant, on_asyncio
from tests.tui.conftest import OpenSession


@on_asyncio
async def test_top_bar_counts_what_waits(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.heads = {
        "approvals": 3,
        "first_expiry": instant(cluster.clock) + timedelta(seconds=252),
        "breakers": 1,
        "dead": 12,
        "pods_ready": 4,
    }
    async with sit(place="prod-eu") as seat:
        top = seat.lines[0]
        assert top.startswith(" cortex prod-eu > jobs")
        assert "◆ 3 approvals · first expires in 04:1" in top
        assert "1 breaker OPEN" in top
        assert "dead 12" in top
        assert "pods 4/5" in top
        assert "LIVE" in top
        before = top.split("expires in ")[1][:5]
        await seat.pass_time(1)
        assert seat.lines[0].split("expires in ")[1][:5] < before


@on_asyncio
async def test_the_approvals_never_leave_a_narrow_top_bar(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    expiry = instant(cluster.clock) + timedelta(seconds=252)
    cluster.heads = {"approvals": 3, "first_expiry": expiry, "breakers": 1, "dead": 12}
    async with sit(size=(80, 24)) as seat:
        for width in (80, 60):
            await seat.pilot.resize_terminal(width, 24)
            await seat.settle()
            assert "◆ 3 in 04:1" in seat.lines[0]
            assert len(seat.lines[0]) <= width


@pytest.mark.parametrize("screen", [*SCREENS, "job", "help", "log"])
@on_asyncio
async def test_unconfined_pod_is_shown_on_every_screen(
    cluster: FakeBackend, sit: OpenSession, screen: str
) -> None:
    cluster.add(1)
    expiry = instant(cluster.clock) + timedelta(seconds=252)
    busy = {"approvals": 3, "first_expiry": expiry, "is_frozen": True, "breakers": 1, "dead": 12}
    cluster.heads = {"is_unsafe": True, **busy}
    keys = {"job": "enter", "help": "question_mark", "log": "at"}.get(screen, "")
    async with sit(first=screen if screen in SCREENS else "jobs") as seat:
        await seat.press(*filter(None, [keys]))
        for width in (60, 120):
            await seat.pilot.resize_terminal(width, 24)
            await seat.pass_time(1)
            assert " unsafe " in seat.lines[0], width
        cluster.heads["is_unsafe"] = False
        await seat.pass_time(3)
        assert "unsafe" not in seat.lines[0]


@on_asyncio
async def test_the_top_bar_counts_jobs_that_wait_for_code(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.heads = {"stranded": 2, "approvals": 1}
    async with sit() as seat:
        assert "2 jobs wait for code" in seat.lines[0]
        cluster.heads["stranded"] = 0
        await seat.pass_time(3)
        assert "for code" not in seat.lines[0]


@pytest.mark.parametrize("screen", ["jobs", "approvals", "breakers"])
@on_asyncio
async def test_narrow_screen_shows_its_name_and_complete_keys(
    cluster: FakeBackend, sit: OpenSession, screen: str
) -> None:
    expiry = instant(cluster.clock) + timedelta(days=12)
    counts = {"approvals": 900, "breakers": 12, "dead": 900, "pods_ready": 12, "pods_living": 13}
    cluster.heads = {"first_expiry": expiry, "is_frozen": True, **counts}
    async with sit(size=(60, 24), place="prod-eu", first=screen) as seat:
        for width in (60, 70, 80, 90):
            await seat.pilot.resize_terminal(width, 24)
            await seat.settle()
            top, bottom = seat.lines[0], seat.lines[-1]
            for output in (screen, "◆ 900 in 11d 23:5", "FROZEN", "LIVE"):
                assert output in top, width
            assert "? all keys" in bottom
            assert len(bottom) <= width
            assert bottom.endswith(tuple(key.label for key in KEYS if key.in_footer))


@on_asyncio
async def test_lost_link_is_shown_stale_and_recovers(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1)
    async with sit() as seat:
        cluster.down()
        await seat.pass_time(12)
        assert "STALE 1" in seat.lines[0]
        assert "…000001" in seat.text, "never an empty screen"
        assert "cannot reach the database" in seat.lines[-2], "it says why"
        await seat.press("K")
        assert "nothing was done" in seat.lines[-2]
        cluster.change(job, status="COMPLETED")
        cluster.up()
        await seat.pass_time(2)
        assert "LIVE" in seat.lines[0]
        assert "cannot reach" not in seat.text
        assert "✓ done" in seat.text


@pytest.mark.parametrize(
    "silent_s, output",
    [(4, "STALE 4s"), (999, "STALE 999s"), (1000, "STALE 16m"), (40 * 86_400, "STALE 40d")],
)
def test_stale_time_is_shown_in_full(silent_s: float, output: str) -> None:
    assert link_cell(Link(0.0), silent_s).text.strip() == output


@on_asyncio
async def test_idle_screen_goes_stale_without_the_database(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    async with sit() as seat:
        for key in ("question_mark", "at", "5"):
            await seat.press(key)
            await seat.pass_time(3)
            cluster.down()
            await seat.pass_time(2)
            for _ in range(12):
                await seat.pass_time(0.25)
                assert "STALE" in seat.lines[0]
            cluster.up()
            await seat.pass_time(2)
            assert "LIVE" in seat.lines[0]
            await seat.press("escape")


@on_asyncio
async def test_a_silent_database_is_tried_with_patience(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    async with sit() as seat:
        cluster.down()
        await seat.pass_time(10)
        cluster.asked.clear()
        await seat.pass_time(20)
        assert 15 <= len(cluster.asked) <= 21


@on_asyncio
async def test_unwatched_app_polls_less_often(cluster: FakeBackend, sit: OpenSession) -> None:
    async with sit() as seat:
        seat.app.refresher.poller.is_watched = False
        await seat.pass_time(2)
        cluster.asked.clear()
        await seat.pass_time(10)
        assert len(cluster.asked) <= 11


@on_asyncio
async def test_help_shows_the_keys_of_the_screen(sit: OpenSession) -> None:
    async with sit(size=(120, 50)) as seat:
        await seat.press("?")
        assert "Cancel the job" in seat.text
        assert "Filter the list" in seat.text
        await seat.press("escape")
        assert "> keys" not in seat.lines[0]


@on_asyncio
async def test_every_theme_shows_the_same_text(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        texts = set()
        for _ in range(3):
            await seat.press("t")
            texts.add(tuple(seat.lines))
        assert len(texts) == 1


def styled(seat: Seat) -> list[list[Segment]]:
    """Return what the screen shows, with its styles."""
    update = seat.app.screen._compositor.render_update(full=True)
    return [list(strip) for strip in getattr(update, "strips", [])]


@pytest.mark.parametrize("there, back", [("4", "2"), ("?", "escape")])
@on_asyncio
async def test_returning_to_a_screen_shows_the_changed_theme(
    cluster: FakeBackend, sit: OpenSession, there: str, back: str
) -> None:
    cluster.add(1)
    async with sit() as seat:
        before = styled(seat)
        await seat.press(there, "m", back)
        after = styled(seat)
        assert after != before
        seat.app.refresher.repaint()  # as each second
        await seat.settle()
        assert after == styled(seat)


@on_asyncio
async def test_the_cursor_stays_in_sight_of_a_smaller_terminal(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 61):
        cluster.add(number)
    async with sit(size=(119, 40)) as seat:
        await seat.press(*"j" * 30)
        assert "▌" in seat.text
        await seat.pilot.resize_terminal(119, 24)
        await seat.settle()
        (line,) = [line for line in seat.lines if "▌" in line]
        assert "…00001e" in line


@on_asyncio
async def test_seven_bits_are_enough(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, agent="日本-agent", status="RUNNING")
    async with sit(is_ascii=True) as seat:
        assert seat.text.isascii()
        assert "> run" in seat.text
        await seat.press("K")
        assert seat.text.isascii()
        assert "????-agent ~000001" in seat.text


@pytest.mark.parametrize("size", [(59, 24), (80, 14)])
@on_asyncio
async def test_window_below_the_minimum_shows_a_note(
    sit: OpenSession, size: tuple[int, int]
) -> None:
    async with sit(size=size) as seat:
        assert seat.lines[0] == f"{size[0]} by {size[1]} is too small: at least 60 by 15"
        assert "".join(seat.lines[1:]) == ""


@pytest.mark.parametrize("size", [(60, 15), (200, 60)])
@on_asyncio
async def test_hostile_text_is_escaped_on_every_screen(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int]
) -> None:
    texts = {"agent": HOSTILE, "type": HOSTILE, "pod": HOSTILE}
    cluster.add(1, status="FAILED", error_message=LINES, error_code=HOSTILE, **texts)
    cluster.add(2, status="RETRY", waiting_on=HOSTILE, **texts)
    cluster.add(3, status="CANCELLED", cancelled_by="[@click=app.quit]x[/]", **texts)
    async with sit(size=size, place=HOSTILE) as seat:
        for key in ("j", "K", "escape", "enter", "?", "escape", "escape", "@"):
            await seat.press(key)
            await seat.pass_time(0.5)
            assert treacherous(seat.text) == []
            assert len(seat.lines) == size[1]


@on_asyncio
async def test_palette_runs_commands_by_name(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press(":")
        await seat.type("all keys")
        await seat.until_found()
        await seat.press("enter", "enter", "enter")
        await seat.settle()
        assert "> keys" in seat.lines[0]


@on_asyncio
async def test_the_palette_has_a_frame_in_ascii_too(sit: OpenSession) -> None:
    async with sit(is_ascii=True) as seat:
        await seat.press(":")
        await seat.until_found()
        assert "Search for commands" in seat.text
        assert "??" not in seat.text


@on_asyncio
async def test_q_leaves(sit: OpenSession) -> None:
    async with sit() as seat:
        await seat.press("q")
        assert not seat.app.is_running
        assert seat.app.return_code == 0


@on_asyncio
async def test_the_bell_is_muted_for_an_hour_from_anywhere(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    async with sit() as seat:
        await seat.press("m")
        assert "bell off for an hour" in seat.text
        assert "muted" in seat.lines[0]
        await seat.press("4")
        assert "muted" in seat.lines[0]
        assert seat.app.context.bell.is_muted(cluster.clock.now() + 3_599)
        assert not seat.app.context.bell.is_muted(cluster.clock.now() + 3_600)
        await seat.press("m")
        assert "bell on" in seat.text
        assert "muted" not in seat.lines[0]


def test_about_is_not_minus_in_ascii() -> None:
    assert clean("≈ 18,000 jobs", is_ascii=True) == "~ 18,000 jobs"


def test_the_palette_has_its_signs_in_ascii() -> None:
    assert clean("▔▔▁", is_ascii=True) == "--_"
