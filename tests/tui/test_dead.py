"""Dead letters: by their error, counted before anybody agrees, retried or given up."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from cortex.domain.argument_check import CodeArguments
from cortex.domain.bulk import RATE_DEFAULT, BulkRequest, BulkVerb
from cortex_tui.backend.dead import LOOKED_MAX
from cortex_tui.screens.dead import LETTERS_MAX, DeadScreen
from tests.support.terminal.tui import FakeBackend, Seat, instant, on_asyncio
from tests.tui.conftest import OpenSession

VERBS = {"R": "retry", "X": "discard"}
WHY = ("w", "h", "y", "enter")
HOSTILE = "\x1b]52;c;aGk=\x07\u202eboom\n[@click=app.quit]"


async def agree(seat: Seat, key: str, *keys: str) -> None:
    """Act on the cursor's row for a reason, and type this."""
    await seat.press(key, *WHY, *keys)


def nothing_was_done(cluster: FakeBackend) -> bool:
    return not cluster.dead.settled and not cluster.begun


def a_group(verb: str, limit: int, *, last: int) -> BulkRequest:
    """Request for a job on the letters of an error that were counted, the last ones made."""
    return BulkRequest(
        verb=BulkVerb(verb),
        reason="why",
        jobs="letter:unresolved fingerprint:f1f1",
        job_ids=tuple(UUID(int=number) for number in range(last - limit + 1, last + 1)),
        limit=limit,
        rate_per_s=RATE_DEFAULT,
    )


@on_asyncio
async def test_errors_are_grouped_and_their_letters_open(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.dead.add(1)
    cluster.dead.add(2)
    cluster.dead.add(3, "f2f2", error_code="not_found", agent="refund-bot", breaker="OPEN")
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
async def test_a_letter_opens_its_job(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, status="FAILED")
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        await seat.press("enter")
        await seat.pass_time(1)
        await seat.press("enter")
        await seat.pass_time(1)
        assert "> jobs > …000001" in seat.lines[0]


@on_asyncio
async def test_empty_dead_letter_list_shows_a_note(sit: OpenSession) -> None:
    async with sit(first="dead") as seat:
        assert "no dead letters" in seat.text
        await seat.press("R")
        assert "no dead letter under the cursor" in seat.text


@pytest.mark.parametrize("key, verb", VERBS.items())
@on_asyncio
async def test_a_group_is_settled_after_why_and_y(
    cluster: FakeBackend, sit: OpenSession, key: str, verb: str
) -> None:
    for number, error in ((1, "f1f1"), (2, "f1f1"), (3, "f2f2")):
        cluster.dead.add(number, error)
    async with sit(first="dead") as seat:
        await seat.press("j", key)
        assert f"{verb} 2" in seat.lines[-2]
        await seat.press(*WHY)
        assert nothing_was_done(cluster)
        await seat.press("y")
        assert cluster.begun == [(a_group(verb, 2, last=2), "ana")]
        assert "✓ job …0000b1 does it, also without you" in seat.lines[-2]
        await seat.press("@")
        assert f"cortex dead {verb} --fingerprint f1f1 --limit 2 --reason why --yes" in seat.text


@pytest.mark.parametrize("key, verb", VERBS.items())
@on_asyncio
async def test_one_letter_is_settled(
    cluster: FakeBackend, sit: OpenSession, key: str, verb: str
) -> None:
    cluster.dead.add(1)
    second = cluster.dead.add(2)
    async with sit(first="dead") as seat:
        await seat.press("enter")
        await seat.pass_time(1)
        await agree(seat, key, "y")
        assert cluster.dead.settled == [(verb, second, "ana", "why")]


@pytest.mark.parametrize("key", VERBS)
@on_asyncio
async def test_missing_reason_settles_no_letter(
    cluster: FakeBackend, sit: OpenSession, key: str
) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        await seat.press(key, "enter", "y", "enter", "y")
        assert nothing_was_done(cluster)


@on_asyncio
async def test_a_group_is_retried_for_every_cause(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.dead.add(2, error_code="invalid_value", error_message="payload: not an object")
    async with sit(first="dead") as seat:
        await seat.press("R")
        assert "retry 1 from their last checkpoint?" in seat.lines[-2]
        await seat.press(*WHY, "y")
        assert cluster.begun == [(a_group("retry", 1, last=2), "ana")]


@pytest.mark.parametrize("key, verb", VERBS.items())
@on_asyncio
async def test_more_than_a_hundred_want_their_number_typed(
    cluster: FakeBackend, sit: OpenSession, key: str, verb: str
) -> None:
    for number in range(250):
        cluster.dead.add(number)
    async with sit(first="dead") as seat:
        await agree(seat, key, "y", "1", "2", "5")
        assert nothing_was_done(cluster)
        await seat.press("0")
        assert cluster.begun == [(a_group(verb, 250, last=249), "ana")]


@on_asyncio
async def test_new_errors_wait_until_they_are_asked_for(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        cluster.dead.add(2, "f2f2", agent="refund-bot", created_at=instant(cluster.clock))
        await seat.pass_time(4)
        assert "refund-bot" not in seat.text
        assert "▲ 1 new" in seat.lines[-2]
        await seat.press(".")
        await seat.pass_time(1)
        assert "refund-bot" in seat.lines[2]


@on_asyncio
async def test_bulk_action_covers_only_letters_counted_at_the_question(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.dead.add(1)
    async with sit(first="dead") as seat:
        await seat.press("R")
        later = instant(cluster.clock) + timedelta(seconds=9)
        cluster.dead.add(2, "f2f2", created_at=later)
        cluster.dead.add(3, created_at=later)
        await seat.pass_time(4)
        await seat.press(*WHY, "y")
        assert cluster.begun == [(a_group("retry", 1, last=1), "ana")], "the oldest one"


@on_asyncio
async def test_late_count_asks_nothing_on_another_screen(
    cluster: FakeBackend, sit: OpenSession
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
async def test_hostile_text_stays_text(cluster: FakeBackend, sit: OpenSession) -> None:
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
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int]
) -> None:
    cluster.dead.add(1, breaker="HALF_OPEN")
    async with sit(first="dead", size=size) as seat:
        for title in ("count", "agent", "error", "breaker", "first", "last"):
            assert title in seat.lines[1], title
        assert "half open" in seat.lines[2]


@pytest.mark.parametrize("key", ["R", "X"])
@on_asyncio
async def test_no_other_error_takes_the_place_of_the_one_of_the_cursor(
    cluster: FakeBackend, sit: OpenSession, key: str
) -> None:
    for number, error in enumerate(("f1f1", "f1f1", "f2f2"), 1):
        cluster.dead.add(number, error)
    async with sit(first="dead") as seat:
        assert "older ones" not in seat.text
        for number in range(10, 10 + LOOKED_MAX):
            cluster.dead.add(number, "f3f3")
        await seat.pass_time(5)
        assert "what stood here is not among the newest" in seat.lines[-2]
        assert "of the newest 5,000 letters; older ones: cortex dead ls" in seat.text
        assert not any(line.startswith("▌") for line in seat.lines[1:])
        await seat.press(key)
        assert "what the cursor was on is gone" in seat.lines[-2]
        await seat.press(*WHY, "y")
        assert nothing_was_done(cluster)
        await seat.press("j", key)
        assert f"{VERBS[key]} 5,000" in seat.text


@on_asyncio
async def test_truncated_letter_list_names_the_command_for_the_rest(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, LETTERS_MAX + 2):
        cluster.dead.add(number)
    async with sit(first="dead") as seat:
        await seat.press("enter")
        await seat.pass_time(2)
        await seat.press("G")
        output = "older ones: cortex dead ls --each --fingerprint f1f1"
        assert seat.lines[-3].strip() == output
        for number in range(1_000, 1_000 + LOOKED_MAX):
            cluster.dead.add(number, "f3f3")
        await seat.pass_time(5)
        assert f"none waits among the newest 5,000; {output}" in seat.text
        for number in range(1_000, 1_010):
            cluster.dead.set_letter(UUID(int=number), state="DISCARDED")
        await seat.pass_time(5)
        assert "…0001f5" in seat.text
        await seat.press("R")
        assert "what the cursor was on is gone" in seat.lines[-2]


@on_asyncio
async def test_a_letter_is_retried_with_an_edited_payload(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job_id = cluster.dead.add(1)
    cluster.dead.payloads[job_id] = {"count": 1, "note": "a\u202eb"}
    schema = {"properties": {"count": {"type": "integer"}, "note": {}}, "required": ["count"]}
    cluster.dead.codes.append(CodeArguments(version="1", schema=schema))
    async with sit(first="dead") as seat:
        await seat.press("enter")
        await seat.pass_time(1)
        await seat.press("E")
        await seat.pass_time(1)
        assert '"count": 1' in seat.text
        assert r"a\u202eb" in seat.text
        assert "ctrl+s review changes" in seat.lines[-1]
        area: Any = seat.app.screen.query_one("_Area")
        wrong = {
            '{"count": ': "payload is not JSON at line 1",
            "[]": "payload must be a JSON object",
            '{"count": 18446744073709551616}': "does not fit into 64 bits",
            '{"count": "many", "more": 1}': "has an unknown key 'more'; payload.count must",
            '{"count": 1, "note": "a\\u202eb"}': "the payload is the same as the failed job's",
        }
        for text, error in wrong.items():
            area.load_text(text)
            await seat.press("ctrl+s")
            await seat.pass_time(1)
            assert error in " ".join(seat.text.split()), text
        area.load_text('{"count": 2}')
        await seat.press("ctrl+s")
        await seat.pass_time(1)
        shown = seat.text
        assert "the payload of the failed job, and yours" in shown
        assert "- 1" in shown
        assert "+ 2" in shown
        assert "with your payload" in seat.lines[-2]
        await seat.press("escape")
        await seat.pass_time(1)
        assert "nothing was done" in seat.text
        assert "…000001" in seat.text, "the list is back"
        assert nothing_was_done(cluster)
        await seat.press("E")
        await seat.pass_time(1)
        area.load_text('{"count": 3}')
        await seat.press("ctrl+s")
        await seat.pass_time(1)
        await seat.press(*WHY, "y")
        await seat.pass_time(1)
        assert cluster.dead.edits == {job_id: '{"count":3}'}
        assert [each[0] for each in cluster.dead.settled] == ["retry"]
        assert "✓" in seat.lines[-2]
