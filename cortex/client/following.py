"""Follows the events of jobs: one statement at a time for all followers of a client.

Owns: who waits for events after which position. Reads them at most ten times a second, less often
while nothing happens, and never without followers. A follower has its own position: nothing is
left behind when it leaves.

On failure: an outage is waited out, until the follower's deadline.
On stop: followers end with an error.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.errors import (
    CortexError,
    NotFoundError,
    TimedOutError,
    UnavailableError,
)
from cortex.domain.job_feed import Happened, JobEvent, Position, events_after
from cortex.domain.poll_rate import PollRate
from cortex.postgres.database import Database
from cortex.store import feed

FOLLOWERS_MAX: Final = 10_000
READ_MAX: Final = 500
"""Positions in one statement."""
FIRST_READ_S: Final = 2.0
"""How long following may last beyond its deadline for its first read."""
GAP_S: Final = 0.1
QUIET_GAP_S: Final = 0.5

Place = tuple[UUID, Position]


@attrs.frozen
class News:
    """The events of a job after a position."""

    events: Sequence[JobEvent]
    is_over: bool
    """The job has ended, and these are its last events."""


@attrs.define(eq=False)
class _Follower:
    """One caller that waits for events after a position."""

    place: Place
    news: asyncio.Future[News]
    is_read: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Its events were read once."""


class Followers:
    """The followers of one client, in its event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[_Follower, None] = {}
        self._rate = PollRate(gap_s=GAP_S, quiet_gap_s=QUIET_GAP_S)
        self._reason = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._trouble: CortexError | None = None
        self._is_closed = False

    async def after(self, job_id: UUID, position: Position, timeout_s: float) -> News:
        """Return the next events of a job after a position, as soon as there are any.

        Raises `TimedOutError`, `NotFoundError` and `UnavailableError` as `Waits.end_of` does.
        """
        if self._is_closed:
            raise UnavailableError("this client is closed")
        if len(self._waiting) >= FOLLOWERS_MAX:
            raise UnavailableError(f"{FOLLOWERS_MAX:,} followers of jobs already")
        news: asyncio.Future[News] = asyncio.get_running_loop().create_future()
        follower = _Follower((job_id, position), news)
        self._waiting[follower] = None
        self._reason.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="cortex client events")
        try:
            await asyncio.wait({news}, timeout=timeout_s)
            if not news.done() and not follower.is_read.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(follower.is_read.wait(), FIRST_READ_S)
            if news.done():
                return news.result()
        finally:
            del self._waiting[follower]
            if news.done() and not news.cancelled():
                news.exception()  # it is retrieved
        if self._trouble is not None:
            raise UnavailableError(
                f"the events of job {job_id} could not be read: {self._trouble.message}",
                hint="follow it again later",
            )
        raise TimedOutError(
            f"job {job_id} has not ended within the time to follow it",
            hint="it goes on: follow it again, with a longer timeout",
        )

    async def close(self) -> None:
        """End all followers with an error."""
        self._is_closed = True
        self._fail(list(self._waiting), UnavailableError("this client was closed"))
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._rate.due):
                    await self._reason.wait()
            await asyncio.sleep(max(0.0, self._rate.soonest - loop.time()))
            is_news, began = self._reason.is_set(), loop.time()
            self._reason.clear()
            try:
                found = await self._read()
                self._trouble = None
            except UnavailableError as error:
                self._trouble = error
                found = False
            except CortexError as error:
                self._fail(list(self._waiting), error)
                found = False
            self._rate.polled(began, found=found or is_news)

    async def _read(self) -> bool:
        """Read once for all followers; return whether anything happened."""
        waiting = [each for each in self._waiting if not each.news.done()]
        places = list(dict.fromkeys(each.place for each in waiting))
        happened: dict[Place, Happened | None] = {}
        for at in range(0, len(places), READ_MAX):
            happened |= await feed.since(self._db, places[at : at + READ_MAX])
        for each in waiting:
            if not each.news.done() and each.place in happened:
                self._answer(each, happened[each.place])
            each.is_read.set()
        return bool(happened)

    def _answer(self, follower: _Follower, happened: Happened | None) -> None:
        job_id, position = follower.place
        if happened is None:
            self._fail([follower], missing(job_id))
        elif events := events_after(position, happened):
            follower.news.set_result(News(events, happened.is_over))
        elif happened.is_over:
            follower.news.set_result(News((), is_over=True))

    def _fail(self, some: Sequence[_Follower], error: CortexError) -> None:
        for each in some:
            if not each.news.done():
                each.news.set_exception(type(error)(error.message, hint=error.hint))
            each.is_read.set()


def missing(job_id: UUID) -> NotFoundError:
    """Return the error for a job that this login cannot read, for whatever reason."""
    return NotFoundError(
        f"job {job_id} does not exist for this login",
        hint="retention deleted it, it is in another database, or another login submitted it",
    )
