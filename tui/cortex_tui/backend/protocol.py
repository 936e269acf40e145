"""What the screens may ask of the cluster. Tests use a fake; an HTTP backend may follow.

Every method is one statement or one transaction, bounded in time, and raises `CortexError`s: a
subclass of `UnavailableError` when the database cannot be reached.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from cortex.domain.answer_text import Message
from cortex.domain.approvals.approval import Approval
from cortex.domain.approvals.vote import Vote
from cortex.domain.breaker import Past
from cortex.domain.bulk import BulkRequest, BulkVerb
from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup, PayloadEdit
from cortex.domain.drain import Moved
from cortex.domain.effect import Resolution
from cortex.domain.job_filter import JobCursor, JobFilter
from cortex.domain.quota import Quota
from cortex.store.approvals import InboxRow, VoteResult
from cortex.store.background.outbox import MessageHead, MessageRow
from cortex.store.background.schedules import InstantRow, ScheduleRow
from cortex.store.breakers import BreakerRow, FreezeState
from cortex.store.dead_letters import NewestLetters
from cortex.store.effects import EffectDetail, EffectRow
from cortex.store.job_choice import JobChoice
from cortex.store.job_pages import JobPage
from cortex.store.job_view import JobLook, StepDetail, WatchedStep
from cortex.store.jobs import ShownJob
from cortex.store.operator import Head, ListReading
from cortex.store.pods import PodRow
from cortex.store.pulse import Attention, Figures, Recent
from cortex.store.queues import QueueRow
from cortex.store.quotas import QuotaRow

Heard: TypeAlias = Callable[[Message], None]
OnStatus: TypeAlias = Callable[[str], None]
"""Takes the state of the listener: "" if healthy, else why not, in a few words."""


class JobsBackend(Protocol):
    """The list of jobs."""

    async def page(self, which: JobFilter, *, before: JobCursor | None, limit: int) -> JobPage:
        """Read the matching jobs older than a position, or the newest ones."""
        ...

    async def page_up(self, which: JobFilter, *, after: JobCursor | None, limit: int) -> JobPage:
        """Read the matching jobs just above a position, or the oldest ones; the newest first."""
        ...

    async def page_due(self, which: JobFilter, *, after: JobCursor | None, limit: int) -> JobPage:
        """Read the matching jobs in RETRY that are due after a position, or next."""
        ...

    async def page_due_up(
        self, which: JobFilter, *, before: JobCursor | None, limit: int
    ) -> JobPage:
        """Read those due just before a position, or last; in the same order."""
        ...

    async def seen(
        self, ids: Sequence[UUID], *, since: JobCursor | None, newer_max: int
    ) -> ListReading:
        """Reread some jobs, count those newer than a position, and read the screen's head."""
        ...

    async def whys(self, ids: Sequence[UUID]) -> Mapping[UUID, str]:
        """Read what blocks some jobs, in a few words; see `cortex.store.why`."""
        ...

    async def cancel(self, job_id: UUID, *, by: str) -> str:
        """Cancel a job; return the outcome."""
        ...

    async def retry(self, job_id: UUID, *, by: str) -> str:
        """Let a job retry now; return the outcome."""
        ...

    async def choose(self, verb: BulkVerb, which: JobFilter, *, limit: int) -> JobChoice:
        """Choose the newest matching jobs that an operation would change; runs page by page."""
        ...

    async def choose_marked(self, verb: BulkVerb, job_ids: Sequence[UUID]) -> JobChoice:
        """Choose those of the given jobs that an operation would change."""
        ...

    async def begin(self, request: BulkRequest, *, by: str) -> UUID:
        """Submit the job that carries a bulk operation out; return its id."""
        ...


class Listening(Protocol):
    """A listener for one job."""

    def renew(self) -> None:
        """Make the pod that runs the job now send, too."""
        ...

    async def run(self) -> None: ...


class JobBackend(Protocol):
    """One job."""

    async def look(self, job_id: UUID, *, after: int | None, limit: int) -> JobLook:
        """Return a job with its `steps` after a number, or the newest; see `job_view`.

        Its `head` is the head of the screen.
        """
        ...

    async def steps_before(self, job_id: UUID, *, before: int, limit: int) -> Sequence[WatchedStep]:
        """Return the steps just before a number, in order."""
        ...

    async def detail(self, job_id: UUID, key: str) -> StepDetail:
        """Return a step in full by its key; see `job_view`."""
        ...

    async def show(self, job_id: UUID) -> ShownJob:
        """Return a job in full, without its steps. Raises `NotFoundError`."""
        ...

    async def document(self, job_id: UUID) -> Mapping[str, Any]:
        """Return everything about a job with its newest steps, without their outputs."""
        ...

    async def step_document(self, job_id: UUID, key: str) -> Mapping[str, Any]:
        """Return a step with its output, truncated when very long, and its effect."""
        ...

    def listen(self, job_id: UUID, *, heard: Heard, on_status: OnStatus) -> Listening:
        """Listen to its model while `run` runs; `on_status` gets the state of the listener."""
        ...

    async def raise_budget(self, name: str, *, to: Decimal, by: str) -> str:
        """Raise a limit; return the outcome."""
        ...


class ApprovalsBackend(Protocol):
    """The inbox of requests for approval."""

    async def waiting(
        self, *, by: str, credential: str, also: Sequence[UUID], limit: int
    ) -> Sequence[InboxRow]:
        """Read the most urgent open requests, and some by their ids; in no order."""
        ...

    async def decided(self, *, limit: int) -> Sequence[InboxRow]:
        """Read closed requests, the last closed first."""
        ...

    async def arguments(
        self, ids: Sequence[UUID], *, chars: int
    ) -> Sequence[tuple[UUID, bytes, str]]:
        """Read ids, digests of the arguments, and the arguments as canonical JSON.

        Returns the first ones, up to `chars` characters in total, and at least one.
        """
        ...

    async def show(self, ids: Sequence[UUID]) -> Sequence[Approval]:
        """Read requests in full, in no order."""
        ...

    async def decide(self, votes: Sequence[Vote]) -> Sequence[VoteResult]:
        """Decide all or none. Raises `ConflictError` with the change that came first."""
        ...


class PodsBackend(Protocol):
    """The pods. A change that another person made first is reported as no change."""

    async def page(self) -> Sequence[PodRow]:
        """Read the running pods, then the ones that ended last."""
        ...

    async def moved(self, pod_id: UUID) -> Moved:
        """Read where the jobs of a pod went."""
        ...

    async def drain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        """Stop a pod from taking jobs; return the outcome."""
        ...

    async def undrain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        """Let a pod take jobs again; return the outcome."""
        ...


class QueuesBackend(Protocol):
    """The worker queues; None is the default queue."""

    async def page(self) -> Sequence[QueueRow]:
        """Read the default queue, then paused ones, then those with tasks."""
        ...

    async def pause(self, queue: str | None, *, by: str, reason: str) -> str:
        """Stop claims from a queue; return the outcome."""
        ...

    async def resume(self, queue: str | None, *, by: str, reason: str) -> str:
        """Resume a queue; return the outcome."""
        ...


class BreakersBackend(Protocol):
    """The circuit breakers."""

    async def page(self) -> Sequence[BreakerRow]:
        """Read the breakers, those that are not closed first."""
        ...

    async def past(self, names: Sequence[str]) -> Mapping[str, Past]:
        """Read the recent history of some breakers, by name; see `cortex.store.breakers`."""
        ...

    async def hold_open(self, name: str, *, by: str, reason: str, for_s: float | None) -> str:
        """Hold a breaker open for a time; None: until somebody closes it.

        Returns the outcome.
        """
        ...

    async def close(self, name: str, *, by: str, reason: str) -> str:
        """Close a breaker and reset its failures; return the outcome."""
        ...


class SchedulesBackend(Protocol):
    """What the clock submits."""

    async def page(self) -> Sequence[ScheduleRow]:
        """Read the schedules by name."""
        ...

    async def instants(self, name: str) -> Sequence[InstantRow]:
        """Read what became of the last instants of a schedule, the newest first."""
        ...

    async def pause(self, name: str, *, by: str, reason: str) -> str:
        """Fire nothing until it is resumed; return the outcome."""
        ...

    async def resume(self, name: str, *, by: str, reason: str) -> str:
        """Resume a schedule; return the outcome."""
        ...

    async def trigger(self, name: str, *, by: str, reason: str) -> UUID:
        """Submit a job of a schedule now; return it."""
        ...


class EffectsBackend(Protocol):
    """Calls with outside effects, the freeze, and quotas."""

    async def unknown(self, *, before: UUID | None, limit: int) -> Sequence[EffectRow]:
        """Read effects with unknown outcome older than one, the newest first."""
        ...

    async def others(self) -> Sequence[EffectRow]:
        """Read the newest other effects."""
        ...

    async def show(self, effect_id: UUID) -> EffectDetail:
        """Return one effect in full."""
        ...

    async def resolve(self, effect_id: UUID, said: Resolution, *, by: str, reason: str) -> str:
        """Record the outcome of an unknown effect; return what follows for its job.

        Raises `ConflictError` with the decision that came first.
        """
        ...

    async def frozen(self) -> FreezeState:
        """Return whether and by whom effects are frozen, and how many jobs wait for that."""
        ...

    async def freeze(self, *, by: str, reason: str) -> str:
        """Stop new effects; return the outcome."""
        ...

    async def unfreeze(self, *, by: str, reason: str) -> str:
        """Allow effects again; return the outcome."""
        ...

    async def quotas(self) -> Sequence[QuotaRow]:
        """Read the quotas by name, with their use and the number of waiting jobs."""
        ...

    async def set_quota(self, quota: Quota, *, by: str, reason: str) -> str:
        """Set the limit of a quota; return the outcome."""
        ...

    async def remove_quota(self, name: str, *, by: str, reason: str) -> str:
        """Remove a quota; return the outcome."""
        ...


class DeadLettersBackend(Protocol):
    """Dead letters: failed jobs that wait for a decision."""

    async def errors(self) -> Sequence[DeadLetterGroup]:
        """Read the newest dead letters grouped by error, the latest error first."""
        ...

    async def letters(self, fingerprint: str, *, limit: int) -> NewestLetters:
        """Read the newest dead letters of an error, at most `limit`."""
        ...

    async def choose(self, fingerprint: str, *, limit: int) -> Sequence[UUID]:
        """Return the jobs of an error's dead letters, the oldest first."""
        ...

    async def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[DeadLetter]:
        """Read the dead letters of jobs."""
        ...

    async def payload(self, job_id: UUID) -> Any:
        """Read the payload of a failed job."""
        ...

    async def edited(self, letter: DeadLetter, text: str) -> PayloadEdit:
        """Check another payload against what live pods take, and compare it with the job's.

        Raises `InvalidValueError` that names every argument that does not fit, and `UsageError` if
        nothing differs.
        """
        ...

    async def retry(
        self, job_id: UUID, *, by: str, reason: str, edit: PayloadEdit | None = None
    ) -> str:
        """Create a job that continues a failed one, maybe with another payload.

        Returns the outcome.

        Raises `ConflictError` with the decision that came first.
        """
        ...

    async def discard(self, job_id: UUID, *, by: str, reason: str) -> str:
        """Discard a failed job; return the outcome. Raises as `retry`."""
        ...


class MessagesBackend(Protocol):
    """Messages that were not sent, each to one subscription."""

    async def page(self) -> Sequence[MessageHead]:
        """Read failed messages, the newest first, then the others, the oldest first."""
        ...

    async def show(self, row: MessageHead) -> Sequence[MessageRow]:
        """Read a message in full, once for each of its subscriptions."""
        ...

    async def retry(self, row: MessageHead, *, by: str, reason: str) -> str:
        """Send a failed message again; return the outcome.

        Raises `ConflictError` if it is not failed any more.
        """
        ...

    async def discard(self, row: MessageHead, *, by: str, reason: str) -> str:
        """Delete a message that was not sent; return the outcome. Raises as `retry`."""
        ...


class PulseBackend(Protocol):
    """The state of the cluster."""

    async def figures(self) -> Figures:
        """Count unfinished work, up to a cap."""
        ...

    async def recent(self) -> Recent:
        """Read the last quarter of an hour; costs more than the others."""
        ...

    async def attention(self) -> Attention:
        """Read what needs a person, and what fails."""
        ...


class Backend(Protocol):
    """The whole backend, one part per screen."""

    @property
    def approvals(self) -> ApprovalsBackend: ...

    @property
    def dead(self) -> DeadLettersBackend: ...

    @property
    def messages(self) -> MessagesBackend: ...

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
    def schedules(self) -> SchedulesBackend: ...

    @property
    def effects(self) -> EffectsBackend: ...

    async def head(self) -> Head:
        """Read the head of every screen."""
        ...
