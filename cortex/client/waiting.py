"""Waits for the ends of jobs: one connection listens for all waits of a client.

Owns: who waits for which job, and a dedicated connection that is open only while there are waits.
Invariants: a wait is committed before its job is looked at, so that an end is either seen or
notified. An end that commits between these two is found by looking again soon. Looking again
seldom covers what a notification missed. Behind a pooler, where LISTEN is impossible, each job is
looked at up to four times a second.

On failure: the connection is reopened with jittered backoff, and every wait begins again; only a
refusal by the database, such as a missing grant, ends the waits.
On stop: the waits end with an error, and the connection is cut.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

import attrs

from cortex.client.following import missing
from cortex.domain.backoff import Backoff
from cortex.domain.errors import (
    CortexError,
    TimedOutError,
    UnavailableError,
)
from cortex.domain.job_feed import CodeWait, JobState
from cortex.postgres.database import Profile
from cortex.postgres.dedicated import Dedicated
from cortex.store import clients, feed

WAITS_MAX: Final = 100_000
LINGER_S: Final = 5.0
"""How long the connection stays open after the last wait; another one may come."""
GATHER_S: Final = 0.002
"""Pause between two reads, in which others gather."""
FIRST_READ_S: Final = 2.0
"""How long a wait may last beyond its deadline for its first look at the job."""
STALE_S: Final = 15.0
"""Longer than between two looks: an older one says nothing about the database."""
READ_MAX: Final = 1_000
"""Jobs in one statement."""
LISTENING: Final = Backoff(base_s=0.03, cap_s=5.0, multiplier=4.0)
POLLING: Final = Backoff(base_s=0.03, cap_s=0.25, multiplier=2.0)
REOPENING: Final = Backoff(base_s=0.1, cap_s=2.0)


@attrs.define(eq=False)
class _Wait:
    """One caller that waits for one job."""

    end: asyncio.Future[JobState]
    is_read: asyncio.Event = attrs.field(factory=asyncio.Event)
    read_at: float = float("-inf")
    """The loop's clock: when the job was last found unfinished."""
    code: CodeWait | None = None


class Waits:
    """The waits of one client, in its event loop."""

    def __init__(self, profile: Profile, *, rng: random.Random, new_id: Callable[[], UUID]) -> None:
        self._profile = profile
        self._rng = rng
        self._new_id = new_id
        self._waits: dict[UUID, dict[_Wait, None]] = {}
        self._count = 0
        self._new: set[UUID] = set()
        self._ended: set[UUID] = set()
        self._due: list[tuple[float, int, UUID]] = []
        """When to look at which job again, after how many looks: a heap."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._trouble: CortexError | None = None
        self._is_closed = False

    async def end_of(self, job_id: UUID, timeout_s: float) -> JobState:
        """Return how a job ended, as soon as it has.

        Raises `TimedOutError` after `timeout_s` seconds, `NotFoundError` for a job that does not
        exist, or not for this login, and `UnavailableError` when the database has not answered.
        """
        if self._is_closed:
            raise UnavailableError("this client is closed")
        if self._count >= WAITS_MAX:
            raise UnavailableError(f"{WAITS_MAX:,} waits for jobs already", hint="wait for fewer")
        wait = _Wait(asyncio.get_running_loop().create_future())
        self._enter(job_id, wait)
        try:
            await asyncio.wait({wait.end}, timeout=timeout_s)
            if not wait.end.done() and not wait.is_read.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(wait.is_read.wait(), FIRST_READ_S)
            if wait.end.done():
                return wait.end.result()
            raise self._late(job_id, wait, timeout_s)
        finally:
            self._leave(job_id, wait)

    async def close(self) -> None:
        """End all waits with an error, and cut the connection."""
        self._is_closed = True
        self._fail(self._waits, UnavailableError("this client was closed"))
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _enter(self, job_id: UUID, wait: _Wait) -> None:
        self._waits.setdefault(job_id, {})[wait] = None
        self._count += 1
        self._new.add(job_id)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="cortex client waits")

    def _leave(self, job_id: UUID, wait: _Wait) -> None:
        self._count -= 1
        waits = self._waits[job_id]
        del waits[wait]
        if not waits:
            del self._waits[job_id]
        if wait.end.done() and not wait.end.cancelled():
            wait.end.exception()  # it is retrieved

    def _late(self, job_id: UUID, wait: _Wait, timeout_s: float) -> CortexError:
        age_s = asyncio.get_running_loop().time() - wait.read_at
        if age_s > STALE_S or (self._trouble is not None and not wait.is_read.is_set()):
            trouble = "" if self._trouble is None else f": {self._trouble.message}"
            return UnavailableError(
                f"job {job_id} could not be looked at{trouble}", hint="wait for it again later"
            )
        hint = f"it goes on: wait again, or look: cortex why {job_id}"
        if wait.code is not None:
            misfit = wait.code.misfit or "no pod has its type or its tools"
            text = f"job {job_id} waits for code that can take it: {misfit}"
            return TimedOutError(text, hint=hint, limit_s=timeout_s)
        return TimedOutError(
            f"job {job_id} has not ended within {timeout_s:g} s", hint=hint, limit_s=timeout_s
        )

    async def _run(self) -> None:
        failures = 0
        while self._waits:
            session = Dedicated(self._profile, on_lost=self._wake.set)
            try:
                await session.open()
                self._trouble = None
                await self._serve(session)
                failures = 0
            except UnavailableError as error:
                self._trouble = error
                failures += 1
            except CortexError as error:
                failures += 1
                self._fail(self._waits, error)
            finally:
                session.cut()
            if failures:
                await asyncio.sleep(REOPENING.pause_s(failures, rng=self._rng, least=0.5))

    async def _serve(self, session: Dedicated) -> None:
        """Serve the waits on this connection until there are none for a while."""
        loop = asyncio.get_running_loop()
        client = self._new_id()
        again = POLLING if session.is_pooled else LISTENING
        if not session.is_pooled:
            await clients.listen(session, client, self._hear)
        self._new, self._ended, self._due = set(self._waits), set(), []
        renew_at = loop.time() + clients.RENEW_S
        left_at = loop.time()
        while True:
            self._wake.clear()
            if not session.is_open:
                raise UnavailableError("the connection was lost")
            now = loop.time()
            if self._waits:
                left_at = now
            elif now >= left_at + LINGER_S:
                return
            fresh, self._new = self._new & self._waits.keys(), set()
            renewed = set(self._waits) if now >= renew_at else fresh
            if renewed and not session.is_pooled:
                for some in _batches(renewed):
                    await clients.wait(session, client=client, job_ids=some)
            if now >= renew_at:
                renew_at = now + clients.RENEW_S
            ended, self._ended = self._ended & self._waits.keys(), set()
            looks = dict.fromkeys(fresh | ended, 0) | self._take_due(now)
            for some in _batches(looks):
                await self._read(session, {job_id: looks[job_id] for job_id in some}, again)
            until = min(
                renew_at if self._waits else left_at + LINGER_S,
                self._due[0][0] if self._due else renew_at,
            )
            await self._pause(until)

    async def _pause(self, until: float) -> None:
        await asyncio.sleep(GATHER_S)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._wake.wait()

    def _take_due(self, now: float) -> dict[UUID, int]:
        """Return the jobs to look at again now, with the number of looks so far."""
        taken: dict[UUID, int] = {}
        while self._due and self._due[0][0] <= now:
            _, looks, job_id = heapq.heappop(self._due)
            if job_id in self._waits:
                taken[job_id] = looks
        return taken

    async def _read(self, session: Dedicated, looks: dict[UUID, int], again: Backoff) -> None:
        results = await feed.results(session, list(looks))
        now = asyncio.get_running_loop().time()
        for job_id, count in looks.items():
            if job_id in results.left_out:
                heapq.heappush(self._due, (now, count, job_id))
                continue
            if (state := results.ended.get(job_id)) is not None:
                self._answer(job_id, state)
            elif job_id in results.unknown:
                self._fail([job_id], missing(job_id))
            else:
                for wait in self._waits.get(job_id, ()):
                    wait.read_at, wait.code = now, results.waiting.get(job_id)
                    wait.is_read.set()
                heapq.heappush(self._due, (now + again.longest_s(count + 1), count + 1, job_id))

    def _answer(self, job_id: UUID, state: JobState) -> None:
        for wait in self._waits.get(job_id, ()):
            if not wait.end.done():
                wait.end.set_result(state)
            wait.is_read.set()

    def _fail(self, job_ids: Iterable[UUID], error: CortexError) -> None:
        for job_id in job_ids:
            for wait in self._waits.get(job_id, ()):
                if not wait.end.done():
                    wait.end.set_exception(type(error)(error.message, hint=error.hint))
                wait.is_read.set()

    def _hear(self, job_ids: list[UUID]) -> None:
        if known := self._waits.keys() & set(job_ids):
            self._ended |= known
            self._wake.set()


def _batches(job_ids: Iterable[UUID]) -> list[Sequence[UUID]]:
    ordered = sorted(job_ids)
    return [ordered[at : at + READ_MAX] for at in range(0, len(ordered), READ_MAX)]
