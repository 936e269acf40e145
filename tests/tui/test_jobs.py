"""The list of jobs: moving, opening, filtering, what is new."""

import asyncio
import re
from datetime import timedelta
from uuid import UUID

import pytest

from cortex_tui.navigation import OPENED_MAX
from tests.support.terminal.tui import FakeBackend, Seat, instant, on_asyncio
from tests.support.terminal.tui_job import a_step
from tests.tui.conftest import ALONE, OpenSession


def numbers(seat: Seat) -> list[int]:
    """The jobs that are shown, by the end of their ids."""
    return [int(found[1], 16) for line in seat.lines if (found := re.match(r"..…(\w{6})", line))]


def at_cursor(seat: Seat) -> int:
    (line,) = [line for line in seat.lines if line.startswith("▌ …")]
    return int(line[3:9], 16)


@on_asyncio
async def test_jobs_are_listed_the_newest_first(cluster: FakeBackend, sit: OpenSession) -> None:
    for number in range(1, 4):
        cluster.add(number)
    async with sit() as seat:
        assert numbers(seat) == [3, 2, 1]
        assert at_cursor(seat) == 3
        assert "3 jobs" in seat.lines[1]


@on_asyncio
async def test_empty_job_list_suggests_submit(sit: OpenSession) -> None:
    async with sit() as seat:
        assert "no jobs yet; submit one: cortex jobs submit TYPE" in seat.text


@on_asyncio
async def test_the_first_job_of_an_empty_list_just_appears(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    async with sit() as seat:
        cluster.add(1)
        await seat.pass_time(2)
        assert numbers(seat) == [1]


@on_asyncio
async def test_the_cursor_moves_by_rows_halves_and_ends(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 101):
        cluster.add(number)
    async with sit(size=(120, 25)) as seat:  # 20 rows
        await seat.press("j", "j", "k")
        assert at_cursor(seat) == 99
        await seat.press("ctrl+d")
        assert at_cursor(seat) == 89
        await seat.press("ctrl+u", "ctrl+u")
        assert at_cursor(seat) == 100
        await seat.press("G")
        assert (at_cursor(seat), numbers(seat)[0]) == (1, 20)
        await seat.press("g")
        assert (at_cursor(seat), numbers(seat)[0]) == (100, 100)


@on_asyncio
async def test_the_end_of_a_long_list_is_one_page_away(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 3_001):
        cluster.add(number)
    async with sit(size=(120, 25)) as seat:
        cluster.asked.clear()
        await seat.press("G")
        await seat.pass_time(1)
        assert at_cursor(seat) == 1
        assert cluster.asked.count("page_up") == 1
        await seat.press("ctrl+u", "ctrl+u", "ctrl+u")
        assert at_cursor(seat) == 31
        await seat.press("g")
        await seat.pass_time(1)
        assert at_cursor(seat) == 3_000


@on_asyncio
async def test_further_pages_load_while_moving_down(cluster: FakeBackend, sit: OpenSession) -> None:
    for number in range(1, 601):
        cluster.add(number)
    async with sit(size=(120, 105)) as seat:  # 100 rows
        for _ in range(12):
            await seat.press("ctrl+d")
            await seat.pass_time(0.5)
        assert at_cursor(seat) == 1
        assert "600 jobs" in seat.lines[1]


@on_asyncio
async def test_new_jobs_are_counted_and_do_not_move_the_cursor(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 4):
        cluster.add(number)
    async with sit() as seat:
        await seat.press("j")
        for number in range(4, 8):
            cluster.add(number)
        await seat.pass_time(2)
        assert numbers(seat) == [3, 2, 1]
        assert at_cursor(seat) == 2
        assert "▲ 4 new   . shows" in seat.text
        await seat.press(".")
        await seat.pass_time(1)
        assert numbers(seat) == [7, 6, 5, 4, 3, 2, 1]
        assert at_cursor(seat) == 2
        assert "new   ." not in seat.text


@on_asyncio
async def test_changes_show_in_their_rows(cluster: FakeBackend, sit: OpenSession) -> None:
    first, second = cluster.add(1), cluster.add(2)
    async with sit(size=ALONE) as seat:
        cluster.change(first, status="RUNNING", attempt=1, pod="eu-1")
        cluster.change(second, status="FAILED", error_message="no such page")
        await seat.pass_time(2)
        rows = [line for line in seat.lines if "…0000" in line]
        assert "✗ fail" in rows[0]
        assert "no such page" in rows[0]
        assert "● run" in rows[1]
        assert "eu-1" in rows[1]


@on_asyncio
async def test_filter_takes_the_syntax_of_jobs_ls(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, status="FAILED")
    cluster.add(2)
    async with sit() as seat:
        await seat.press("/")
        await seat.type("status:fail")
        await seat.press("enter")
        await seat.pass_time(1)
        assert numbers(seat) == [1]
        assert seat.lines[1].startswith(" / status:fail")
        await seat.press("/", *["backspace"] * 20, "enter")
        await seat.pass_time(1)
        assert numbers(seat) == [2, 1]


@on_asyncio
async def test_a_job_that_no_longer_fits_stays_with_its_new_state(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1, status="RETRY")
    async with sit() as seat:
        await seat.press("/")
        await seat.type("status:retry")
        await seat.press("enter")
        await seat.pass_time(1)
        cluster.change(job, status="COMPLETED")
        await seat.pass_time(2)
        assert "✓ done" in seat.text


@on_asyncio
async def test_wrong_filter_shows_its_error_and_stays_open(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("/")
        await seat.type("state:x")
        await seat.press("enter")
        assert "unknown key 'state' in the filter" in seat.text
        assert "state:x" in seat.lines[1]
        assert numbers(seat) == [1]
        await seat.press("escape")
        await seat.pass_time()
        await seat.press("j")
        assert seat.lines[1].startswith(" /  ")


@on_asyncio
async def test_enter_opens_the_job_and_esc_returns(cluster: FakeBackend, sit: OpenSession) -> None:
    step = a_step(1, "plan", "model", took_s=3.2, cost_usd=0.21)
    cluster.add(1, steps=[step], status="RUNNING", pod="eu-1")
    cluster.add(2)
    async with sit() as seat:
        await seat.press("j", "enter")
        await seat.pass_time(1)
        assert "jobs > …000001" in seat.lines[0]
        assert "pod eu-1" in seat.text
        assert any("plan" in line and "3.2s" in line for line in seat.lines)
        await seat.press("escape")
        await seat.pass_time(1)
        assert at_cursor(seat) == 1


@on_asyncio
async def test_no_more_than_four_statements_a_second(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1)
    async with sit() as seat:
        await seat.pass_time(5)
        cluster.asked.clear()
        await seat.pass_time(10)
        assert len(cluster.asked) <= 22  # quiet: the head and the rows, each second
        cluster.asked.clear()
        for attempt in range(40):
            cluster.change(job, attempt=attempt)
            await seat.press("j")
            seat.app.context.wake()
            await seat.pass_time(0.25)
        assert 30 <= len(cluster.asked) <= 44


@pytest.mark.parametrize(
    "key, status",
    [
        *(("K", status) for status in ("COMPLETED", "FAILED", "CANCELLED")),
        *(("R", status) for status in ("COMPLETED", "CANCELLED")),
    ],
)
@on_asyncio
async def test_ended_job_is_refused_without_a_question(
    cluster: FakeBackend, sit: OpenSession, key: str, status: str
) -> None:
    cluster.add(1, status=status)
    async with sit() as seat:
        await seat.press(key)
        assert "has ended" in seat.lines[-2]
        await seat.press("y")
        assert cluster.acted == []


@pytest.mark.parametrize("is_open", [False, True])
@on_asyncio
async def test_retry_of_a_failed_job_asks_about_its_letter(
    cluster: FakeBackend, sit: OpenSession, is_open: bool
) -> None:
    job_id = cluster.add(1, status="FAILED", error_message="no such page")
    cluster.dead.add(1)
    async with sit(size=(200, 40)) as seat:
        if is_open:
            await seat.press("enter")
            await seat.pass_time(1)
        await seat.press("R")
        assert "a new job goes on from its last checkpoint" in seat.lines[-2]
        await seat.press("y", "y")
        assert cluster.dead.settled == []
        await seat.press(*"mended", "enter")
        await seat.pass_time(1)
        await seat.press("y")
        assert cluster.dead.settled == [("retry", job_id, "ana", "yymended")]
        assert "✓ retried as" in seat.lines[-2]
        await seat.press("@")
        output = f"cortex jobs retry {job_id} --reason yymended --yes --as ana"
        assert output in seat.text
        await seat.press("escape")
        await seat.press("R")
        assert "was retried" in seat.lines[-2], "only once"


@on_asyncio
async def test_marked_failed_jobs_are_retried_as_new_jobs(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    ids = [cluster.add(1, status="FAILED"), cluster.add(2)]
    async with sit(size=(200, 40)) as seat:
        await seat.press("space", "space", "R")
        assert "retry now 2 jobs (1 failed: each goes on in a new job" in seat.lines[-2]
        await seat.press("enter", "y")
        ((request, _),) = cluster.begun
        assert {*request.job_ids} == {*ids}


@on_asyncio
async def test_jobs_already_shown_are_not_opened_again(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("o")
        await seat.pass_time(1)
        depth = len(seat.app.screen_stack)
        await seat.press("o")
        await seat.pass_time(1)
        assert len(seat.app.screen_stack) == depth
        assert "the jobs of invoice-bot are shown already" in seat.lines[-2]


@on_asyncio
async def test_screens_do_not_pile_up_without_a_bound(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    cluster.add(2, agent="other-bot")
    async with sit() as seat:
        for number in range(OPENED_MAX + 1):
            cluster.change(UUID(int=2), agent=f"bot-{number}")
            await seat.pass_time(1)
            await seat.press("o")
            await seat.pass_time(1)
        assert len(seat.app.screen_stack) == OPENED_MAX + 1
        assert f"{OPENED_MAX} screens are open" in seat.lines[-2]


@on_asyncio
async def test_paused_queue_can_be_resumed(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, queue_name="mail")
    cluster.queues.add("mail", paused_at=cluster.queues.now, paused_by="li", reason="deploy")
    async with sit() as seat:
        await seat.press("P")
        assert "resume queue mail?" in seat.lines[-2]
        await seat.press("enter", "y")
        assert "✓ queue:mail: goes on" in seat.lines[-2]
        assert cluster.queues.rows["mail"].paused_at is None
        await seat.pass_time(1)
        await seat.press("P")
        assert "pause queue mail: all its jobs wait" in seat.lines[-2]


@on_asyncio
async def test_message_disappears_only_after_it_was_visible(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    cluster.add(2, status="COMPLETED")
    async with sit() as seat:
        await seat.press("K")
        assert "has ended" in seat.text
        await seat.press("j", "k")
        assert "has ended" in seat.text, "nobody has seen it yet"
        await seat.pass_time(1.5)
        await seat.press("j")
        assert "has ended" not in seat.text
        await seat.press("k", "R")
        await seat.pass_time(12)
        assert "has ended" not in seat.text
        await seat.press("j", "K", "y")
        assert "✓ cancelled" in seat.text
        await seat.pass_time(3)
        await seat.press("k")
        assert "✓ cancelled" in seat.text, "an outcome is seen for a while"
        await seat.pass_time(30)
        assert "✓ cancelled" in seat.text
        await seat.press("j")
        assert "✓ cancelled" not in seat.text


@on_asyncio
async def test_keys_pressed_before_the_first_page_are_remembered(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 400):
        cluster.add(number)
    async with sit(size=(80, 24)) as seat:
        cluster.page_gate = asyncio.Event()
        await seat.press("slash", *"status:pend", "enter")
        await seat.press("enter")
        assert "reading …" in seat.lines[-2], "enter opens nothing that was not seen"
        await seat.press("G")
        cluster.page_gate.set()
        await seat.pass_time(2)
        assert "▌ …000001" in seat.text, "G is remembered"


@on_asyncio
async def test_waiting_jobs_show_reasons_read_in_one_statement(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    paused = cluster.add(2)
    due = {"next_retry_at": instant(cluster.clock) + timedelta(seconds=41), "retry_count": 1}
    limited = cluster.add(1, status="RETRY", waiting_on="llm:m", **due)
    cluster.add(3, status="RETRY", waiting_on="sleep", **due)
    for number in range(4, 20):
        cluster.add(number)
    cluster.reasons = {
        paused: "queue mail paused by ana: deploy",
        limited: "429 from m: Too Many Requests",
    }
    async with sit(size=(240, 40)) as seat:
        await seat.pass_time(2)
        assert "queue mail paused by ana: deploy" in seat.text
        assert "· 429 from m: Too Many" in seat.text
        assert "retries in 00:3" in seat.text
        assert "wakes in 00:3" in seat.text
        cluster.asked.clear()
        await seat.pass_time(10)
        assert 2 <= cluster.asked.count("whys") <= 5, "one for all of them"
        assert "queue mail paused by ana: deploy" in seat.text
