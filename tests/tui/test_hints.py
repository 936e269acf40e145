"""Hints that something changed: heard at once, and again after the connection was lost."""

import asyncio

import pytest

from cortex.postgres.database import Profile, open_database
from cortex_tui import hints as listener
from cortex_tui.backend.store import StoreBackend
from cortex_tui.clock import SystemClock
from tests.support.eventually import eventually_asyncio
from tests.support.records.rows import seeded_random, submit
from tests.support.servers.postgres import run_asyncio, sql

APPLICATION = "cortex that hears"
WATCHES = "SELECT FROM cortex.watch"
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = $1"


@pytest.mark.parametrize("channel", ["cortex_task", "cortex_breaker"])
def test_hints_arrive_again_after_a_lost_connection(
    database: str, monkeypatch: pytest.MonkeyPatch, channel: str
) -> None:
    monkeypatch.setattr(listener, "AGAIN_S", 0.1)
    hints: list[None] = []

    async def heard_anew() -> None:
        """Hints sent before it listens are lost."""
        before = len(hints)

        def is_heard() -> bool:
            sql(database, "SELECT pg_notify($1, '')", channel)
            return len(hints) > before

        await eventually_asyncio(is_heard, what="a hint")

    async def listen() -> None:
        profile = Profile(dsn=database, application=APPLICATION)
        task = asyncio.create_task(
            listener.hear(profile, SystemClock(), on_hint=lambda: hints.append(None))
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


def test_leaving_waits_for_the_end_of_the_watch(database: str) -> None:
    """The app cancels the listener without waiting; what is left is cancelled again at the end."""
    job_id = submit(database, "work")

    async def leave() -> None:
        db = await open_database(Profile(dsn=database), rng=seeded_random())
        try:
            backend = StoreBackend(db, credential="os:7@test")
            listening = backend.job.listen(job_id, heard=lambda _: None, on_status=lambda _: None)
            task = asyncio.create_task(listening.run())
            await eventually_asyncio(lambda: sql(database, WATCHES), what="the watch")
            task.cancel()
            await backend.close()
            assert task.cancelled()
            assert sql(database, WATCHES) == []
            task = asyncio.create_task(listening.run())
            await eventually_asyncio(lambda: sql(database, WATCHES), what="another watch")
            await backend.close()
            assert task.cancelled(), "also of one that nobody has cancelled"
            assert sql(database, WATCHES) == []
        finally:
            await db.close()  # noqa: ASYNC102 -- as the test ends

    run_asyncio(leave)
