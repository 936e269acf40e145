"""A connection of one's own: its lock and its subscriptions live exactly as long as it does."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import attrs
import pytest

from cortex.domain.errors import CortexError, OutcomeUnknownError, UnavailableError
from cortex.postgres.database import Profile
from cortex.postgres.dedicated import Dedicated
from cortex.store import pods
from tests.support.eventually import WITHIN_S, eventually
from tests.support.servers.postgres import database_of, run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres

KEY = 11
SLACK_S = 15.0  # a loaded machine; a server that is waited for would take for good


@attrs.define
class Watched:
    """A connection with its notifications."""

    session: Dedicated
    lost: asyncio.Event
    heard: "asyncio.Queue[str]"


def on_session(dsn: str, work: Callable[[Watched], Awaitable[Any]], **profile: Any) -> None:
    async def main() -> None:
        lost = asyncio.Event()
        session = Dedicated(Profile(dsn=dsn, role=None, **profile), on_lost=lost.set)
        await session.open()
        try:
            await work(Watched(session, lost, asyncio.Queue()))
        finally:
            await session.close()

    run_asyncio(main)


def is_locked(dsn: str, key: int = KEY) -> bool:
    query = """
        SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE locktype = 'advisory' AND objid = $1 AND d.datname = $2
    """
    return bool(sql(dsn, query, key, database_of(dsn)))


def terminate_others(dsn: str) -> None:
    sql(
        dsn,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


@pytest.mark.parametrize("how", ["cut", "close"])
def test_giving_the_connection_up_frees_its_lock(database: str, how: str) -> None:
    async def work(watched: Watched) -> None:
        assert (await pods.lock(watched.session, KEY)).is_held
        assert is_locked(database)
        if how == "cut":
            watched.session.cut()
        else:
            await watched.session.close()
        assert not watched.session.is_open
        await asyncio.to_thread(
            eventually, lambda: not is_locked(database), what="the lock is free"
        )

    on_session(database, work)


def test_lock_held_elsewhere_is_refused_without_waiting(database: str) -> None:
    async def work(watched: Watched) -> None:
        assert (await pods.lock(watched.session, KEY)).is_held

        async def second(other: Watched) -> None:
            assert await pods.lock(other.session, KEY) == pods.LockAttempt(
                is_held=False, is_foreign=False
            )

        await asyncio.to_thread(on_session, database, second)

    on_session(database, work)


def test_a_terminated_session_is_known_to_be_lost_at_once(database: str) -> None:
    async def work(watched: Watched) -> None:
        await asyncio.to_thread(terminate_others, database)
        await asyncio.wait_for(watched.lost.wait(), WITHIN_S)
        assert not watched.session.is_open
        with pytest.raises(UnavailableError, match="not open"):
            await watched.session.fetch("pods.lock", KEY, None)
        await watched.session.open()
        assert (await pods.lock(watched.session, KEY)).is_held

    on_session(database, work)


def test_opening_again_gives_the_old_connection_and_its_lock_up(database: str) -> None:
    async def work(watched: Watched) -> None:
        assert (await pods.lock(watched.session, KEY)).is_held
        await watched.session.open()
        await asyncio.to_thread(
            eventually, lambda: not is_locked(database), what="the lock is free"
        )
        assert watched.session.is_open

    on_session(database, work)


def test_a_server_that_does_not_answer_costs_the_bound_and_the_connection(
    private_postgres: PrivatePostgres,
) -> None:
    bound_s = 0.4

    async def work(watched: Watched) -> None:
        private_postgres.kill_backends(signal.SIGSTOP)
        began_at = monotonic()
        with pytest.raises(CortexError) as caught:
            await watched.session.fetch("pods.lock", KEY, None)
        assert monotonic() - began_at < bound_s + SLACK_S
        assert type(caught.value) is OutcomeUnknownError
        await asyncio.wait_for(watched.lost.wait(), WITHIN_S)
        assert not watched.session.is_open

    try:
        on_session(private_postgres.dsn, work, bound_s=bound_s)
    finally:
        private_postgres.kill_backends(signal.SIGCONT)


def test_a_subscription_that_is_not_answered_costs_the_bound(
    private_postgres: PrivatePostgres,
) -> None:
    async def work(watched: Watched) -> None:
        private_postgres.kill_backends(signal.SIGSTOP)
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(watched.session.listen("c", watched.heard.put_nowait), WITHIN_S)

    try:
        on_session(private_postgres.dsn, work, bound_s=0.4)
    finally:
        private_postgres.kill_backends(signal.SIGCONT)


def test_closing_does_not_wait_for_a_server_that_does_not_answer(
    private_postgres: PrivatePostgres,
) -> None:
    async def work(watched: Watched) -> None:
        private_postgres.kill_backends(signal.SIGSTOP)
        began_at = monotonic()
        await watched.session.close()
        assert monotonic() - began_at < SLACK_S

    try:
        on_session(private_postgres.dsn, work)
    finally:
        private_postgres.kill_backends(signal.SIGCONT)


def test_listener_receives_notifications(database: str) -> None:
    async def work(watched: Watched) -> None:
        await watched.session.listen("cortex_test", watched.heard.put_nowait)
        await asyncio.to_thread(sql, database, "SELECT pg_notify('cortex_test', 'hello')")
        assert await asyncio.wait_for(watched.heard.get(), WITHIN_S) == "hello"

    on_session(database, work)


def test_a_refused_statement_keeps_the_connection_and_its_lock(database: str) -> None:
    async def work(watched: Watched) -> None:
        assert (await pods.lock(watched.session, KEY)).is_held
        with pytest.raises(CortexError):
            await watched.session.fetch("pods.lock", "no number", None)
        assert watched.session.is_open
        assert is_locked(database)
        assert not watched.lost.is_set()

    on_session(database, work)
