"""Text typed in one go with the key that opens a line goes into that line, and never acts."""

from collections.abc import Callable

import pytest

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.pty_screen import PtyScreen
from tests.support.terminal.tui import FakeBackend, on_asyncio, pressed
from tests.support.terminal.tui_terminal import on_jobs, on_screen
from tests.tui.conftest import OpenSession

ACTING = "KyRyRPKyqq"
"""On a list these would ask, agree and leave."""


def in_strip(*words: str) -> Callable[[str], bool]:
    return lambda text: all(each in text.splitlines()[-2] for each in words)


def nothing_was_done(screen: PtyScreen, life: Life) -> None:
    """End the app in order, and look whether anything was changed."""
    screen.type("\x1b")  # the next key by itself: together they would be another one
    screen.until(lambda text: ACTING not in text and "esc no" not in text, what="no line")
    screen.type("q")
    assert screen.end() == 0
    statuses = life.sql("SELECT DISTINCT status::text FROM cortex.job")
    assert [row["status"] for row in statuses] == ["PENDING"]
    assert life.sql("SELECT 1 FROM cortex_worker.queue_pause WHERE paused_at IS NOT NULL") == []


def test_keys_typed_after_slash_go_into_the_filter(cortex: Cortex, life: Life) -> None:
    life.type()
    job = life.job()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.type(f"/{ACTING}")
        screen.until(lambda text: f"/ {ACTING}" in text, what="the line with all of it")
        nothing_was_done(screen, life)


def test_the_key_of_another_screen_may_come_before_it(cortex: Cortex, life: Life) -> None:
    life.type()
    life.job()
    with on_screen(cortex) as screen:
        screen.until(lambda text: "> pulse" in text, what="the first screen")
        screen.type(f"2/{ACTING}")
        screen.until(lambda text: f"/ {ACTING}" in text, what="the line with all of it")
        nothing_was_done(screen, life)


def test_keys_typed_after_colon_go_into_the_palette(cortex: Cortex, life: Life) -> None:
    life.type()
    job = life.job()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.type(f":{ACTING}")
        screen.until(lambda text: ACTING in text, what="the palette with all of it")
        nothing_was_done(screen, life)


def test_keys_typed_after_quit_are_ignored(cortex: Cortex) -> None:
    with on_jobs(cortex) as screen:
        screen.type("q:xy\r/?")
        assert screen.end() == 0
        assert "fault" not in screen.text


def test_keys_typed_after_a_question_go_into_its_reason(cortex: Cortex, life: Life) -> None:
    life.type()
    job = life.job()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.type("Pdeploy\ryyy")
        screen.until(in_strip("pause queue", '"deploy"  y yes'), what="the question")
        screen.type("\x1b")
        screen.until(in_strip("nothing was done"), what="the refusal")
        screen.type("Kyyy")
        screen.until(in_strip("cancel", "y yes"), what="the question")
        nothing_was_done(screen, life)


@pytest.mark.parametrize("key", ["R", "X"])
@on_asyncio
async def test_a_reason_that_is_typed_while_letters_are_counted_is_kept(
    cluster: FakeBackend, sit: OpenSession, key: str
) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        for each in f"{key}mended":
            seat.app.post_message(pressed(each))
        await seat.settle()
        assert "why: mended" in seat.lines[-2]
        await seat.press("enter", "y")
        assert [request.reason for request, _ in cluster.begun] == ["mended"]


@on_asyncio
async def test_a_mark_and_its_act_may_be_typed_in_one_go(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    cluster.add(2)
    async with sit() as seat:
        for each in ("space", "K", *"why", "enter", "y"):
            seat.app.post_message(pressed(each))
        await seat.settle()
        assert '"why"  y yes' in seat.lines[-2]
        assert cluster.begun == []
        await seat.press("y")
        assert [request.reason for request, _ in cluster.begun] == ["why"]


@on_asyncio
async def test_deletions_in_a_field_keep_their_order_among_typed_keys(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("slash")
        for each in ("a", "b", "backspace", "c", "left", "d", "ctrl+u", "e", "enter"):
            seat.app.post_message(pressed(each))
        await seat.settle()
        assert seat.lines[1].split("   ")[0] == " / ec"


@on_asyncio
async def test_arguments_are_edited_in_the_order_in_which_one_types(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.approvals.add(1)
    async with sit(first="approvals") as seat:
        await seat.pass_time(2)
        await seat.press("E")
        for each in ("x", "y", "backspace", "z", "left", "w", "ctrl+u", "v"):
            seat.app.post_message(pressed(each))
        await seat.settle()
        assert "vz{" in seat.text
