"""Handles of submitted jobs, for asyncio and trio, and for code without an event loop."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

import attrs

from cortex.client.core import WAIT_DEFAULT_S, Core, checked_timeout
from cortex.client.loops import Loop, ThreadLoop
from cortex.client.outcome import result_of
from cortex.client.signals import Signal
from cortex.client.submission import SubmittableJob
from cortex.domain.errors import TimedOutError
from cortex.domain.job_feed import START, EventKind, JobEvent, Position

if TYPE_CHECKING:
    from cortex.store.jobs import Cancellation
    from cortex.store.published import JobShows

R = TypeVar("R")
Submitted = SubmittableJob[Any] | str | None


@attrs.frozen(eq=False, repr=False)
class Handle(Generic[R]):
    """A submitted job. Keep its `id` to get it again: `client.handle(id, job)`."""

    id: UUID
    _core: Core
    _loop: Loop
    _job: Submitted
    is_new: bool = attrs.field(default=True, kw_only=True)
    """False: the submit stands for a job that existed, by its key or the rule of its type."""

    def __repr__(self) -> str:
        return f"<Handle of job {self.id}>"

    async def result(self, timeout: float = WAIT_DEFAULT_S) -> R:
        """Wait for the job's end and return its result, in the type that the handler declares.

        Survives a restart of the database. Cancelling it leaves the job alone. Raises
        `JobFailedError`, `JobCancelledError`, `TimedOutError` after `timeout` seconds,
        `NotFoundError` for a job that retention deleted or another login submitted, and
        `UnavailableError` if the database has not answered.
        """
        timeout_s = checked_timeout(timeout)
        state = await self._loop.run(partial(self._core.waits.end_of, self.id, timeout_s))
        return cast("R", result_of(state, self._job))

    def events(self, timeout: float = WAIT_DEFAULT_S) -> AsyncIterator[JobEvent]:
        """Iterate over what happens to the job, from its beginning to its end.

        Raises `TimedOutError` when the job has not ended within `timeout` seconds, and what
        `result` raises for a job that cannot be read.
        """
        return _Events(self, checked_timeout(timeout))

    async def signal(
        self, name: str, payload: object = None, *, idempotency_key: str | None = None
    ) -> UUID:
        """Send the job a signal, which `ctx.receive(name)` gets; return the signal's id.

        It waits until the job receives it. Sending it again under the same `idempotency_key` does
        nothing. Raises `ConflictError` if the job has ended, `NotFoundError`, `KeyReusedError`.
        """
        wanted = Signal.of(name, payload, job=self.id, idempotency_key=idempotency_key)
        return await self._loop.run(partial(self._core.signal, wanted))

    def stream(self, timeout: float = WAIT_DEFAULT_S) -> AsyncIterator[Any]:
        """Iterate over the chunks that the job emits, from the first one to the job's end.

        Each comes once and in order. Whether the job failed is what `result` says. Raises as
        `events`.
        """
        return _Chunks(self.events(timeout))

    async def state(self) -> "JobShows":
        """Return the state and the progress that the job has published.

        Raises `NotFoundError` for a job that this login cannot read.
        """
        return await self._loop.run(partial(_state, self._core, self.id))

    async def cancel(self, reason: str, *, by: str | None = None) -> "Cancellation":
        """Cancel the job, or request it from the pod that runs it; needs `cortex_runtime`.

        `by`: the person, by default the login. Raises `ConflictError` if the job has ended.
        """
        from cortex.client.operations import cancel  # noqa: PLC0415 -- for those who use it

        return await self._loop.run(partial(cancel, self._core, self.id, by=by, reason=reason))


async def _state(core: Core, job_id: UUID) -> "JobShows":
    from cortex.client.following import missing  # noqa: PLC0415 -- for those who use it
    from cortex.store import published  # noqa: PLC0415

    found = await published.of_job(core.db, job_id)
    if found is None:
        raise missing(job_id)
    return found


class _Events(AsyncIterator[JobEvent]):
    def __init__(self, handle: Handle[Any], timeout_s: float) -> None:
        self._handle = handle
        self._cursor = _Cursor(handle._core, handle.id, timeout_s)  # noqa: SLF001 -- its own module

    async def __anext__(self) -> JobEvent:
        if (event := self._cursor.take()) is not None:
            return event
        if self._cursor.is_over:
            raise StopAsyncIteration
        await self._handle._loop.run(self._cursor.read)  # noqa: SLF001
        return await self.__anext__()


class _Chunks(AsyncIterator[Any]):
    def __init__(self, events: AsyncIterator[JobEvent]) -> None:
        self._events = events

    async def __anext__(self) -> Any:
        while (event := await anext(self._events)).kind is not EventKind.EMITTED:
            pass
        return event.data["chunk"]


@attrs.frozen(eq=False, repr=False)
class SyncHandle(Generic[R]):
    """A submitted job, for code without an event loop; see `Handle`."""

    id: UUID
    _core: Core
    _loop: ThreadLoop
    _job: Submitted
    is_new: bool = attrs.field(default=True, kw_only=True)
    """As `Handle.is_new`."""

    def __repr__(self) -> str:
        return f"<SyncHandle of job {self.id}>"

    def result(self, timeout: float = WAIT_DEFAULT_S) -> R:
        """Wait for the job's end and return its result; raises as `Handle.result`."""
        timeout_s = checked_timeout(timeout)
        state = self._loop.call(partial(self._core.waits.end_of, self.id, timeout_s))
        return cast("R", result_of(state, self._job))

    def events(self, timeout: float = WAIT_DEFAULT_S) -> Iterator[JobEvent]:
        """Iterate over what happens to the job, as `Handle.events` does."""
        cursor = _Cursor(self._core, self.id, checked_timeout(timeout))
        while True:
            while (event := cursor.take()) is not None:
                yield event
            if cursor.is_over:
                return
            self._loop.call(cursor.read)

    def signal(
        self, name: str, payload: object = None, *, idempotency_key: str | None = None
    ) -> UUID:
        """Send the job a signal, as `Handle.signal` does."""
        wanted = Signal.of(name, payload, job=self.id, idempotency_key=idempotency_key)
        return self._loop.call(partial(self._core.signal, wanted))

    def stream(self, timeout: float = WAIT_DEFAULT_S) -> Iterator[Any]:
        """Iterate over the chunks that the job emits, as `Handle.stream` does."""
        for event in self.events(timeout):
            if event.kind is EventKind.EMITTED:
                yield event.data["chunk"]

    def state(self) -> "JobShows":
        """Return what the job has published, as `Handle.state` does."""
        return self._loop.call(partial(_state, self._core, self.id))

    def cancel(self, reason: str, *, by: str | None = None) -> "Cancellation":
        """Cancel the job, as `Handle.cancel` does."""
        from cortex.client.operations import cancel  # noqa: PLC0415

        return self._loop.call(partial(cancel, self._core, self.id, by=by, reason=reason))


class _Cursor:
    """How far one iterator has followed a job."""

    def __init__(self, core: Core, job_id: UUID, timeout_s: float) -> None:
        self._core = core
        self._job_id = job_id
        self._timeout_s = timeout_s
        self._until: float | None = None
        self._position: Position = START
        self._events: list[JobEvent] = []
        self._has_all = False

    @property
    def is_over(self) -> bool:
        return self._has_all and not self._events

    def take(self) -> JobEvent | None:
        """Return the next event that was read."""
        return self._events.pop() if self._events else None

    async def read(self) -> None:
        """Wait for more events, or for the end."""
        import asyncio  # noqa: PLC0415 -- runs in the client's loop

        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._timeout_s
        left_s = max(0.0, self._until - now)
        try:
            news = await self._core.followers.after(self._job_id, self._position, left_s)
        except TimedOutError as error:
            raise TimedOutError(
                f"job {self._job_id} has not ended within {self._timeout_s:g} s",
                hint=error.hint,
                limit_s=self._timeout_s,
            ) from None
        self._has_all = news.is_over
        if news.events:
            self._position = news.events[-1].position
            self._events = list(reversed(news.events))
