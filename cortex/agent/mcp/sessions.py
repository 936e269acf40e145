"""The sessions of this process: opened on first use, shared by those who may, closed when idle.

Shared only by jobs of one tenant whose agents declare the same server and the same secrets with the
same values; a server that works in a job's folder is that job's alone.
"""

import hashlib
import secrets as random_secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from cortex.agent.confinement.means import Confiner
from cortex.agent.confinement.quota import Quota
from cortex.agent.mcp.session import Place, Session
from cortex.agent.mcp.terms import McpServer
from cortex.agent.secrets import Secrets
from cortex.domain.backoff import Backoff
from cortex.domain.errors import UnavailableError

SESSIONS_MAX: Final = 16
"""At once, in one process; a program may hold up to 2 GiB."""
WAIT_S: Final = 30.0
"""For one of them to be free."""
IDLE_S: Final = 300.0
IDLE_OF_JOB_S: Final = 60.0
"""Of a server that works in a job's folder."""
FAILED_MAX: Final = 1_000
CLOSE_S: Final = 10.0
_BACKOFF: Final = Backoff(base_s=1.0, cap_s=60.0)
_SALT: Final = random_secrets.token_bytes(16)


@attrs.frozen(kw_only=True)
class Wanted:
    """The server that a job calls."""

    name: str
    terms: McpServer
    tenant: str
    secrets: Secrets
    workspace: Path
    """The job's."""
    folder: Path
    """The job's, where its tools read."""

    @property
    def place(self) -> Place:
        if self.terms.folder == "none":
            return Place()
        return Place(workspace=self.workspace, folder=self.folder)


@attrs.frozen
class _Key:
    """What sessions may be shared by."""

    name: str
    identity: str
    tenant: str
    secrets: str
    place: Place


@attrs.frozen
class _Failure:
    """Failures in a row of one server, and until when it is left alone."""

    times: int
    until: float
    message: str


@attrs.define(eq=False)
class Sessions:
    """Lends sessions; bounded in number, the least recently used idle one closes for a new one."""

    confiner: Confiner = attrs.field(factory=Confiner.chosen)
    quota: Quota = attrs.field(factory=Quota)
    _open: OrderedDict[_Key, Session] = attrs.field(factory=OrderedDict, init=False, repr=False)
    _failed: OrderedDict[_Key, _Failure] = attrs.field(factory=OrderedDict, init=False, repr=False)
    _returned: trio.Event | None = attrs.field(default=None, init=False, repr=False)

    @asynccontextmanager
    async def lend(self, wanted: Wanted) -> AsyncIterator[Session]:
        """Lend the session of a server, which begins if there is none.

        Raises the error why it cannot begin; `UnavailableError` at once while it rests after a
        failure, and when too many others are in use.
        """
        key = await trio.to_thread.run_sync(_key_of, wanted)
        session = self._open.get(key)
        if session is None or session.has_ended:
            session = await self._begun(key, wanted)
        self._open.move_to_end(key)
        session.users += 1
        try:
            await session.ready.wait()
            if session.error is not None:
                raise session.error
            self._failed.pop(key, None)
            yield session
        finally:
            session.users -= 1
            session.used_at = trio.current_time()
            self._settle(key, session)

    async def close(self) -> None:
        """End all sessions: bounded, also when it is cancelled."""
        sessions = list(self._open.values())
        for each in sessions:
            each.close()
        with trio.move_on_after(CLOSE_S, shield=True):
            for each in sessions:
                await each.end.wait()
        self._open.clear()

    async def _begun(self, key: _Key, wanted: Wanted) -> Session:
        self._refuse_resting(key, wanted.name)
        with trio.move_on_after(WAIT_S) as wait:
            await self._room()
        if wait.cancelled_caught:
            raise UnavailableError(
                f"MCP server {wanted.name!r} must wait: this pod uses {SESSIONS_MAX} others",
                hint="try again later, or run more pods",
            )
        if (other := self._open.get(key)) is not None and not other.has_ended:
            return other  # begun meanwhile
        is_of_job = wanted.place != Place()
        session = self._open[key] = Session(
            name=wanted.name,
            terms=wanted.terms,
            secrets=wanted.secrets,
            confiner=self.confiner,
            quota=self.quota,
            place=wanted.place,
            idle_s=IDLE_OF_JOB_S if is_of_job else IDLE_S,
        )
        session.start()
        return session

    async def _room(self) -> None:
        while True:
            for key in [key for key, each in self._open.items() if each.end.is_set()]:
                self._settle(key, self._open[key])
            if len(self._open) < SESSIONS_MAX:
                return
            if idle := next((each for each in self._open.values() if not each.users), None):
                idle.close()
                await idle.end.wait()
                continue
            self._returned = self._returned or trio.Event()
            await self._returned.wait()

    def _settle(self, key: _Key, session: Session) -> None:
        """Drop a session that has ended; if it failed, its server rests for a while."""
        if self._returned is not None and not session.users:
            self._returned.set()
            self._returned = None
        if not session.end.is_set() or self._open.get(key) is not session:
            return
        del self._open[key]
        if session.error is None or session.was_closed:
            return
        before = self._failed.pop(key, None)
        times = 1 if before is None else before.times + 1
        until = trio.current_time() + _BACKOFF.longest_s(times)
        self._failed[key] = _Failure(times, until, session.error.message)
        if len(self._failed) > FAILED_MAX:
            self._failed.popitem(last=False)

    def _refuse_resting(self, key: _Key, name: str) -> None:
        failure = self._failed.get(key)
        if failure is None or failure.times == 1:  # once it may begin again at once
            return
        left_s = failure.until - trio.current_time()
        if left_s > 0:
            raise UnavailableError(
                f"{failure.message}; it may begin again in {left_s:.0f} seconds",
                hint=f"mend server {name!r}, or take it out of the agent's `mcp`",
            )


def _key_of(wanted: Wanted) -> _Key:
    """Return the key. Reads small files; raises `RejectedError` for a secret that is missing."""
    digest = hashlib.sha256(_SALT)
    for name in sorted(wanted.terms.secrets):
        digest.update(f"{name}\0{wanted.secrets.value(name)}\0".encode())
        digest.update(f"{wanted.secrets.references[name]!r}\0".encode())
    return _Key(wanted.name, wanted.terms.identity, wanted.tenant, digest.hexdigest(), wanted.place)
