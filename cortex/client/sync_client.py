"""`SyncClient`: `Client` for code without an event loop: scripts, Django, Celery, notebooks."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload
from uuid import UUID

from cortex.client.core import Core, job_id_of
from cortex.client.handles import Submitted, SyncHandle
from cortex.client.loops import ThreadLoop
from cortex.client.signals import Signal
from cortex.client.sql import Sql
from cortex.client.submission import Options, SharedOptions, SubmittableJob, split

if TYPE_CHECKING:
    from cortex.domain.approvals.approval import ApprovalRow
    from cortex.domain.dead_letter import DeadLetter
    from cortex.store.approvals import VoteResult
    from cortex.store.jobs import ListedJob

R = TypeVar("R")


class SyncClient:
    """Jobs of a database, for code without an event loop: `client = SyncClient(dsn)`.

    May be used by several threads at once. A process that forks connects a client in each child.
    See `Client` for rights, arguments and errors.
    """

    def __init__(self, dsn: str, *, connections: int = 4, tenant: str | None = None) -> None:
        """Connect; raises as `Client.connect`."""
        self._loop = ThreadLoop()
        try:
            self._core = self._loop.call(
                partial(Core.open, dsn, connections=connections, tenant=tenant)
            )
        except BaseException:
            self._loop.stop()
            raise
        self.sql = Sql(self._core.chance)
        self.jobs = SyncJobs(self._core, self._loop)
        self.approvals = SyncApprovals(self._core, self._loop)
        self.dead = SyncDeadLetters(self._core, self._loop)

    def close(self) -> None:
        """Close all connections; waits that go on end with `UnavailableError`."""
        if self._loop.is_stopped:
            return
        try:
            self._loop.call(self._core.close)
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    @overload
    def submit(
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
    ) -> SyncHandle[R]: ...
    @overload
    def submit(
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
    ) -> SyncHandle[Any]: ...
    def submit(
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
    ) -> SyncHandle[Any]:
        """Submit a job; see `Client.submit`."""
        named, options = split(job, locals())
        job_id, is_new = self._loop.call(partial(self._core.submit, job, named, options))
        return SyncHandle(job_id, self._core, self._loop, job, is_new=is_new)

    @overload
    def submit_many(
        self,
        job: SubmittableJob[R],
        payloads: Iterable[Mapping[str, Any]],
        /,
        **options: Unpack[SharedOptions],
    ) -> list[SyncHandle[R]]: ...
    @overload
    def submit_many(
        self,
        job: SubmittableJob[Any] | str,
        payloads: Iterable[Mapping[str, Any]],
        /,
        **options: Unpack[SharedOptions],
    ) -> list[SyncHandle[Any]]: ...
    def submit_many(
        self,
        job: SubmittableJob[Any] | str,
        payloads: Iterable[Mapping[str, Any]],
        /,
        **options: Unpack[SharedOptions],
    ) -> list[SyncHandle[Any]]:
        """Submit many jobs of one type in one transaction: all or none."""
        shared = Options.of(options)
        given = list(payloads)  # here: their source may belong to this thread, as rows of Django do
        done = self._loop.call(partial(self._core.submit_many, job, given, shared))
        return [
            SyncHandle(each, self._core, self._loop, job, is_new=is_new) for each, is_new in done
        ]

    def signal(
        self,
        name: str,
        payload: object = None,
        *,
        key: str,
        tenant: str | None = None,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Send a signal to a key, as `Client.signal` does."""
        wanted = Signal.of(name, payload, key=key, tenant=tenant, idempotency_key=idempotency_key)
        return self._loop.call(partial(self._core.signal, wanted))

    @overload
    def handle(self, job_id: UUID | str, job: SubmittableJob[R]) -> SyncHandle[R]: ...
    @overload
    def handle(self, job_id: UUID | str, job: None = None) -> SyncHandle[Any]: ...
    def handle(self, job_id: UUID | str, job: Submitted = None) -> SyncHandle[Any]:
        """Return the handle of a job that was submitted before; see `Client.handle`."""
        return SyncHandle(job_id_of(job_id), self._core, self._loop, job)


class _Part:
    def __init__(self, core: Core, loop: ThreadLoop) -> None:
        self._core = core
        self._loop = loop


class SyncJobs(_Part):
    """The jobs of everybody; needs `cortex_runtime`."""

    def list(
        self,
        filter: str = "",  # noqa: A002 -- as on the command line
        *,
        limit: int = 50,
        before: UUID | str | None = None,
    ) -> "list[ListedJob]":
        """Return the newest matching jobs, as `Jobs.list` does."""
        from cortex.client.operations import list_jobs  # noqa: PLC0415 -- for those who use it

        place = None if before is None else job_id_of(before)
        return self._loop.call(partial(list_jobs, self._core, filter, limit=limit, before=place))


class SyncApprovals(_Part):
    """Requests for people's decisions; needs `cortex_runtime`."""

    def list(self, *, limit: int = 100) -> "list[ApprovalRow]":
        """Return the requests that wait, the most dangerous first."""
        from cortex.client.operations import list_approvals  # noqa: PLC0415

        return self._loop.call(partial(list_approvals, self._core, limit=limit))

    def approve(
        self,
        approval: "ApprovalRow | UUID | str",
        *,
        token: str | None = None,
        by: str | None = None,
        reason: str | None = None,
        confirm: str | None = None,
    ) -> "VoteResult":
        """Approve a request, as `Approvals.approve` does."""
        return self._decide(
            approval, is_approved=True, token=token, by=by, reason=reason, confirm=confirm
        )

    def deny(
        self,
        approval: "ApprovalRow | UUID | str",
        *,
        token: str | None = None,
        by: str | None = None,
        reason: str,
    ) -> "VoteResult":
        """Deny a request: its call does not run."""
        return self._decide(
            approval, is_approved=False, token=token, by=by, reason=reason, confirm=None
        )

    def _decide(self, approval: "ApprovalRow | UUID | str", **given: Any) -> "VoteResult":
        from cortex.client.operations import decide  # noqa: PLC0415

        return self._loop.call(partial(decide, self._core, approval, **given))


class SyncDeadLetters(_Part):
    """Failed jobs that nobody has settled; needs `cortex_runtime`."""

    def list(self, *, limit: int = 50) -> "list[DeadLetter]":
        """Return the newest dead letters."""
        from cortex.client.operations import list_dead  # noqa: PLC0415

        return self._loop.call(partial(list_dead, self._core, limit=limit))

    def retry(
        self,
        *job_ids: UUID | str,
        reason: str = "",
        by: str | None = None,
        from_start: bool = False,
    ) -> Sequence[SyncHandle[Any]]:
        """Continue failed jobs in new ones, as `DeadLetters.retry` does."""
        from cortex.client.operations import retry_dead  # noqa: PLC0415

        work = partial(retry_dead, self._core, job_ids, by=by, reason=reason, from_start=from_start)
        return [SyncHandle(each, self._core, self._loop, None) for each in self._loop.call(work)]
