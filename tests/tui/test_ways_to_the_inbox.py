"""Ways to the inbox: `A`, its number and a job's `a`, with other screens opened above it."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from tests.support.terminal.inbox_keys import enter, keys
from tests.support.terminal.tui import FakeBackend, Seat, instant, on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession


def gate(cluster: FakeBackend, job_id: UUID, approval_id: UUID) -> None:
    """Let a job wait for a request."""
    awaited = {
        "kind": "approval",
        "id": str(approval_id),
        "what": "refund",
        "risk": "HIGH",
        "people": 1,
        "agreed": 0,
        "status": "PENDING",
        "requested_by": None,
        "expires_at": (instant(cluster.clock) + timedelta(hours=1)).isoformat(),
    }
    cluster.change(job_id, status="WAITING_FOR_APPROVAL", awaited=awaited)


def at(seat: Seat) -> str:
    return seat.lines[0].split("   ")[0].split(" > ", 1)[1].strip()


@pytest.mark.parametrize("opened", [("o",), ("o", "@"), ("@",), ("?",)])
@on_asyncio
async def test_request_comes_to_the_front_from_any_screen_above_the_inbox(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession, opened: tuple[str, ...]
) -> None:
    job_id = cluster.add(5)
    inbox.add(1, job_id=job_id)
    inbox.add(2, job_id=job_id)
    gate(cluster, job_id, UUID(int=2))
    async with sit() as seat:
        await enter(seat)
        for at_once in ("A", "3"):
            await keys(seat, *opened)
            await seat.press(at_once)
            await seat.pass_time(2)
            assert at(seat) == "approvals"
            assert "…000001  refund" in seat.text
        await keys(seat, *opened)
        await seat.press("2")
        await seat.pass_time(1)
        await seat.press("A")
        await seat.pass_time(2)
        assert at(seat) == "approvals"
        assert "…000001  refund" in seat.text


@pytest.mark.parametrize("way", ["A", "a"])
@on_asyncio
async def test_no_request_is_decided_before_the_sought_one_is_read(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession, way: str
) -> None:
    job_id = cluster.add(5)
    inbox.add(1, job_id=job_id)
    other = inbox.add(2, job_id=job_id, expires_s=60.0)
    inbox.add(3, job_id=job_id)
    gate(cluster, job_id, UUID(int=3))
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "n")
        assert "…000001  refund" in seat.text
        if way == "a":
            await keys(seat, "tab")
            await seat.pass_time(1)
            assert "…000002  refund" in seat.text
            await keys(seat, "o")
            await seat.pass_time(1)
        inbox.look = asyncio.Event()
        await seat.press(way)
        await keys(seat, "a", "y")
        assert inbox.decisions == []
        assert "it is being read" in seat.lines[-2]
        inbox.look.set()
        await seat.pass_time(2)
        shown = "…000002" if way == "A" else "…000003"
        assert f"{shown}  refund" in seat.text
        await keys(seat, "a", "y")
        assert inbox.approved == [other if way == "A" else UUID(int=3)]


@on_asyncio
async def test_a_request_that_ended_meanwhile_is_not_sought_for_ever(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    job_id = cluster.add(5)
    first = inbox.add(1, job_id=job_id)
    gate(cluster, job_id, UUID(int=2))
    inbox.add(2, job_id=job_id)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "o")
        await seat.pass_time(1)
        inbox.end(UUID(int=2), "DENIED")
        await seat.press("a")
        await seat.pass_time(2)
        assert "that request waits no more" in seat.text
        await keys(seat, "a", "y")
        assert inbox.approved == [first]


@on_asyncio
async def test_inbox_shows_the_request_its_job_waits_for(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    job_id = cluster.add(5)
    inbox.add(1, job_id=job_id)
    other = inbox.add(2, job_id=job_id)
    gate(cluster, job_id, other)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "o")
        await seat.pass_time(1)
        await seat.press("a")
        await seat.pass_time(2)
        assert at(seat) == "approvals"
        assert "…000002  refund" in seat.text
        await keys(seat, "o")
        await seat.press("2", "3")
        await seat.pass_time(1)
        assert "…000005" in at(seat), "from elsewhere it is as it was left"


@pytest.mark.parametrize("key", ["a", "A"])
@on_asyncio
async def test_esc_leads_back_from_the_inbox_to_the_job(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession, key: str
) -> None:
    job_id = cluster.add(5)
    inbox.add(2, job_id=job_id)
    gate(cluster, job_id, UUID(int=2))
    async with sit() as seat:
        await seat.press("enter")
        await seat.pass_time(2)
        assert at(seat) == "jobs > …000005"
        assert "· a opens it ·" in seat.lines[2]
        await seat.press(key)
        await seat.pass_time(2)
        assert at(seat) == "approvals"
        await seat.press("escape")
        await seat.pass_time(2)
        assert at(seat) == "jobs > …000005"
        await seat.press("3", "escape")
        await seat.pass_time(2)
        assert at(seat) == "approvals", "one went there oneself"


@on_asyncio
async def test_moving_on_at_once_cancels_the_jump_to_the_first(
    inbox: FakeApprovals, sit: OpenSession
) -> None:
    for number in (1, 2, 3):
        inbox.add(number)
    async with sit() as seat:
        await enter(seat)
        await seat.press("A", "G")
        await seat.pass_time(2)
        assert "…000003  refund" in seat.text


@on_asyncio
async def test_esc_leads_back_to_the_job_that_was_opened_above_the_inbox(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    one, other = cluster.add(5), cluster.add(6)
    inbox.add(1, job_id=one)
    inbox.add(2, job_id=other)
    gate(cluster, one, UUID(int=1))
    gate(cluster, other, UUID(int=2))
    async with sit() as seat:
        await seat.press("j", "enter")
        await seat.pass_time(2)
        assert at(seat) == "jobs > …000005"
        await seat.press("a")
        await seat.pass_time(2)
        await keys(seat, "j", "o", "a")
        await seat.pass_time(2)
        assert at(seat) == "approvals"
        await seat.press("escape")
        await seat.pass_time(2)
        assert at(seat).endswith("…000006"), "where one was last"
        await seat.press("escape")
        await seat.pass_time(2)
        assert at(seat) == "approvals"


@on_asyncio
async def test_moving_on_cancels_the_search_for_a_request(
    cluster: FakeBackend, inbox: FakeApprovals, sit: OpenSession
) -> None:
    job_id = cluster.add(5)
    gate(cluster, job_id, UUID(int=4))
    for number in (1, 2, 3):
        inbox.add(number, job_id=job_id)
    async with sit() as seat:
        await enter(seat)
        await keys(seat, "tab", "o")
        await seat.pass_time(1)
        inbox.add(4, job_id=job_id, expires_s=60.0)
        inbox.look = asyncio.Event()
        await seat.press("a", "G")
        inbox.look.set()
        await seat.pass_time(2)
        assert "…000003  refund" in seat.text
