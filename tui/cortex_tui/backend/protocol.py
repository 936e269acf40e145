"""What the screens may ask of the cluster. Tests have a fake one; an HTTP one may follow.

Every method is one statement or one transaction, bounded, and raises `CortexError`s: one of the
family of `UnavailableError` when the database is not there.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from cortex.domain.answer_text import Message
from cortex.domain.approval import Approval
from cortex.domain.breaker import Past
from cortex.domain.bulk_operation import BulkChange, BulkVerb
from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup
from cortex.domain.drain import Moved
from cortex.domain.effect import Resolution
from cortex.domain.job_filter import JobCursor, JobFilter
from cortex.domain.quota import Quota
from cortex.store.approvals import InboxRow, Vote, VoteResult
from cortex.store.breakers import BreakerRow, FreezeState
from cortex.store.dead_letters import NewestLetters
from cortex.store.effects import EffectDetail, EffectRow
from cortex.store.job_choice import BulkDone, JobChoice
from cortex.store.job_pages import JobPage
from cortex.store.job_view import JobLook, StepDetail, WatchedStep
from cortex.store.operator import Head, ListReading
from cortex.store.pods import PodRow
from cortex.store.pulse import Attention, Figures, Recent
from cortex.store.queues import QueueRow
from cortex.store.quotas import QuotaRow
from cortex_tui.model.bulk import JobsVerb

ActRow: TypeAlias = Mapping[str, Any]
"""A row of `cortex.store.bulk_operations`, of `page` without its `now`."""

Heard: TypeAlias = Callable[[Message], None]
Told: TypeAlias = Callable[[str], None]
"""How well it is heard: "" for well, else in a few words why not."""


class JobsBackend(Protocol):
    """The list of jobs."""

    async def page(self, which: JobFilter, *, before: JobCursor | None, limit: int) -> JobPage:
        """Read the jobs that fit and are older than a place, or the newest ones."""
        ...

    async def page_up(self, which: JobFilter, *, after: JobCursor | None, limit: int) -> JobPage:
        """Read the jobs that fit just above a place, or the oldest ones; the newest first."""
        ...

    async def page_due(self, which: JobFilter, *, after: JobCursor | None, limit: int) -> JobPage:
        """Read the jobs in RETRY that fit and are due after a place, or next."""
        ...

    async def page_due_up(
        self, which: JobFilter, *, before: JobCursor | None, limit: int
    ) -> JobPage:
        """Read those that are due just before a place, or last; in the same order."""
        ...

    async def seen(
        self, ids: Sequence[UUID], *, since: JobCursor | None, newer_max: int
    ) -> ListReading:
        """Read some jobs again, how many are newer than a place, and the head of the screen."""
        ...

    async def whys(self, ids: Sequence[UUID]) -> Mapping[UUID, str]:
        """Read what keeps some jobs from running, in a few words; see `cortex.store.why`."""
        ...

    async def cancel(self, job_id: UUID, *, by: str) -> str:
        """Cancel a job; return what became of it."""
        ...

    async def retry(self, job_id: UUID, *, by: str) -> str:
        """Let a job try again now; return what became of it."""
        ...

    async def choose(self, verb: JobsVerb, which: JobFilter, *, limit: int) -> JobChoice:
        """Choose the newest jobs that fit and that an act would change; statements, in pages."""
        ...

    async def choose_marked(self, verb: JobsVerb, job_ids: Sequence[UUID]) -> JobChoice:
        """Choose those of some jobs that an act would change."""
        ...

    async def act_on(
        self, verb: JobsVerb, job_ids: Sequence[UUID], *, by: str, reason: str
    ) -> BulkDone:
        """Act on jobs; repeating it is safe."""
        ...


class Listening(Protocol):
    """An ear to one job."""

    def renew(self) -> None:
        """Let the pod that has the job now send, too."""
        ...

    async def run(self) -> None:
        """Listen until cancelled."""
        ...


class JobBackend(Protocol):
    """One job."""

    async def look(self, job_id: UUID, *, after: int | None, limit: int) -> JobLook:
        """Return a job, and as its `steps` those after a number, or the newest; see `job_view`.

        Its `head` is the head of the screen.
        """
        ...

    async def steps_before(self, job_id: UUID, *, before: int, limit: int) -> Sequence[WatchedStep]:
        """Return the steps just before a number, in order."""
        ...

    async def detail(self, job_id: UUID, key: str) -> StepDetail:
        """Return a step in full, by its key; see `job_view`."""
        ...

    async def document(self, job_id: UUID) -> Mapping[str, Any]:
        """Return all that is known of a job, of its steps the newest, without their outputs."""
        ...

    async def step_document(self, job_id: UUID, key: str) -> Mapping[str, Any]:
        """Return a step with its output, cut when it is very long, and its effect."""
        ...

    def listen(self, job_id: UUID, *, heard: Heard, told: Told) -> Listening:
        """Hear what its model says while `run` runs, and how well that is heard."""
        ...

    async def raise_budget(self, name: str, *, to: Decimal, by: str) -> str:
        """Raise a limit; return what became of it."""
        ...


class ApprovalsBackend(Protocol):
    """The inbox of requests for approval."""

    async def waiting(
        self, *, by: str, credential: str, also: Sequence[UUID], limit: int
    ) -> Sequence[InboxRow]:
        """Read those that wait, the most urgent ones, and some by their ids; in no order."""
        ...

    async def decided(self, *, limit: int) -> Sequence[InboxRow]:
        """Read those that wait no more, the last one first."""
        ...

    async def arguments(
        self, ids: Sequence[UUID], *, chars: int
    ) -> Sequence[tuple[UUID, bytes, str]]:
        """Read the ids, the digests of the arguments, and those as canonical JSON.

        Of the first ones, as many as make up `chars` characters, and of one at least.
        """
        ...

    async def show(self, ids: Sequence[UUID]) -> Sequence[Approval]:
        """Read requests in full, in no order."""
        ...

    async def decide(self, verdicts: Sequence[Vote]) -> Sequence[VoteResult]:
        """Decide all or none. Raises `ConflictError` that says what was first."""
        ...


class PodsBackend(Protocol):
    """The pods; who acts second is told that nothing was done."""

    async def page(self) -> Sequence[PodRow]:
        """Read the living ones, then the last ones that ended."""
        ...

    async def moved(self, pod_id: UUID) -> Moved:
        """Read where the jobs of a pod went."""
        ...

    async def drain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        """Let a pod take no more jobs; return what became of it."""
        ...

    async def undrain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        """Let a pod take jobs again; return what became of it."""
        ...


class QueuesBackend(Protocol):
    """The worker queues; None is the default one."""

    async def page(self) -> Sequence[QueueRow]:
        """Read the default one, those that are paused, then those that have tasks."""
        ...

    async def pause(self, queue: str | None, *, by: str, reason: str) -> str:
        """Let nothing more be claimed from a queue; return what became of it."""
        ...

    async def resume(self, queue: str | None, *, by: str, reason: str) -> str:
        """Let a queue go on; return what became of it."""
        ...


class BreakersBackend(Protocol):
    """The circuit breakers."""

    async def page(self) -> Sequence[BreakerRow]:
        """Read them, those that are not closed first."""
        ...

    async def past(self, names: Sequence[str]) -> Mapping[str, Past]:
        """Read what happened to some lately, by name; see `cortex.store.breakers`."""
        ...

    async def hold_open(self, name: str, *, by: str, reason: str, for_s: float | None) -> str:
        """Hold a breaker open for so long; None: until it is closed.

        Returns what became of it.
        """
        ...

    async def close(self, name: str, *, by: str, reason: str) -> str:
        """Close a breaker and forget its failures; return what became of it."""
        ...


class EffectsBackend(Protocol):
    """Calls with an outside result, the freeze of all, and quotas."""

    async def unknown(self, *, before: UUID | None, limit: int) -> Sequence[EffectRow]:
        """Read effects of unknown outcome, the newest first, older than one."""
        ...

    async def others(self) -> Sequence[EffectRow]:
        """Read the newest of the others."""
        ...

    async def show(self, effect_id: UUID) -> EffectDetail:
        """Return one effect in full."""
        ...

    async def resolve(self, effect_id: UUID, said: Resolution, *, by: str, reason: str) -> str:
        """Record what became of an unknown effect; return what comes of it.

        Raises `ConflictError` that says who was first.
        """
        ...

    async def frozen(self) -> FreezeState:
        """Return whether effects are frozen, by whom, and how many jobs wait for that."""
        ...

    async def freeze(self, *, by: str, reason: str) -> str:
        """Let no effect begin; return what became of it."""
        ...

    async def unfreeze(self, *, by: str, reason: str) -> str:
        """Let effects begin again; return what became of it."""
        ...

    async def quotas(self) -> Sequence[QuotaRow]:
        """Read the quotas by name, with what is used of them and how many jobs wait."""
        ...

    async def set_quota(self, quota: Quota, *, by: str, reason: str) -> str:
        """Set the limit of a quota; return what became of it."""
        ...

    async def remove_quota(self, name: str, *, by: str, reason: str) -> str:
        """Remove a quota; return what became of it."""
        ...


class DeadLettersBackend(Protocol):
    """Dead letters: failed jobs that wait for somebody to decide."""

    async def errors(self) -> Sequence[DeadLetterGroup]:
        """Read the errors of the newest ones, the one that came last first."""
        ...

    async def letters(self, fingerprint: str, *, limit: int) -> NewestLetters:
        """Read the newest ones of an error, so many at most."""
        ...

    async def choose(self, fingerprint: str, *, limit: int) -> Sequence[UUID]:
        """Return the jobs of an error's letters, the oldest first."""
        ...

    async def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[DeadLetter]:
        """Read the letters of jobs."""
        ...

    async def retry(self, job_id: UUID, *, by: str, reason: str) -> str:
        """Make a job that goes on from a failed one; return what became of it.

        Raises `ConflictError` that says who was first.
        """
        ...

    async def discard(self, job_id: UUID, *, by: str, reason: str) -> str:
        """Give a failed job up; return what became of it. Raises as `retry`."""
        ...

    async def begin(
        self, verb: BulkVerb, job_ids: Sequence[UUID], *, which: str, by: str, reason: str
    ) -> int:
        """Begin an act on many letters that pods work off; return its number."""
        ...

    async def acts(self) -> Sequence[ActRow]:
        """Read the acts, those under way first, then the newest."""
        ...

    async def failures(self, act_id: int) -> Sequence[ActRow]:
        """Read the letters that an act could not settle."""
        ...

    async def change(self, act_id: int, how: BulkChange, *, by: str, reason: str) -> None:
        """Pause an act, let it go on or end it. Raises `ConflictError` that says how it stands."""
        ...


class PulseBackend(Protocol):
    """How the cluster does."""

    async def figures(self) -> Figures:
        """Count what is unfinished, as far as a cap."""
        ...

    async def recent(self) -> Recent:
        """Read the last quarter of an hour: dearer than the others."""
        ...

    async def attention(self) -> Attention:
        """Read what needs somebody, and what fails."""
        ...


class Backend(Protocol):
    """All of it; a part for each screen."""

    @property
    def approvals(self) -> ApprovalsBackend: ...

    @property
    def dead(self) -> DeadLettersBackend: ...

    @property
    def job(self) -> JobBackend: ...

    @property
    def jobs(self) -> JobsBackend: ...

    @property
    def pulse(self) -> PulseBackend: ...

    @property
    def pods(self) -> PodsBackend: ...

    @property
    def queues(self) -> QueuesBackend: ...

    @property
    def breakers(self) -> BreakersBackend: ...

    @property
    def effects(self) -> EffectsBackend: ...

    async def head(self) -> Head:
        """Look at what stands above every screen."""
        ...
