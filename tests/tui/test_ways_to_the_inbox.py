"""Ways to the inbox: `A`, its number and a job's `a`, with other screens opened above it."""

from datetime import timedelta
from uuid import UUID

import pytest

from tests.support.tui import FakeBackend, Seat, instant, on_asyncio
from tests.support.tui_approvals import FakeApprovals
from tests.tui.conftest import Sit
from tests.tui.test_approvals import enter, keys


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
async def test_a_request_is_in_front_whatever_was_opened_above_the_inbox(
    cluster: FakeBackend, inbox: FakeApprovals, sit: Sit, opened: tuple[str, ...]
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


@on_asyncio
async def test_the_request_that_a_job_above_the_inbox_waits_for(
    cluster: FakeBackend, inbox: FakeApprovals, sit: Sit
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


@on_asyncio
async def test_who_moves_on_at_once_stays_where_they_went(inbox: FakeApprovals, sit: Sit) -> None:
    for number in (1, 2, 3):
        inbox.add(number)
    async with sit() as seat:
        await enter(seat)
        await seat.press("A", "G")
        await seat.pass_time(2)
        assert "…000003  refund" in seat.text
