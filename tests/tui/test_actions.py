"""Acting: the strip asks, only `y` agrees, and nothing is done that cannot be."""

import asyncio

import pytest

from cortex.domain.errors import OutcomeUnknownError
from tests.support.terminal.tui import FakeBackend, on_asyncio
from tests.tui.conftest import OpenSession

ACTS = {"K": "cancel", "R": "retry"}


@pytest.mark.parametrize("key, what", ACTS.items())
@on_asyncio
async def test_an_act_is_done_after_y(
    cluster: FakeBackend, sit: OpenSession, key: str, what: str
) -> None:
    cluster.add(1)
    second = cluster.add(2)
    async with sit() as seat:
        await seat.press(key)
        assert "…000002, ○ pend?" in seat.text
        assert cluster.acted == []
        await seat.press("y")
        assert cluster.acted == [(what, second, "ana")]
        assert "✓ " in seat.lines[-2]


@on_asyncio
async def test_a_link_that_is_lost_while_it_asks_counts_too(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("K")
        cluster.down()
        await seat.pass_time(2)
        await seat.press("y")
        assert "nothing was done" in seat.text
        assert cluster.acted == []


@on_asyncio
async def test_action_applies_to_the_job_in_question(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1)
    async with sit() as seat:
        await seat.press("K")
        cluster.add(2)
        await seat.press(".")
        await seat.pass_time(2)
        await seat.press("y")
        assert cluster.acted == [("cancel", job, "ana")]


@on_asyncio
async def test_late_cancel_shows_that_the_job_has_ended(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    job = cluster.add(1)
    async with sit() as seat:
        await seat.press("K")
        cluster.change(job, status="COMPLETED")
        await seat.press("y")
        assert "is COMPLETED already" in seat.text


@on_asyncio
async def test_one_act_at_a_time(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.gate = asyncio.Event()
        await seat.press("K", "y", "R", "y")
        assert "the last action is still under way" in seat.text
        cluster.gate.set()
        await seat.settle()
        assert [what for what, _, _ in cluster.acted] == ["cancel"]


@on_asyncio
async def test_unknown_outcome_is_shown(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("K")
        cluster.error = OutcomeUnknownError("the connection broke")
        await seat.press("y")
        assert "outcome unknown" in seat.text


@on_asyncio
async def test_log_lists_equivalent_commands(cluster: FakeBackend, sit: OpenSession) -> None:
    job = cluster.add(1)
    async with sit(size=(160, 40)) as seat:
        await seat.press("@")
        assert "nothing was done here yet" in seat.text
        await seat.press("escape", "K", "y", "R", "escape", "@")
        assert f"cortex jobs cancel {job} --yes --as ana" in seat.text
        assert "✓ cancelled" in seat.text
        assert "jobs retry" not in seat.text


@pytest.mark.parametrize("queue, name", [("mail", "mail"), (None, "default")])
@on_asyncio
async def test_the_queue_of_a_job_is_paused_with_a_reason(
    cluster: FakeBackend, sit: OpenSession, queue: str | None, name: str
) -> None:
    cluster.add(1, queue_name=queue)
    cluster.queues.add(queue)
    async with sit() as seat:
        await seat.press("P", "enter", "y")
        assert cluster.queues.acted == [], "a reason is required"
        await seat.press("escape", "P")
        assert f"pause queue {name}: all its jobs wait" in seat.text
        await seat.type("deploy")
        await seat.press("enter", "y")
        assert cluster.queues.acted == [("pause", queue, "ana", "deploy")]
        assert f"✓ queue:{name}: paused" in seat.lines[-2]
        await seat.press("@", "c", "c")
        assert seat.app.clipboard == f"cortex pause queue:{name} --reason deploy --as ana"
    async with sit(is_read_only=True) as seat:
        await seat.press("P")
        assert "read-only" in seat.lines[-2]


@on_asyncio
async def test_a_name_like_an_option_is_logged_in_its_target(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1, queue_name="--help")
    cluster.queues.add("--help")
    async with sit() as seat:
        await seat.press("P", *"deploy", "enter", "y", "@", "c", "c")
        output = "cortex pause queue:--help --reason deploy --as ana"
        assert seat.app.clipboard == output


@on_asyncio
async def test_esc_and_a_smaller_window_decline(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1)
    async with sit() as seat:
        await seat.press("K")
        await seat.pilot.resize_terminal(50, 10)
        await seat.settle()
        await seat.press("y")
        assert cluster.acted == []
