"""Receives model output of watched jobs on any pod, while a client here watches.

Owns: the jobs that this pod's clients watch, the watches in the database, and one dedicated
connection to listen on, which is open only while there are watches.
Reads: the output of the last seconds when a notification hints at some, at most twenty times a
second: any login may notify.
Invariants: it listens before it watches, and renews the watches on the same connection, so a
silently dead connection is noticed by that. Messages are hints: a lost one is only a gap.
Behind a pooler, where LISTEN is impossible, it polls for output four times a second.

On failure: the connection is reopened with jittered backoff. A new connection is a new watcher, so
output from the outage is sent again as far as the job's pod has kept it.
On stop: the watches are deleted, within a bound; those of a killed pod expire.
"""

import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.ticker import Pacer
from cortex.domain.answer_text import Message, messages_of
from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError, UnavailableError
from cortex.postgres.bridge import Port
from cortex.postgres.dedicated import Dedicated
from cortex.store import watches

LINGER_S: Final = 5.0
"""How long the connection stays open after the last client has left; another one may come."""
GOODBYE_S: Final = 2.0
AGAIN_S: Final = 1.0
POLL_S: Final = 0.25
"""Behind a pooler."""

_log = structlog.get_logger(__name__)


class AnswerListener:
    """The actor; `watch` and `unwatch` declare the wanted jobs."""

    name = "answer listener"

    def __init__(
        self,
        port: Port,
        *,
        new_id: Callable[[], UUID],
        rng: random.Random,
    ) -> None:
        self.hear: Callable[[Message], None] = lambda _: None
        """Called with each message of any job, wanted or not, in the event loop."""
        self._port = port
        self._new_id = new_id
        self._backoff = LoopBackoff(rng=rng, backoff=Backoff(base_s=AGAIN_S, cap_s=AGAIN_S))
        self._pacer = Pacer(rng=rng)
        self._wanted: set[UUID] = set()
        self._kept: set[UUID] = set()
        self._new: set[UUID] = set()
        """Jobs with a new follower, or on another pod."""
        self._watcher = new_id()
        self._polled: set[int] = set()
        """Recent messages that were already polled."""
        self._is_hinted = False
        self._session: Dedicated = port.dedicated(on_lost=self._pacer.wake)

    def watch(self, job_id: UUID) -> None:
        """Receive a job's model output: for a new follower, or because the job has moved."""
        self._wanted.add(job_id)
        self._new.add(job_id)
        self._pacer.wake()

    def unwatch(self, job_id: UUID) -> None:
        self._wanted.discard(job_id)
        self._pacer.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen while any job is watched, until cancelled."""
        task_status.started()
        while True:
            if not self._wanted:
                await self._pacer.wait(float("inf"))
                continue
            try:
                await self._listen()
            except CortexError as error:
                await trio.sleep(self._backoff.failed(_log, "model output not received", error))
            finally:
                with trio.move_on_after(GOODBYE_S, shield=True):
                    await self._close()

    async def _listen(self) -> None:
        session = self._session
        self._watcher, self._kept = self._new_id(), set()
        await self._port.open(session)
        if not session.is_pooled:
            await self._port.cross(watches.listen, session, self._hint)
        renew_at = left_at = trio.current_time()
        while self._wanted or trio.current_time() < left_at + LINGER_S:
            if not session.is_open:
                raise UnavailableError("the connection was lost")
            now = trio.current_time()
            if self._wanted:
                left_at = now
            if is_due := now >= renew_at:
                renew_at = now + watches.RENEW_S
            await self._change(set(self._wanted) if is_due else self._wanted & self._new)
            self._backoff.succeeded()
            if session.is_pooled or self._is_hinted:
                self._is_hinted = False
                await self._poll()
            await trio.sleep(watches.SAID_APART_S)
            until = renew_at if self._wanted else left_at + LINGER_S
            if session.is_pooled:
                until = min(until, trio.current_time() + POLL_S)
            await self._pacer.wait(max(0.0, until - trio.current_time()))

    async def _change(self, renewed: set[UUID]) -> None:
        """Update the watches in the database. Raises if the connection broke."""
        job_ids, gone = sorted(renewed), self._kept - self._wanted
        new, self._new = self._new & renewed, set()
        if job_ids:
            self._kept |= renewed
            await self._port.cross(
                watches.watch, self._session, watcher=self._watcher, job_ids=job_ids, new=new
            )
        if gone:
            await self._port.cross(
                watches.unwatch, self._session, watcher=self._watcher, job_ids=sorted(gone)
            )
            self._kept -= gone

    async def _poll(self) -> None:
        """Receive messages since the last poll."""
        rows = await self._port.cross(watches.said, self._session, self._polled)
        self._polled = set(rows)
        for payload in rows.values():
            if payload is not None:
                self._heard(payload)

    async def _close(self) -> None:
        if self._kept and self._session.is_open:
            try:
                await self._port.cross(
                    watches.unwatch,
                    self._session,
                    watcher=self._watcher,
                    job_ids=sorted(self._kept),
                )
            except CortexError as error:
                _log.warning("watches not deleted", error=error.message)
        await self._port.close(self._session)

    def _hint(self) -> None:
        self._is_hinted = True
        self._pacer.wake()

    def _heard(self, payload: str) -> None:
        try:
            messages = messages_of(payload)
        except ValueError as error:
            _log.warning("message of another version", error=str(error))
            return
        for message in messages:
            self.hear(message)
