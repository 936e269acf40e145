"""Sessions of the store that are kept: a new one plans again all that the one before it knew.

One is kept for each database of the run's own server and each profile, more while several are in
use at once. `CleanState` ends those that are not as they came: in a transaction, or with a lock.
Settings and subscriptions it cannot see; no method of the store leaves any in its pool.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from attrs import define, field

from cortex.postgres.database import Profile
from cortex.postgres.session import Session, open_session
from tests.support.servers.kept_sql import was_told

SESSIONS: Final[dict[str, "KeptSessions"]] = {}
"""By the DSN of a database with the current schema that this process made on the run's server."""


@contextmanager
def kept_session(profile: Profile) -> Iterator[Session]:
    """Do what `open_session` does, with a session that was used before if there is one."""
    kept = SESSIONS.get(profile.dsn)
    with open_session(profile) if kept is None else kept.lend(profile) as session:
        yield session


@define(eq=False)
class _Kept:
    session: Session
    _open: ExitStack

    @classmethod
    def of(cls, profile: Profile) -> "_Kept":
        handler = signal.getsignal(signal.SIGINT)
        with ExitStack() as stack:
            session = stack.enter_context(open_session(profile))
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, handler)  # until it is lent
            return cls(session, stack.pop_all())
        raise AssertionError("unreachable")

    @contextmanager
    def lent(self) -> Iterator[Session]:
        """Let Ctrl-C end calls, as in a session of one's own."""
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield self.session
            return
        signal.signal(signal.SIGINT, self.session._loop.interrupt)
        try:
            yield self.session
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @property
    def connections(self) -> list[Any]:
        return self.session._db._idle

    @property
    def is_usable(self) -> bool:
        """Whether it has connections that nothing has happened to, and holds nothing."""
        db = self.session._db
        intact = not any(each.is_closed() or was_told(each) for each in db._idle)
        return intact and bool(db._idle) and not db._holders and not db._lent_count

    def close(self) -> None:
        """Close it; SIGINT is handled afterwards as it was before."""
        handler = signal.getsignal(signal.SIGINT)
        self._open.close()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@define(eq=False)
class KeptSessions:
    """Those of one database; may be used from any thread, by several at once."""

    _free: dict[Profile, list[_Kept]] = field(factory=dict, init=False)

    @contextmanager
    def lend(self, profile: Profile) -> Iterator[Session]:
        """Yield a session that nobody else uses meanwhile."""
        free = self._free.setdefault(profile, [])
        kept = self._usable(free) or _Kept.of(profile)
        try:
            with kept.lent() as session:
                yield session
        finally:
            if kept.is_usable:
                free.append(kept)
            else:
                kept.close()

    @property
    def pids(self) -> list[int]:
        """The server's processes for them."""
        kept = [each for free in self._free.values() for each in free]
        return [connection.get_server_pid() for each in kept for connection in each.connections]

    def close(self) -> None:
        """Close them all; none may be in use."""
        for free in self._free.values():
            while free:
                free.pop().close()

    @staticmethod
    def _usable(free: list[_Kept]) -> _Kept | None:
        while free:
            kept = free.pop()
            if kept.is_usable:
                return kept
            kept.close()
        return None


def kept_pids(dsn: str) -> list[int]:
    """Processes of the server for sessions that wait for another test, or for this one."""
    return SESSIONS[dsn].pids if dsn in SESSIONS else []
