"""Hints that something changed: heard at once, and again after the connection was lost."""

import asyncio

import pytest

from cortex.store.database import Profile
from cortex_tui import hearing
from cortex_tui.clock import SystemClock
from tests.support.eventually import eventually_asyncio
from tests.support.postgres import run_asyncio, sql

APPLICATION = "cortex that hears"
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = $1"


@pytest.mark.parametrize("channel", ["cortex_task", "cortex_breaker"])
def test_hints_are_heard_also_after_a_loss(
    database: str, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    monkeypatch.setattr(hearing, "AGAIN_S", 0.1)
    hints: list[None] = []

    async def heard_anew() -> None:
        """Until it listens a hint is lost."""
        before = len(hints)

        def is_heard() -> bool:
            sql(database, "SELECT pg_notify($1, '')", channel)
            return len(hints) > before

        await eventually_asyncio(is_heard, what="a hint")

    async def listen() -> None:
        profile = Profile(dsn=database, application=APPLICATION)
        task = asyncio.create_task(
            hearing.hear(profile, SystemClock(), on_hint=lambda: hints.append(None))
        )
        await heard_anew()
        (session,) = sql(database, SESSIONS, APPLICATION)
        sql(database, "SELECT pg_terminate_backend($1)", session["pid"])
        await eventually_asyncio(
            lambda: session not in sql(database, SESSIONS, APPLICATION), what="the loss"
        )
        await heard_anew()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_asyncio(listen)
    assert hints
