"""Real Postgres sessions, lent to simulated connections for as long as those need one.

A connection needs its own session only within a transaction, or while it holds a session lock. All
others with the same settings share one, which has prepared their statements already. A real client
gets the same from a new session as from a shared one; the product's tests with a pooler ensure that
nothing else remains in sessions.
"""

import asyncio
import re
from collections.abc import Mapping
from functools import cache
from typing import Final

import asyncpg

from chaos.sim.notices import Notices
from chaos.sim.wire import Wire
from cortex.postgres import connections

SERVER_SETTINGS: Final = {
    # Unqualified names are first looked up in the schema that simulates time and randomness.
    "search_path": "sim, pg_catalog, public",
    # No lock can be released while the whole process waits for one.
    "lock_timeout": "20ms",
    # Bounds in real time would make a slow computer part of the seed.
    "statement_timeout": "120s",
    "idle_in_transaction_session_timeout": "0",
    "client_connection_check_interval": "0",
}
SESSION_LOCK: Final = re.compile(r"pg_(try_)?advisory_lock(_shared)?\(")


class Session(connections.Connection):
    """One real session; `heard` is how many channels it listens to."""

    heard = 0

    async def hear(self, notices: Notices) -> None:
        """Listen to every channel in use; not in a transaction, which may undo it."""
        if self.heard == len(notices.channels) or self.is_in_transaction():
            return

        def announced(_connection: object, pid: int, channel: str, payload: object) -> None:
            if pid == self.get_server_pid():
                notices.announce(channel, str(payload))

        for channel in notices.channels[self.heard :]:
            await self.add_listener(channel, announced)
        self.heard = len(notices.channels)


class Sessions:
    """All sessions of simulated machines in one database."""

    def __init__(self, wire: Wire, dsn: str) -> None:
        self._wire = wire
        self._dsn = dsn
        self._all: list[Session] = []
        self._free: dict[tuple[tuple[str, str], ...], list[Session]] = {}

    def lend(self, settings: Mapping[str, str]) -> Session:
        """Return a session without a transaction."""
        free = self._free.setdefault(_alike(settings), [])
        if free:
            return free.pop()
        unbounded = {k: v for k, v in settings.items() if k not in connections.NEWER_SETTINGS}
        session: Session = self._wire(
            lambda: asyncpg.connect(
                self._dsn,
                server_settings=unbounded | SERVER_SETTINGS,
                timeout=120.0,
                connection_class=Session,
                statement_cache_size=connections.STATEMENTS_MAX,
                max_cached_statement_lifetime=0,  # as in connections of a real pod
            )
        )
        self._all.append(session)
        return session

    def give_back(self, session: Session, settings: Mapping[str, str]) -> None:
        """Take back a session without a transaction."""
        self._free[_alike(settings)].append(session)

    def end(self, session: Session, settings: Mapping[str, str]) -> None:
        """Its client is gone: the server rolls back, and releases what the session holds."""
        query = "SELECT pg_catalog.pg_advisory_unlock_all()"
        self._wire.talk(session, lambda: session.execute(f"ROLLBACK; {query}"))
        self.give_back(session, settings)

    def close(self) -> None:
        async def close() -> None:
            await asyncio.gather(*(session.close() for session in self._all))

        self._wire(close)


def _alike(settings: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What two sessions have in common that may be shared: all but the name of their process.

    Each tick has a name of its own, and the server would run out of sessions.
    """
    return tuple(each for each in settings.items() if each[0] != "application_name")


@cache
def locks_session(query: str) -> bool:
    """Whether the locks of this statement outlive its transaction."""
    return SESSION_LOCK.search(query) is not None
