"""Marked jobs and acts on them: counted by the server, agreed to with the count, done by id."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from textual import events

from cortex.domain.bulk import BulkRequest, BulkVerb
from cortex.domain.errors import OutcomeUnknownError
from cortex.domain.queueing.pauses import Pausable
from cortex.store.pauses import PauseRow
from cortex_tui.model.marks import MARKS_MAX, Marks
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_pods import FakeQueues
from tests.tui.conftest import OpenSession

ALL_MARKED = "* all that fit"


def marked(seat: Seat) -> list[int]:
    """The ends of the ids of the rows that are marked."""
    return [int(line[3:9], 16) for line in seat.lines if line[1:3] == "*…"]


@on_asyncio
async def test_marked_jobs_are_cancelled_together(cluster: FakeBackend, sit: OpenSession) -> None:
    for number in range(1, 6):
        cluster.add(number)
    async with sit() as seat:
        await seat.press("space", "j", "space")
        assert marked(seat) == [5, 3]
        assert "* 2 marked" in seat.lines[-2]
        await seat.press("K")
        assert "cancel 2 jobs?" in seat.text
        await seat.type("a mistake")
        await seat.press("y")  # still a letter of the reason
        assert cluster.begun == []
        await seat.press("backspace", "enter", "y")
        ids = (UUID(int=5), UUID(int=3))
        wanted = BulkRequest(verb=BulkVerb.CANCEL, reason="a mistake", job_ids=ids)
        assert cluster.begun == [(wanted, "ana")]
        assert "✓ job …0000b1 does it, also without you" in seat.lines[-2]
        assert marked(seat) == []
        await seat.press("@", "c", "c")
        typed_ids = f"{UUID(int=5)} {UUID(int=3)}"
        command = f"cortex jobs cancel {typed_ids} --reason 'a mistake' --yes --as ana"
        assert seat.app.clipboard == command


@on_asyncio
async def test_action_without_marks_applies_to_the_cursor(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1)
    async with sit() as seat:
        await seat.press("space", "space")
        assert marked(seat) == []
        await seat.press("K", "y")
        assert cluster.acted == [("cancel", job, "ana")]
        assert cluster.begun == []


@pytest.mark.parametrize("key", ["ctrl+space", "ctrl+@"])
@on_asyncio
async def test_a_range_reaches_from_the_last_mark(
    cluster: FakeBackend, sit: OpenSession, key: str
) -> None:
    for number in range(1, 10):
        cluster.add(number)
    async with sit() as seat:
        await seat.press("j", "space", "j", "j", key)
        assert marked(seat) == [8, 7, 6, 5]
        await seat.press("g", key)
        assert marked(seat) == [9, 8, 7, 6, 5]
        await seat.press("ctrl+backslash")
        assert marked(seat) == []
        assert "marked" not in seat.lines[-2]


@on_asyncio
async def test_all_that_fit_is_counted_by_the_server(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in range(1, 501):
        cluster.add(number, status="COMPLETED" if number % 5 == 0 else "RETRY")
    async with sit() as seat:
        await seat.press("/")
        await seat.type("status:retry,done")
        await seat.press("enter")
        await seat.pass_time(1)
        await seat.press("*")
        assert ALL_MARKED in seat.lines[-2]
        await seat.press("R")
        assert "retry now 400 jobs, 100 had ended?" in seat.text
        await seat.press("enter", "y")
        assert cluster.begun == [], "so many are not agreed to by one key"
        await seat.type("400")
        ((wanted, _),) = cluster.begun
        assert wanted.jobs is None
        counted = {UUID(int=number) for number in range(1, 501) if number % 5}
        assert set(wanted.job_ids) == counted, "what fits later is left alone"
        await seat.press("@", "c", "c")
        command = "cortex jobs retry --filter status:retry,done --limit 10000 --yes --as ana"
        assert seat.app.clipboard == command


@on_asyncio
async def test_the_list_stands_still_while_rows_are_marked(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    for number in (1, 2):
        cluster.add(number)
    async with sit() as seat:
        await seat.press("j", "space")
        cluster.add(3)
        await seat.pass_time(3)
        assert "▲ 1 new" in seat.text
        for key in (".", "s"):
            await seat.press(key)
            assert "rows are marked" in seat.text
        await seat.pass_time(3)
        assert "…000003" not in seat.text
        await seat.press("ctrl+backslash", ".")
        await seat.pass_time(1)
        assert "…000003" in seat.text


@on_asyncio
async def test_the_list_stands_still_while_somebody_is_asked(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1)
    async with sit() as seat:
        cluster.add(2)
        cluster.page_gate = asyncio.Event()
        await seat.press(".")
        await seat.pass_time(1)  # it is read, and the answer comes late
        await seat.press("K")
        cluster.page_gate.set()
        await seat.pass_time(3)
        assert "…000002" not in seat.text
        await seat.press("escape")
        await seat.pass_time(2)
        assert "…000002" in seat.text
        await seat.press("K", "y")
        assert cluster.acted == [("cancel", job, "ana")], "the cursor stayed with its job"


@on_asyncio
async def test_another_filter_clears_the_marks(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        for key in ("space", "*"):
            await seat.press(key, "/", "enter")
            await seat.pass_time(1)
            assert "*" not in seat.lines[-2]
            assert marked(seat) == []


@pytest.mark.parametrize("keys", [("ctrl+backslash",), ("/", "enter"), ("ctrl+backslash", "space")])
@on_asyncio
async def test_late_count_of_cleared_marks_asks_nothing(
    cluster: FakeBackend, sit: OpenSession, keys: tuple[str, ...]
) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.gate = asyncio.Event()
        await seat.press("*", "K", *keys)
        cluster.gate.set()
        await seat.settle()
        assert "cancel" not in seat.lines[-2]
        await seat.press("enter", "y")
        assert cluster.begun == []


@on_asyncio
async def test_late_count_asks_nothing_while_the_person_types(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.gate = asyncio.Event()
        await seat.press("*", "K", "/")
        await seat.type("agent:")
        cluster.gate.set()
        await seat.settle()
        assert "cancel 1 job" not in seat.text
        await seat.type("y")
        assert "/ agent:y" in seat.text, "what one writes stays where one writes it"
        assert cluster.begun == []


@on_asyncio
async def test_action_without_eligible_jobs_shows_why(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1, status="COMPLETED")
    async with sit() as seat:
        await seat.press("space", "K")
        assert "nothing to cancel: 1 had ended" in seat.text
        await seat.press("y")
        assert cluster.begun == []


@on_asyncio
async def test_late_pauses_ask_nothing_while_the_person_types(
    cluster: FakeBackend, sit: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add(1)
    cluster.queues.add(None)
    may_read, pauses = asyncio.Event(), FakeQueues.pauses

    async def late(queues: FakeQueues, only: Pausable | None = None) -> Sequence[PauseRow]:
        await may_read.wait()
        return await pauses(queues, only)

    monkeypatch.setattr(FakeQueues, "pauses", late)
    async with sit() as seat:
        await seat.press("P", "/")
        await seat.type("agent:")
        may_read.set()
        await seat.settle()
        assert "pause queue default" not in seat.text
        await seat.type("y")
        assert "/ agent:y" in seat.text


@on_asyncio
async def test_late_count_asks_nothing_after_an_interrupted_filter(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.gate = asyncio.Event()
        await seat.press("*", "K", "/")
        await seat.type("agent:")
        seat.app.post_message(events.AppBlur())
        await seat.settle()
        cluster.gate.set()
        await seat.settle()
        seat.app.post_message(events.AppFocus())
        await seat.settle()
        assert "cancel 1 job" not in seat.text
        await seat.type("y")
        assert "/ agent:y" in seat.text


@on_asyncio
async def test_focus_returns_after_a_question_asked_while_away(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        before = seat.app.focused
        cluster.gate = asyncio.Event()
        await seat.press("*", "K")
        seat.app.post_message(events.AppBlur())
        await seat.settle()
        cluster.gate.set()
        await seat.settle()
        seat.app.post_message(events.AppFocus())
        await seat.settle()
        assert "cancel 1 job" in seat.text
        await seat.press("escape")
        assert seat.app.focused is before is not None


@on_asyncio
async def test_message_is_shown_before_the_count_of_marks(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit(size=(80, 24), is_read_only=True) as seat:
        await seat.press("space")
        assert "1 marked" in seat.text
        await seat.press("K")
        assert "read-only: start cortex tui without --read-only to act" in seat.text
        await seat.pass_time(30)
        assert "1 marked" in seat.text


@pytest.mark.parametrize("key", ["K", "R"])
@pytest.mark.parametrize("mark", ["space", "*"])
@on_asyncio
async def test_read_only_mode_and_a_lost_link_refuse_marked_actions(
    cluster: FakeBackend, sit: OpenSession, key: str, mark: str
) -> None:
    cluster.add(1)
    async with sit(is_read_only=True) as seat:
        await seat.press(mark, key)
        assert "read-only: start cortex tui without" in seat.text
        await seat.press("y")
    async with sit() as seat:
        await seat.press(mark, key)
        cluster.down()
        await seat.pass_time(2)
        await seat.press("enter", "y")
        assert "the database does not answer" in seat.text
    assert cluster.begun == []


@on_asyncio
async def test_no_other_key_agrees(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("space", "K", "enter")
        for other in ("Y", "space", "K", "q", "escape"):
            assert "esc no" in seat.lines[-2], "the question stays"
            await seat.press(other)
            assert cluster.begun == []
            assert seat.app.is_running


@on_asyncio
async def test_an_unknown_outcome_is_shown(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("*", "K", "enter")
        cluster.error = OutcomeUnknownError("the connection broke")
        await seat.press("y")
        assert "outcome unknown: " in seat.text


def test_marks_end_somewhere() -> None:
    marks = Marks()
    keys = [UUID(int=number) for number in range(MARKS_MAX + 5)]
    marks.toggle(keys[0])
    assert not marks.extend(keys, len(keys) - 1)
    assert len(marks) == MARKS_MAX
    assert not marks.toggle(keys[-1])
    assert keys[-1] not in marks
    assert marks.toggle(keys[0]), "a mark can always be taken away"
    marks.take_all()
    assert (len(marks), keys[-1] in marks) == (0, True)
