"""Waits for the ends of jobs on behalf of many clients: one statement for all of them.

Owns: who waits for which job. Reads: the jobs that are waited for, at most four times a second and
less while nothing changes; nothing while nobody waits.
Invariants: a waiter that leaves is forgotten at once; one that came is looked for soon after, and
so is a job that ended in this very pod. Nobody is told that a job goes on without a recent look.

On failure: an outage is waited out; who reaches his deadline in it gets an `UnavailableError`.
On stop: whoever still waits is cancelled with its own task.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import attrs
import structlog
import trio

from cortex.actors.reply import Reply
from cortex.domain.errors import NotFoundError, UnavailableError
from cortex.domain.job_feed import JobState
from cortex.postgres.bridge import Port
from cortex.runtime.clients.poller import Poller
from cortex.store import feed
from cortex.store.feed import Results

WAITERS_MAX: Final = 10_000
FIRST_LOOK_S: Final = 2.0
"""What a waiter may stay beyond its deadline for its first look."""
STALE_S: Final = 2.5
"""Above the longest time between two looks: an older one tells nothing any more."""

_log = structlog.get_logger(__name__)


@attrs.define(eq=False)
class _Waiter:
    """One client that waits for one job."""

    reply: Reply[JobState | None] = attrs.field(factory=Reply)
    seen_at: float = -math.inf
    """Trio's clock: when the newest look began that found its job going on."""
    is_late: bool = False
    """Past its deadline: the next look answers it, whatever it finds."""


class ResultWaiters:
    """The actor; clients call `result`."""

    name = "result waiters"

    def __init__(self, port: Port) -> None:
        self._port = port
        self._waiting: dict[UUID, dict[_Waiter, None]] = {}
        self._count = 0
        self.looks = Poller()
        self._is_cut_off = False

    def __len__(self) -> int:
        return self._count

    async def result(self, job_id: UUID, wait_s: float) -> JobState | None:
        """Return how a job has ended, as soon as it has; None if it goes on after `wait_s` seconds.

        With 0 it looks once. Raises `NotFoundError`, and `UnavailableError` when too many wait
        already, or at the deadline when the database does not answer.
        """
        if self._count >= WAITERS_MAX:
            raise UnavailableError(
                f"{WAITERS_MAX} clients wait for results already", hint="ask again in a moment"
            )
        waiter = _Waiter()
        with self._entered(job_id, waiter):
            with trio.move_on_after(wait_s):
                return await waiter.reply.wait()
            if waiter.seen_at == -math.inf and not waiter.reply.answered:
                waiter.is_late = True
                with trio.move_on_after(FIRST_LOOK_S):
                    return await waiter.reply.wait()
            if waiter.reply.answered:
                return await waiter.reply.wait()
            if trio.current_time() - waiter.seen_at > STALE_S:
                raise UnavailableError("the database does not answer", hint="ask again in a moment")
            return None

    def ended(self, job_id: UUID) -> None:
        """An attempt of this job has ended in this pod."""
        if job_id in self._waiting:
            self.looks.hint()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look while anybody waits, until cancelled."""
        task_status.started()
        while True:
            await self.looks.turn()
            if self._waiting:
                await self.tick()

    async def tick(self) -> None:
        """Look once at all jobs that are waited for."""
        began = trio.current_time()
        is_news = self.looks.began()
        asked = {job_id: list(waiters) for job_id, waiters in self._waiting.items()}
        try:
            found = await self._port(feed.results, list(asked))
        except UnavailableError as error:
            tell = _log.debug if self._is_cut_off else _log.warning
            tell("results not read", waiters=self._count, error=error.message)
            self._is_cut_off = True
            _fail_the_late(asked.values(), error)
        else:
            self._is_cut_off = False
            _answer(asked, found, began=began)
            is_news = is_news or bool(found.ended)
            if found.left_out:
                self.looks.hint()
        self.looks.ended(began, found=is_news)

    @contextmanager
    def _entered(self, job_id: UUID, waiter: _Waiter) -> Iterator[None]:
        self._waiting.setdefault(job_id, {})[waiter] = None
        self._count += 1
        self.looks.wanted()
        try:
            yield
        finally:
            self._count -= 1
            waiters = self._waiting[job_id]
            del waiters[waiter]
            if not waiters:
                del self._waiting[job_id]
            if not self._waiting:
                self.looks.unwanted()


def _answer(asked: Mapping[UUID, list[_Waiter]], found: Results, *, began: float) -> None:
    for job_id, waiters in asked.items():
        state = found.ended.get(job_id)
        for waiter in waiters:
            if waiter.reply.answered:
                continue
            if state is not None:
                waiter.reply.set(state)
            elif job_id in found.unknown:
                missing = NotFoundError(f"job {job_id} does not exist")
                waiter.reply.fail(missing)
            elif job_id not in found.left_out:
                waiter.seen_at = began
                if waiter.is_late:
                    waiter.reply.set(None)


def _fail_the_late(asked: Iterable[list[_Waiter]], error: UnavailableError) -> None:
    for waiter in (waiter for waiters in asked for waiter in waiters):
        if waiter.is_late and not waiter.reply.answered:
            waiter.reply.fail(UnavailableError(error.message, hint=error.hint))
