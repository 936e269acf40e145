"""`x`: the attempts at a step, compared. And `o`: the job that this one continues."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.hostile import HOSTILE, treacherous
from tests.support.terminal.tui import FakeBackend, Seat, on_asyncio
from tests.support.terminal.tui_job import BEGAN, a_step
from tests.tui.conftest import OpenSession


def an_attempt(attempt: int, *, ended_s: float, **fields: Any) -> dict[str, Any]:
    """An attempt that ended some seconds after the job began."""
    return {
        "attempt": attempt,
        "outcome": "retry",
        "ended_at": BEGAN + timedelta(seconds=ended_s),
        "due_at": None,
        "error": "429 slow down",
        "error_class": "TRANSIENT",
        "error_code": "rate_limit",
        "pod": "eu-1",
        **fields,
    }


def began(attempt: int, *, at_s: float, pod: str, code: str | None = None) -> dict[str, Any]:
    at = BEGAN + timedelta(seconds=at_s)
    return {"id": attempt, "previous": "PENDING", "new": "RUNNING", "attempt": attempt} | {
        "at": at,
        "pod": pod,
        "code_version": code,
        "waiting_on": None,
    }


def thrice(cluster: FakeBackend, **fields: Any) -> UUID:
    """A job whose second step was done by its third attempt."""
    job = cluster.add(
        1,
        status="COMPLETED",
        attempt=3,
        started_at=BEGAN,
        finished_at=BEGAN + timedelta(seconds=70),
        steps=[
            a_step(1, "plan", took_s=2.0),
            a_step(2, "ask", attempt=3, at_s=60.0, took_s=3.2, cost_usd="0.02"),
        ],
        attempts=[an_attempt(1, ended_s=5), an_attempt(2, ended_s=30)],
        **fields,
    )
    moves = [began(number, at_s=at, pod="eu-1", code="v1") for number, at in ((1, 0), (2, 20))]
    history = [*moves, began(3, at_s=60, pod="eu-2", code="v2")]
    cluster.one.details = {key: {"history": history} for key in ("plan", "ask", "")}
    return job


async def opened(seat: Seat) -> None:
    await seat.press("enter")
    await seat.pass_time(2)


def page(seat: Seat) -> str:
    """The pane at the right, on one line."""
    return " ".join(" ".join(line.partition("▏")[2].split()) for line in seat.lines)


@on_asyncio
async def test_the_attempts_at_a_step_stand_below_each_other(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    thrice(cluster)
    async with sit(size=(140, 40)) as seat:
        await opened(seat)
        await seat.press("G", "x")
        await seat.pass_time(1)
        shown = page(seat)
        assert "◂ attempts ▸" in seat.text
        assert "it was tried 3 times" in shown
        for output in (
            "error 429 slow down (rate_limit) then waited 15.0s",
            "error the same as in attempt 1 then waited 30.0s",
            "pod eu-1 (code v1) ended",
            "pod eu-2 (code v2), before on eu-1 (code v1) ended done in 3.2s",
            "used $0.0200",
        ):
            assert output in shown
        await seat.press("x")
        assert "◂ step ▸" in seat.text


@on_asyncio
async def test_step_tried_once_is_described_so(cluster: FakeBackend, sit: OpenSession) -> None:
    thrice(cluster)
    async with sit(size=(140, 40)) as seat:
        await opened(seat)
        await seat.press("g", "x")
        await seat.pass_time(1)
        assert "it was tried once" in page(seat)
        assert "attempt 2" not in page(seat)


@on_asyncio
async def test_running_step_is_compared_with_its_failed_attempts(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    thrice(cluster)
    now = BEGAN + timedelta(seconds=62)
    running = {"status": "RUNNING", "finished_at": None, "heartbeat_at": now, "pod": "eu-2"}
    cluster.change(UUID(int=1), **running, steps=[a_step(1, "plan", took_s=2.0)])
    async with sit(size=(140, 40)) as seat:
        await opened(seat)
        await seat.press("G", "x")
        await seat.pass_time(1)
        assert "it was tried 3 times" in page(seat)
        assert "now goes on" in page(seat)


@on_asyncio
async def test_an_ended_attempt_shows_all_of_the_job(
    cluster: FakeBackend, sit: OpenSession
) -> None:
    thrice(cluster)
    async with sit(size=(140, 40)) as seat:
        await opened(seat)
        await seat.press("g", "j", "x")
        await seat.pass_time(1)
        assert "the attempts of the job: 3" in page(seat)


@pytest.mark.parametrize("steps", [[], [a_step(1, "plan", took_s=2.0)]])
@on_asyncio
async def test_why_a_job_failed_can_be_read_to_its_end(
    cluster: FakeBackend, sit: OpenSession, steps: list[dict[str, Any]]
) -> None:
    output = " ".join(f"reason{n}" for n in range(40)) + " THE END"
    ended = {"started_at": BEGAN, "finished_at": BEGAN + timedelta(seconds=70)}
    failed = {"error_message": output, "error_code": "rejected", "error_class": "PERMANENT"}
    cluster.add(1, status="FAILED", attempt=2, steps=steps, **ended, **failed)
    moved = began(2, at_s=70, pod="eu-1") | {"new": "FAILED"}
    cluster.one.details = {"": {"history": [moved]}}
    async with sit(size=(80, 24)) as seat:
        await opened(seat)
        await seat.press("g", "n", "tab")
        await seat.pass_time(1)
        assert "attempt 2 ended" in seat.text
        for key in ("", "greater_than_sign", "x"):
            await seat.press(*[key] if key else [])
            await seat.pass_time(1)
            assert "reason39 THE END" in " ".join(seat.text.split()), seat.text


@on_asyncio
async def test_log_shows_who_cancelled_and_why(cluster: FakeBackend, sit: OpenSession) -> None:
    cancelled = {"cancelled_by": "ana", "cancel_reason": "wrong customer"}
    cluster.add(1, status="CANCELLED", attempt=1, finished_at=BEGAN, **cancelled)
    moved = began(1, at_s=0, pod="eu-1") | {"new": "CANCELLED", "pod": None}
    cluster.one.details = {"": {"history": [moved | {"attempt": 0, "new": "PENDING"}, moved]}}
    async with sit(size=(140, 40)) as seat:
        await opened(seat)
        assert "no step was recorded" in seat.text
        await seat.press("greater_than_sign")
        await seat.pass_time(1)
        assert "⊘ canc · attempt 1 · by ana: wrong customer" in page(seat)
        assert "attempt 0" not in page(seat)


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
@on_asyncio
async def test_hostile_attempts_are_escaped(
    cluster: FakeBackend, sit: OpenSession, size: tuple[int, int]
) -> None:
    thrice(cluster)
    bad = {"error": HOSTILE, "error_code": HOSTILE, "outcome": HOSTILE, "pod": HOSTILE}
    cluster.change(UUID(int=1), attempts=[an_attempt(1, ended_s=5, **bad)])
    history = [began(1, at_s=0, pod=HOSTILE), began(3, at_s=9, pod="[@click=app.quit]x[/]")]
    cluster.one.details = {key: {"history": history} for key in ("plan", "ask", "")}
    async with sit(size=size) as seat:
        await opened(seat)
        await seat.press("G", "x")
        await seat.pass_time(1)
        assert "attempt 1" in seat.text
        assert treacherous(seat.text) == []
        assert len(seat.lines) == size[1]


@on_asyncio
async def test_o_opens_the_origin_of_a_job(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, steps=[], origin_id=UUID(int=2))
    cluster.add(2, steps=[])
    async with sit() as seat:
        await seat.press("j")
        await opened(seat)
        await seat.press("o")
        await seat.pass_time(1)
        assert "jobs > …000002" in seat.lines[0]
        await seat.press("o")
        assert "does not continue another one" in seat.text


@on_asyncio
async def test_o_opens_the_parent_of_a_child(cluster: FakeBackend, sit: OpenSession) -> None:
    cluster.add(1, steps=[], parent_id=UUID(int=2))
    cluster.add(2, steps=[], has_children=True)
    async with sit() as seat:
        await seat.press("j")
        await opened(seat)
        assert "child of …000002" in seat.text
        await seat.press("o")
        await seat.pass_time(1)
        assert "jobs > …000002" in seat.lines[0]
        assert "has children" in seat.text
