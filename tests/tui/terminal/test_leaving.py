"""Leaving, or going to the shell or an editor, while something is decided or under way."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cortex.domain.errors import UnavailableError
from cortex_tui.app import CortexApp
from cortex_tui.link import STALE_AFTER_S
from cortex_tui.run import _settle
from tests.support.terminal.inbox_keys import enter, keys
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_approvals import FakeApprovals
from tests.tui.conftest import OpenSession

RECALL_S = 3.0
CODE = 143


class Shell:
    """Notes what had been approved each time the app stood still."""

    def __init__(self, inbox: FakeApprovals) -> None:
        self._inbox = inbox
        self.visits: list[int] = []

    def visit(self) -> None:
        self.visits.append(len(self._inbox.approved))

    @contextmanager
    def lent(self) -> Iterator[None]:
        self.visit()
        yield


@pytest.fixture
def shell(cluster: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell(cluster.approvals)
    monkeypatch.setattr(CortexApp, "action_suspend_process", shell.visit)
    monkeypatch.setattr(CortexApp, "suspend", shell.lent)
    monkeypatch.setattr("cortex_tui.editor.show", lambda _: "")
    return shell


async def act(cluster: FakeBackend, seat: Seat) -> asyncio.Event:
    """Begin to cancel all jobs; the event lets that end."""
    await seat.press("*", "K", "enter")
    cluster.gate = asyncio.Event()
    await seat.press("y")
    return cluster.gate


@pytest.fixture
def jobs(cluster: FakeBackend) -> FakeBackend:
    cluster.add(1)
    return cluster


@pytest.mark.parametrize("key", ["ctrl+z", "e"])
@on_asyncio
async def test_a_decision_is_sent_before_the_process_stands_still(
    cluster: FakeBackend, shell: Shell, sit: OpenSession, key: str
) -> None:
    cluster.approvals.add(1)
    cluster.approvals.add(2)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        assert cluster.approvals.approved == []
        await seat.press(key)
        await seat.settle()
        assert shell.visits == [1]


@pytest.mark.parametrize("key", ["ctrl+z", "e"])
@on_asyncio
async def test_unsent_decision_prevents_suspension_and_shows_the_error(
    cluster: FakeBackend, shell: Shell, sit: OpenSession, key: str
) -> None:
    cluster.approvals.add(1)
    cluster.approvals.add(2)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        cluster.approvals.error = UnavailableError("cannot reach the database")
        await seat.press(key)
        await seat.settle()
        assert shell.visits == []
        assert "✗ cannot reach the database" in seat.lines[-2]


@pytest.mark.parametrize("key", ["ctrl+z", "e"])
@on_asyncio
async def test_running_action_prevents_suspension(
    jobs: FakeBackend, shell: Shell, sit: OpenSession, key: str
) -> None:
    async with sit() as seat:
        gate = await act(jobs, seat)
        await seat.press(key)
        await seat.settle()
        assert shell.visits == []
        assert "the last action is still under way" in seat.lines[-2]
        gate.set()
        await seat.settle()
        await seat.press(key)
        await seat.settle()
        assert shell.visits == [0]


@on_asyncio
async def test_the_first_act_after_a_long_stop_is_done(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.clock.move(10 * STALE_AFTER_S)
        assert seat.app.session.why_not_act() is not None
        seat.app._resume_signal()
        assert seat.app.session.why_not_act() is None
        await seat.press("K", "y")
        assert [what for what, _, _ in cluster.acted] == ["cancel"]


@on_asyncio
async def test_quitting_waits_for_a_running_action_and_prints_its_outcome(
    jobs: FakeBackend, sit: OpenSession
) -> None:
    async with sit() as seat:
        gate = await act(jobs, seat)
        await seat.press("q", "q")
        assert seat.app.is_running
        gate.set()
        await seat.settle()
        assert not seat.app.is_running
        (output,) = seat.app.quitting.parting
        assert "✓ job …0000b1 does it, also without you" in output


@on_asyncio
async def test_signal_ends_the_app_despite_a_running_action(
    jobs: FakeBackend, sit: OpenSession
) -> None:
    async with sit() as seat:
        await act(jobs, seat)
        await seat.press("q")
        assert seat.app.is_running
        seat.app.exit(CODE)
        await seat.settle()
        assert not seat.app.is_running
        (ended,) = await seat.app.context.actions.settle(within_s=0)
        assert "? outcome unknown" in ended.outcome
    assert seat.app.return_value == CODE


@on_asyncio
async def test_outcome_after_a_signal_is_printed_in_the_shell(
    jobs: FakeBackend, sit: OpenSession
) -> None:
    async with sit() as seat:
        gate = await act(jobs, seat)
        await seat.press("q")
        gate.set()
        seat.app.exit(CODE)
        await seat.settle()
        assert not seat.app.is_running
        ended = await seat.app.context.actions.settle(within_s=0)
        (output,) = [*seat.app.quitting.parting, *(each.outcome for each in ended)]
        assert "does it, also without you" in output
    assert seat.app.return_value == CODE


@on_asyncio
async def test_quitting_waits_for_the_last_action_and_prints_its_outcome(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    cluster.add(1)
    async with sit() as seat:
        cluster.gate = asyncio.Event()
        await seat.press("K", "y", "q")
        assert seat.app.is_running
        cluster.gate.set()
        await seat.settle()
        assert not seat.app.is_running
        (output,) = seat.app.quitting.parting
        assert "…000001" in output
        assert ": ✓ " in output


@on_asyncio
async def test_hanging_action_does_not_prevent_quitting(
    jobs: FakeBackend, sit: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex_tui.quitting.SETTLE_S", 0.0)
    async with sit(size=(160, 40)) as seat:
        await act(jobs, seat)
        await seat.press("q")
        await seat.settle()
        assert seat.app.is_running
        output = "? outcome unknown"
        assert output in seat.lines[-2]
        assert not seat.app.context.actions.is_busy
        await seat.press("@")
        assert "? outcome unknown" in seat.text
        await seat.press("q")
        assert not seat.app.is_running


@on_asyncio
async def test_a_fault_of_a_decision_that_is_sent_at_last_is_kept_for_the_report(
    cluster: FakeBackend, sit: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = LookupError("a fault of ours")

    async def decide(*_: object) -> None:
        raise fault

    cluster.approvals.add(1)
    async with sit(recall_s=RECALL_S) as seat:
        await enter(seat)
        await keys(seat, "a", "y")
        monkeypatch.setattr(FakeApprovals, "decide", decide)
        output: list[str] = []
        seat.app.context.recall.send = lambda: None  # type: ignore[method-assign]  # it comes too late
        seat.app.exit(CODE)
        await seat.settle()
        await _settle(seat.app, output.append)
        assert seat.app.context.actions.faults == [fault]
        assert seat.app.faults == []
        (line,) = output
        assert line.startswith("cortex approvals approve ")
        assert line.endswith(": ? outcome unknown")
