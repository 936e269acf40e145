"""Dead letters: by their error, counted before anybody agrees, retried or given up in batches."""

from datetime import timedelta

import pytest

from cortex.domain.errors import OutcomeUnknownError, UnavailableError
from cortex_tui.screens.dead import DeadScreen
from tests.support.tui import FakeBackend, Seat, instant, on_asyncio
from tests.tui.conftest import Sit

VERBS = {"R": "retry", "X": "discard"}
WHY = ("w", "h", "y", "enter")
HOSTILE = "\x1b]52;c;aGk=\x07\u202eboom\n[@click=app.quit]"


async def agree(seat: Seat, key: str, *keys: str) -> None:
    """Act on the cursor's row for a reason, and type this."""
    await seat.press(key, *WHY, *keys)


def pause(seat: Seat) -> None:
    """Do what esc does, while a batch is under way."""
    assert seat.app.frame is not None
    assert seat.app.frame.escape()


@on_asyncio
async def test_errors_are_grouped_and_their_letters_open(cluster: FakeBackend, sit: Sit) -> None:
    cluster.dead.add(1)
    cluster.dead.add(2)
    cluster.dead.add(3, "f2", error_code="not_found", agent="refund-bot", breaker="OPEN")
    async with sit(first="dead") as seat:
        assert "refund-bot" in seat.lines[2]
        assert "open" in seat.lines[2]
        assert seat.lines[3].lstrip(" ▌").startswith("2 ")
        await seat.press("j", "enter")
        await seat.pass_time(1)
        assert "> dead > overloaded: the model is overloaded" in seat.lines[0]
        assert "…000002" in seat.text
        assert "…000001" in seat.text
        assert "…000003" not in seat.text
        await seat.press("escape")
        assert "refund-bot" in seat.text


@on_asyncio
async def test_a_letter_opens_its_job(cluster: FakeBackend, sit: Sit) -> None:
    cluster.add(1, status="FAILED")
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        await seat.press("enter")
        await seat.pass_time(1)
        await seat.press("enter")
        await seat.pass_time(1)
        assert "> jobs > …000001" in seat.lines[0]


@on_asyncio
async def test_none_is_said(sit: Sit) -> None:
    async with sit(first="dead") as seat:
        assert "no dead letters" in seat.text
        await seat.press("R")
        assert "there is no dead letter here" in seat.text


@pytest.mark.parametrize("key, verb", VERBS.items())
@on_asyncio
async def test_a_group_is_settled_after_why_and_y(
    cluster: FakeBackend, sit: Sit, key: str, verb: str
) -> None:
    ids = [cluster.dead.add(number) for number in (1, 2)]
    cluster.dead.add(3, "f2")
    async with sit(first="dead") as seat:
        await seat.press("j", key)
        assert f"{verb} 2" in seat.lines[-2]
        await seat.press(*WHY)
        assert cluster.dead.settled == []
        await seat.press("y")
        assert cluster.dead.settled == [(verb, each, "ana", "why") for each in ids]
        assert "✓ " in seat.lines[-2]


@pytest.mark.parametrize("key, verb", VERBS.items())
@on_asyncio
async def test_one_letter_is_settled(cluster: FakeBackend, sit: Sit, key: str, verb: str) -> None:
    cluster.dead.add(1)
    second = cluster.dead.add(2)
    async with sit(first="dead") as seat:
        await seat.press("enter")
        await seat.pass_time(1)
        await agree(seat, key, "y")
        assert cluster.dead.settled == [(verb, second, "ana", "why")]


@pytest.mark.parametrize("screen", ["dead", "letters"])
@pytest.mark.parametrize("key", VERBS)
@pytest.mark.parametrize("other", ["Y", "enter", "space", "n", "K", "R", "X", "j", "q", "2", ":"])
@on_asyncio
async def test_no_other_key_agrees_or_reaches_the_screen(
    cluster: FakeBackend, sit: Sit, screen: str, key: str, other: str
) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        if screen == "letters":
            await seat.press("enter")
            await seat.pass_time(1)
        await agree(seat, key, other)
        assert cluster.dead.settled == []
        assert seat.app.is_running
        assert "esc no" in seat.lines[-2], "the question stays"
        await seat.press("escape")
        assert "nothing was done" in seat.lines[-2]
        await seat.press("y")
        assert cluster.dead.settled == []


@pytest.mark.parametrize("key", VERBS)
@on_asyncio
async def test_without_a_reason_nothing_is_agreed_to(
    cluster: FakeBackend, sit: Sit, key: str
) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        await seat.press(key, "enter", "y", "enter", "y")
        assert cluster.dead.settled == []


@pytest.mark.parametrize("key", VERBS)
@on_asyncio
async def test_read_only_says_why(cluster: FakeBackend, sit: Sit, key: str) -> None:
    cluster.dead.add(1)
    async with sit(first="dead", is_read_only=True) as seat:
        await seat.press(key, "y")
        assert "read-only: start cortex tui without --read-only" in seat.text
        assert cluster.dead.settled == []


@pytest.mark.parametrize("key", VERBS)
@on_asyncio
async def test_nothing_is_done_while_the_database_is_away(
    cluster: FakeBackend, sit: Sit, key: str
) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        cluster.down()
        await seat.pass_time(2)
        await seat.press(key, "y")
        assert "the database does not answer" in seat.text
        assert cluster.dead.settled == []


@on_asyncio
async def test_a_link_that_is_lost_while_it_asks_counts_too(cluster: FakeBackend, sit: Sit) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        await agree(seat, "R")
        cluster.down()
        await seat.pass_time(2)
        await seat.press("y")
        assert cluster.dead.settled == []


@on_asyncio
async def test_the_dry_run_says_what_no_retry_can_help(cluster: FakeBackend, sit: Sit) -> None:
    cluster.dead.add(1)
    cluster.dead.add(2, error_code="invalid_value", error_message="payload: not an object")
    async with sit(first="dead") as seat:
        await seat.press("R")
        assert "retry 1 from their last checkpoint, 1 not (undecodable)?" in seat.lines[-2]
        await seat.press(*WHY, "y")
        assert [job_id.int for _, job_id, _, _ in cluster.dead.settled] == [1]


@on_asyncio
async def test_a_group_that_cannot_be_retried_is_not_asked_about(
    cluster: FakeBackend, sit: Sit
) -> None:
    cluster.dead.add(2, error_code="invalid_value", error_message="payload: not an object")
    async with sit(first="dead") as seat:
        await seat.press("R")
        assert "no retry could help: 1 undecodable; X discards them" in seat.lines[-2]
        await seat.press("enter")
        await seat.pass_time(1)
        await seat.press("R")
        assert "would fail the same way: undecodable" in seat.lines[-2]


@pytest.mark.parametrize("key, verb", VERBS.items())
@on_asyncio
async def test_more_than_a_hundred_want_their_number_typed(
    cluster: FakeBackend, sit: Sit, key: str, verb: str
) -> None:
    for number in range(250):
        cluster.dead.add(number)
    async with sit(first="dead") as seat:
        await agree(seat, key, "y", "1", "2", "5")
        assert cluster.dead.settled == []
        await seat.press("0")
        assert cluster.dead.batches == [100, 100, 50]
        assert len(cluster.dead.settled) == 250
        assert f"{'retried' if verb == 'retry' else 'discarded'} 250" in seat.lines[-2]


@on_asyncio
async def test_esc_pauses_and_y_goes_on(cluster: FakeBackend, sit: Sit) -> None:
    for number in range(250):
        cluster.dead.add(number)
    async with sit(first="dead") as seat:
        cluster.dead.before = lambda: None if cluster.dead.batches else pause(seat)
        await agree(seat, "R", "2", "5", "0")
        assert cluster.dead.batches == [100]
        assert "paused: retried 100, 150 not begun; go on?" in seat.lines[-2]
        await seat.press("y")
        assert cluster.dead.batches == [100, 100, 50]
        assert "✓ retried 250" in seat.lines[-2]
        await seat.press("escape")
        assert "retried 250" in seat.lines[-2], "there is nothing to pause any more"


@on_asyncio
async def test_a_pause_may_be_the_end(cluster: FakeBackend, sit: Sit) -> None:
    for number in range(150):
        cluster.dead.add(number)
    async with sit(first="dead", size=(160, 40)) as seat:
        cluster.dead.before = lambda: pause(seat)
        await agree(seat, "X", "1", "5", "0")
        await seat.press("escape")
        assert "✗ discarded 100, 50 not begun" in seat.lines[-2]
        assert len(cluster.dead.settled) == 100
        await seat.press("@")
        assert "cortex dead discard --fingerprint f1 --limit 150 --reason why --yes" in seat.text


@on_asyncio
async def test_who_was_first_is_told(cluster: FakeBackend, sit: Sit) -> None:
    first = cluster.dead.add(1)
    cluster.dead.add(2)
    async with sit(first="dead") as seat:
        await agree(seat, "R")
        cluster.dead.rows[first]["state"] = "DISCARDED"
        await seat.press("y")
        assert "retried 1, 1 not, job" in seat.lines[-2]
        assert "was discarded by li" in seat.lines[-2]


@pytest.mark.parametrize(
    "error, told",
    [
        (
            UnavailableError("cannot reach the database"),
            "✗ retried 100, 50 not begun; then: cannot",
        ),
        (
            OutcomeUnknownError("the connection broke"),
            "? nobody knows whether it was done: retried",
        ),
    ],
)
@on_asyncio
async def test_what_was_done_before_it_broke_is_told(
    cluster: FakeBackend, sit: Sit, error: UnavailableError, told: str
) -> None:
    for number in range(150):
        cluster.dead.add(number)
    async with sit(first="dead") as seat:

        def broken() -> None:
            if cluster.dead.batches:
                raise error

        cluster.dead.before = broken
        await agree(seat, "R", "1", "5", "0")
        assert told in seat.lines[-2]
        assert len(cluster.dead.settled) == 100


@on_asyncio
async def test_new_errors_wait_until_they_are_asked_for(cluster: FakeBackend, sit: Sit) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        cluster.dead.add(2, "f2", agent="refund-bot", created_at=instant(cluster.clock))
        await seat.pass_time(4)
        assert "refund-bot" not in seat.text
        assert "▲ 1 new" in seat.lines[-2]
        await seat.press(".")
        await seat.pass_time(1)
        assert "refund-bot" in seat.lines[2]


@on_asyncio
async def test_what_was_asked_about_is_what_is_settled(cluster: FakeBackend, sit: Sit) -> None:
    old = cluster.dead.add(1)
    async with sit(first="dead") as seat:
        await seat.press("R")
        later = instant(cluster.clock) + timedelta(seconds=9)
        cluster.dead.add(2, "f2", created_at=later)
        cluster.dead.add(3, created_at=later)
        await seat.pass_time(4)
        await seat.press(*WHY, "y")
        assert [job_id for _, job_id, _, _ in cluster.dead.settled] == [old]


@on_asyncio
async def test_a_count_that_comes_when_nobody_looks_asks_nothing(
    cluster: FakeBackend, sit: Sit
) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        assert isinstance(seat.app.frame, DeadScreen)
        seat.app.frame.action_retry()  # the count is on its way
        await seat.app.action_show("jobs")
        await seat.settle()
        await seat.press("5")
        assert "esc no" not in seat.lines[-2]


@on_asyncio
async def test_hostile_text_stays_text(cluster: FakeBackend, sit: Sit) -> None:
    cluster.dead.add(1, error_message=HOSTILE, agent=HOSTILE, error_code=HOSTILE, step=HOSTILE)
    async with sit(first="dead") as seat:
        for keys in ((), ("R",), ("escape", "X"), ("escape", "enter"), ("X",)):
            await seat.press(*keys)
            await seat.pass_time(1)
            assert "\x1b" not in seat.text
            assert "\u202e" not in seat.text
        assert seat.app.is_running


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)])
@on_asyncio
async def test_the_columns_that_decide_are_there_at_every_size(
    cluster: FakeBackend, sit: Sit, size: tuple[int, int]
) -> None:
    cluster.dead.add(1, breaker="HALF_OPEN")
    async with sit(first="dead", size=size) as seat:
        for title in ("count", "agent", "error", "breaker", "first", "last"):
            assert title in seat.lines[1], title
        assert "half open" in seat.lines[2]
