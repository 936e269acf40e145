"""`Client`: submits jobs from a program that runs in asyncio or trio, and waits for them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload
from uuid import UUID

from cortex.client.core import Core, job_id_of
from cortex.client.handles import Handle, Submitted
from cortex.client.loops import Loop, current_loop
from cortex.client.signals import Signal
from cortex.client.sql import Sql
from cortex.client.submission import Options, SharedOptions, SubmittableJob, split

if TYPE_CHECKING:
    from cortex.domain.approvals.approval import ApprovalRow
    from cortex.domain.dead_letter import DeadLetter
    from cortex.store.approvals import VoteResult
    from cortex.store.jobs import ListedJob

R = TypeVar("R")


class Client:
    """Jobs of a database, for a program that runs none: `client = await Client.connect(dsn)`.

    Needs a login with `cortex_submitter` to submit jobs and wait for them, and `cortex_runtime`
    for all else. One client serves a whole process, or one event loop of it.
    """

    def __init__(self, core: Core, loop: Loop) -> None:
        """Not called by programs: see `connect`."""
        self._core = core
        self._loop = loop
        self.sql = Sql(core.chance)
        self.jobs = Jobs(core, loop)
        self.approvals = Approvals(core, loop)
        self.dead = DeadLetters(core, loop)

    @classmethod
    async def connect(cls, dsn: str, *, connections: int = 4, tenant: str | None = None) -> Self:
        """Connect to the database of your pods, in asyncio or trio.

        At most `connections` calls use the database at a time; one more connection waits for the
        ends of jobs. A client of one `tenant` submits its jobs, and sees and changes no others.
        Raises `UsageError`, `UnavailableError`, `SchemaError` for a database without Cortex or of
        another version, and `ForbiddenError` for a login without rights.
        """
        loop = current_loop()
        try:
            core = await loop.run(partial(Core.open, dsn, connections=connections, tenant=tenant))
        except BaseException:
            loop.stop()
            raise
        return cls(core, loop)

    async def close(self) -> None:
        """Close all connections; waits that go on end with `UnavailableError`."""
        if self._loop.is_stopped:
            return
        try:
            await self._loop.finish(self._core.close)
        finally:
            self._loop.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await self.close()  # noqa: ASYNC102 -- a cancelled caller need not wait for it

    @overload
    async def submit(
        self,
        job: SubmittableJob[R],
        /,
        *,
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
        job_key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        due_by: datetime | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        tags: Sequence[str] = (),
        traceparent: str | None = None,
        by: str | None = None,
        **arguments: Any,
    ) -> Handle[R]: ...
    @overload
    async def submit(
        self,
        job: SubmittableJob[Any] | str,
        /,
        *,
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
        job_key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        due_by: datetime | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        tags: Sequence[str] = (),
        traceparent: str | None = None,
        by: str | None = None,
        **arguments: Any,
    ) -> Handle[Any]: ...
    async def submit(
        self,
        job: SubmittableJob[Any] | str,
        /,
        *,
        payload: Mapping[str, Any] | None = None,
        key: str | None = None,
        job_key: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        due_by: datetime | None = None,
        timeout_s: int | None = None,
        max_retries: int | None = None,
        agent: str | None = None,
        tenant: str | None = None,
        tags: Sequence[str] = (),
        traceparent: str | None = None,
        by: str | None = None,
        **arguments: Any,
    ) -> Handle[Any]:
        """Submit a job with the handler's arguments by name, or all of them in `payload`.

        `key`: submitting again with it within 24 hours returns the first job. `job_key` replaces
        the job that still waits under it. See `Options` for the others. The rule of a type
        (singleton, debounce, throttle) may name a job that exists: see `Handle.is_new`.

        Raises `InvalidValueError` for arguments that neither the handler nor a ready pod takes,
        `UsageError` for options, `KeyReusedError` for a key of another submit.
        """
        named, options = split(job, locals())
        job_id, is_new = await self._loop.run(partial(self._core.submit, job, named, options))
        return Handle(job_id, self._core, self._loop, job, is_new=is_new)

    @overload
    async def submit_many(
        self,
        job: SubmittableJob[R],
        payloads: Iterable[Mapping[str, Any]],
        /,
        **options: Unpack[SharedOptions],
    ) -> list[Handle[R]]: ...
    @overload
    async def submit_many(
        self,
        job: SubmittableJob[Any] | str,
        payloads: Iterable[Mapping[str, Any]],
        /,
        **options: Unpack[SharedOptions],
    ) -> list[Handle[Any]]: ...
    async def submit_many(
        self,
        job: SubmittableJob[Any] | str,
        payloads: Iterable[Mapping[str, Any]],
        /,
        **options: Unpack[SharedOptions],
    ) -> list[Handle[Any]]:
        """Submit many jobs of one type in one transaction: all or none; see `submit`."""
        shared = Options.of(options)
        given = list(payloads)  # here: trio's calls run in another thread
        done = await self._loop.run(partial(self._core.submit_many, job, given, shared))
        return [Handle(each, self._core, self._loop, job, is_new=is_new) for each, is_new in done]

    async def signal(
        self,
        name: str,
        payload: object = None,
        *,
        key: str,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Send a signal to a key, for the job that asks for it: `ctx.receive(name, key=key)`.

        That job may come later: the signal is kept for 24 hours. Returns the signal's id; sending
        it again under the same `idempotency_key` does nothing. What a login sends that may only
        submit, the jobs that it has submitted receive. To signal one job: `Handle.signal`.
        """
        wanted = Signal.of(name, payload, key=key, tenant=tenant, idempotency_key=idempotency_key)
        return await self._loop.run(partial(self._core.signal, wanted))

    @overload
    def handle(self, job_id: UUID | str, job: SubmittableJob[R]) -> Handle[R]: ...
    @overload
    def handle(self, job_id: UUID | str, job: None = None) -> Handle[Any]: ...
    def handle(self, job_id: UUID | str, job: Submitted = None) -> Handle[Any]:
        """Return the handle of a job that was submitted before; `job` is its type.

        Without the type the result stays plain JSON. Does not look whether the job exists.
        """
        return Handle(job_id_of(job_id), self._core, self._loop, job)


class _Part:
    def __init__(self, core: Core, loop: Loop) -> None:
        self._core = core
        self._loop = loop


class Jobs(_Part):
    """The jobs of everybody; needs `cortex_runtime`."""

    async def list(
        self,
        filter: str = "",  # noqa: A002 -- as on the command line
        *,
        limit: int = 50,
        before: UUID | str | None = None,
    ) -> "list[ListedJob]":
        """Return the newest matching jobs: `filter="status:failed agent:x age<1h"`.

        `before`: only jobs older than this one, for the next page. Raises `UsageError` for a
        filter that is none.
        """
        from cortex.client.operations import list_jobs  # noqa: PLC0415 -- for those who use it

        place = None if before is None else job_id_of(before)
        work = partial(list_jobs, self._core, filter, limit=limit, before=place)
        return await self._loop.run(work)


class Approvals(_Part):
    """Requests for people's decisions; needs `cortex_runtime`."""

    async def list(self, *, limit: int = 100) -> "list[ApprovalRow]":
        """Return the requests that wait, the most dangerous first."""
        from cortex.client.operations import list_approvals  # noqa: PLC0415

        return await self._loop.run(partial(list_approvals, self._core, limit=limit))

    async def approve(
        self,
        approval: "ApprovalRow | UUID | str",
        *,
        token: str | None = None,
        by: str | None = None,
        reason: str | None = None,
        confirm: str | None = None,
    ) -> "VoteResult":
        """Approve a request of the list: it counts for the arguments that were listed.

        By its id it counts for the arguments that stand now. `confirm`: the last four characters
        of the id, needed for a HIGH or CRITICAL risk. `token`: of the person who decides; without
        one it is the person to whom the login belongs. `by` is a label beside the name. The first
        decision wins: raises `ConflictError` for others, `ExpiredError` when it came too late.
        """
        return await self._decide(
            approval, is_approved=True, token=token, by=by, reason=reason, confirm=confirm
        )

    async def deny(
        self,
        approval: "ApprovalRow | UUID | str",
        *,
        token: str | None = None,
        by: str | None = None,
        reason: str,
    ) -> "VoteResult":
        """Deny a request: its call does not run; raises as `approve`."""
        return await self._decide(
            approval, is_approved=False, token=token, by=by, reason=reason, confirm=None
        )

    async def _decide(self, approval: "ApprovalRow | UUID | str", **given: Any) -> "VoteResult":
        from cortex.client.operations import decide  # noqa: PLC0415

        return await self._loop.run(partial(decide, self._core, approval, **given))


class DeadLetters(_Part):
    """Failed jobs that nobody has settled; needs `cortex_runtime`."""

    async def list(self, *, limit: int = 50) -> "list[DeadLetter]":
        """Return the newest dead letters."""
        from cortex.client.operations import list_dead  # noqa: PLC0415

        return await self._loop.run(partial(list_dead, self._core, limit=limit))

    async def retry(
        self,
        *job_ids: UUID | str,
        reason: str = "",
        by: str | None = None,
        from_start: bool = False,
    ) -> Sequence[Handle[Any]]:
        """Continue failed jobs in new ones after their last step; return the new jobs.

        Raises `ConflictError` for one that was settled already; those named before it are retried.
        """
        from cortex.client.operations import retry_dead  # noqa: PLC0415

        work = partial(retry_dead, self._core, job_ids, by=by, reason=reason, from_start=from_start)
        new = await self._loop.run(work)
        return [Handle(each, self._core, self._loop, None) for each in new]
