"""What the screens may ask of the cluster. Tests have a fake one; an HTTP one may follow.

Every method is one statement or one transaction, bounded, and raises `CortexError`s: one of the
family of `UnavailableError` when the database is not there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from cortex.domain.job_filter import JobFilter, JobPlace
from cortex.store.approvals import Ruling, Verdict
from cortex.store.job_pages import JobPage
from cortex.store.operator import Head
from cortex_tui.model.inbox import InboxRow

JobRow: TypeAlias = Mapping[str, Any]
"""A row of `cortex.store.job_pages` without its `now`: two that are equal look the same."""


class Jobs(Protocol):
    """The list of jobs."""

    async def page(self, which: JobFilter, *, before: JobPlace | None, limit: int) -> JobPage:
        """Read the jobs that fit and are older than a place, or the newest ones."""
        ...

    async def page_up(self, which: JobFilter, *, after: JobPlace | None, limit: int) -> JobPage:
        """Read the jobs that fit just above a place, or the oldest ones; the newest first."""
        ...

    async def seen(self, ids: Sequence[UUID]) -> Sequence[JobRow]:
        """Read some jobs again."""
        ...

    async def cancel(self, job_id: UUID, *, by: str) -> str:
        """Cancel a job; return what became of it."""
        ...

    async def retry(self, job_id: UUID, *, by: str) -> str:
        """Let a job try again now; return what became of it."""
        ...


class Job(Protocol):
    """One job."""

    async def follow(self, job_id: UUID, *, after_step: int) -> JobRow:
        """Return a job, and as its `steps` the next ones after a number, in order."""
        ...


class Approvals(Protocol):
    """The inbox of requests for approval."""

    async def waiting(self, *, by: str, also: Sequence[UUID], limit: int) -> Sequence[InboxRow]:
        """Read those that wait, the most urgent ones, and some by their ids; in no order."""
        ...

    async def decided(self, *, limit: int) -> Sequence[InboxRow]:
        """Read those that wait no more, the last one first."""
        ...

    async def beginnings(
        self, ids: Sequence[UUID], *, chars: int
    ) -> Sequence[tuple[UUID, bytes, str]]:
        """Read the ids, the digests of the arguments, and how those begin."""
        ...

    async def show(self, ids: Sequence[UUID]) -> Sequence[Mapping[str, Any]]:
        """Read requests in full, in no order."""
        ...

    async def decide(self, verdicts: Sequence[Verdict]) -> Sequence[Ruling]:
        """Decide all or none. Raises `ConflictError` that says what was first."""
        ...


class Backend(Protocol):
    """All of it; a part for each screen."""

    @property
    def approvals(self) -> Approvals: ...

    @property
    def job(self) -> Job: ...

    @property
    def jobs(self) -> Jobs: ...

    async def head(self) -> Head:
        """Look at what stands above every screen."""
        ...
