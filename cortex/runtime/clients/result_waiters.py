"""Waits for the ends of jobs on behalf of many clients, in one statement for all of them.

Owns: who waits for which job. Reads: the awaited jobs, at most four times a second, less often
while nothing changes, and never without waiters.

Invariants: a waiter that leaves is dropped at once; a new waiter, or a job that ended in this pod,
causes a poll soon. "Still running" is only returned after a recent poll.

On failure: an outage is waited out; a waiter that reaches its deadline meanwhile gets an
`UnavailableError`.
On stop: waiters are cancelled with their own tasks.
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
from cortex.domain.job_feed import CodeWait, JobState
from cortex.postgres.bridge import Port
from cortex.runtime.clients.poller import Poller
from cortex.runtime.running import Observer, RunningJob
from cortex.store import feed
from cortex.store.feed import Results

WAITERS_MAX: Final = 10_000
FIRST_POLL_S: Final = 2.0
"""How long a waiter may stay beyond its deadline for its first poll."""
STALE_S: Final = 2.5
"""Above the longest time between two polls: an older result is stale."""

_log = structlog.get_logger(__name__)


@attrs.define(eq=False)
class _Waiter:
    """One client that waits for one job."""

    reply: Reply[JobState | CodeWait | None] = attrs.field(factory=Reply)
    polled_at: float = -math.inf
    """Trio's clock: when the newest poll began that found the job unfinished."""
    is_late: bool = False
    """Past its deadline: the next poll answers it in any case."""


class ResultWaiters(Observer):
    """The actor; clients call `result`."""

    name = "result waiters"

    def __init__(self, port: Port) -> None:
        self._port = port
        self._waiting: dict[UUID, dict[_Waiter, None]] = {}
        self._count = 0
        self.poller = Poller()
        self._is_cut_off = False

    def __len__(self) -> int:
        return self._count

    async def result(self, job_id: UUID, wait_s: float) -> JobState | CodeWait | None:
        """Return how a job has ended, as soon as it has; None if it goes on after `wait_s` seconds.

        A job that waits for code is answered at once. With 0 it polls once. Raises `NotFoundError`,
        and `UnavailableError` when there are too many waiters, or when the database has not
        answered by the deadline.
        """
        if self._count >= WAITERS_MAX:
            raise UnavailableError(
                f"{WAITERS_MAX} clients wait for results already", hint="try again in a moment"
            )
        waiter = _Waiter()
        with self._entered(job_id, waiter):
            with trio.move_on_after(wait_s):
                return await waiter.reply.wait()
            if waiter.polled_at == -math.inf and not waiter.reply.answered:
                waiter.is_late = True
                with trio.move_on_after(FIRST_POLL_S):
                    return await waiter.reply.wait()
            if waiter.reply.answered:
                return await waiter.reply.wait()
            if trio.current_time() - waiter.polled_at > STALE_S:
                raise UnavailableError("the database does not answer", hint="try again in a moment")
            return None

    def job_ended(self, job: RunningJob) -> None:
        if job.lease.job_id in self._waiting:
            self.poller.hint()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Poll while there are waiters, until cancelled."""
        task_status.started()
        while True:
            await self.poller.turn()
            if self._waiting:
                await self.tick()

    async def tick(self) -> None:
        """Read once all jobs that are waited for."""
        began = trio.current_time()
        is_news = self.poller.began()
        waiting = {job_id: list(waiters) for job_id, waiters in self._waiting.items()}
        try:
            results = await self._port(feed.results, list(waiting))
        except UnavailableError as error:
            write = _log.debug if self._is_cut_off else _log.warning
            write("results not read", waiters=self._count, error=error.message)
            self._is_cut_off = True
            _fail_the_late(waiting.values(), error)
        else:
            self._is_cut_off = False
            _answer(waiting, results, began=began)
            is_news = is_news or bool(results.ended)
            if results.left_out:
                self.poller.hint()
        self.poller.ended(began, found=is_news)

    @contextmanager
    def _entered(self, job_id: UUID, waiter: _Waiter) -> Iterator[None]:
        self._waiting.setdefault(job_id, {})[waiter] = None
        self._count += 1
        self.poller.wanted()
        try:
            yield
        finally:
            self._count -= 1
            waiters = self._waiting[job_id]
            del waiters[waiter]
            if not waiters:
                del self._waiting[job_id]
            if not self._waiting:
                self.poller.unwanted()


def _answer(waiting: Mapping[UUID, list[_Waiter]], results: Results, *, began: float) -> None:
    for job_id, waiters in waiting.items():
        state = results.ended.get(job_id) or results.waiting.get(job_id)
        for waiter in waiters:
            if waiter.reply.answered:
                continue
            if state is not None:
                waiter.reply.set(state)
            elif job_id in results.unknown:
                missing = NotFoundError(f"job {job_id} does not exist")
                waiter.reply.fail(missing)
            elif job_id not in results.left_out:
                waiter.polled_at = began
                if waiter.is_late:
                    waiter.reply.set(None)


def _fail_the_late(waiting: Iterable[list[_Waiter]], error: UnavailableError) -> None:
    for waiter in (waiter for waiters in waiting for waiter in waiters):
        if waiter.is_late and not waiter.reply.answered:
            waiter.reply.fail(UnavailableError(error.message, hint=error.hint))
