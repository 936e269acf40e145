"""The facts of a job at one instant that explain why it is not running."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.job import JobStatus, RunningStep
from cortex.domain.queueing.pauses import Pausable
from cortex.domain.waiting import Awaited

AHEAD_MAX: Final = 1000
"""Tasks ahead of it are counted up to this."""


@attrs.frozen(kw_only=True)
class TaskFacts:
    """The job's task."""

    state: str
    run_at: datetime
    attempts_spent: int
    max_attempts: int
    priority: int = 0
    """By which it is ordered; it rises while the task waits."""


@attrs.frozen(kw_only=True)
class OwnerFacts:
    """The pod that has the job."""

    name: str
    is_alive: bool
    """It holds its lock."""
    code_version: str | None = None
    """The code that it runs."""
    silent_after_s: float = 95.0
    """Seconds without a heartbeat after which it counts as silent, by its own settings."""
    swept_after_s: float = 360.0
    """Seconds of silence after which its jobs are freed at the latest, by its own settings."""
    threads_lost: int = 0
    """Threads that time-outs have left behind in it, by its last heartbeat."""


@attrs.frozen(kw_only=True)
class QueueFacts:
    """The named queue that the job's task belongs to."""

    name: str
    head_id: UUID | None
    """The job whose turn it is; None for a moment between two."""
    is_head_running: bool
    head_waits: JobStatus | None = None
    """The state of that job, if the queue is strict and it waits; None: it does not."""


@attrs.frozen(kw_only=True)
class LimitFacts:
    """A limit of its type, and what counts there of its key."""

    name: str
    key: str | None
    """What the limit is counted for; None: all jobs of the type."""
    value: str
    """The job's own; empty: it has none."""
    unit: str
    """`running` or `jobs`."""
    per: str | None
    amount: int
    used: int
    room_at: datetime | None
    """When the oldest of what counts there stops counting; None: when a job ends."""

    @property
    def is_full(self) -> bool:
        """No job of the key is let through."""
        return self.used >= self.amount


@attrs.frozen(kw_only=True)
class LineFacts:
    """The line in which the job's task waits until its limits let it through."""

    ahead: int
    """Tasks of its own keys before it, counted up to a bound, as the next one is."""
    waiting: int
    limits: tuple[LimitFacts, ...]


@attrs.frozen(kw_only=True)
class PauseFacts:
    """A person has paused the job, or what it belongs to."""

    target: Pausable
    by: str
    at: datetime
    reason: str
    queue: str | None = None
    """The job's queue."""


@attrs.frozen(kw_only=True)
class FleetFacts:
    """The living pods, with their load at their last heartbeats."""

    ready_count: int
    knowing_count: int
    """Ready pods that know the job's type, and have not handed it back because it does not fit
    their code; the next two are among these."""
    slots: int
    free_slots: int
    draining_count: int
    """Draining pods that know the job's type."""
    types: tuple[str, ...]
    """Job types of the ready pods."""
    look_s: float = 0.5
    """How often the ready pods check for dead ones: the shortest of their `peer_check_s`."""
    needs: tuple[str, ...] = ()
    """The tools of the job's agent; a pod that lacks one does not count as knowing its type."""
    lacking: tuple[str, ...] = ()
    """Those of them that no ready pod has."""
    tools: tuple[str, ...] = ()
    """Tools of the ready pods."""
    has_ticks: bool = False
    """`cortex tick` runs jobs, and no pod has since."""
    do_ticks_lack: bool = False
    """Ticks of the last five minutes ran jobs, and none knows the job's type."""


@attrs.frozen(kw_only=True)
class BreakerFacts:
    """The circuit breaker that the job waits on."""

    name: str
    state: str
    open_until: datetime | None
    is_probed: bool
    """A job is probing it now."""
    forced_by: str | None
    """The person who holds it open, until `open_until` or until it is released."""
    reason: str | None
    last_error: str | None = None
    """The last failure that counted for it: `code: message`."""


@attrs.frozen(kw_only=True)
class BudgetFacts:
    """The budget that the job waits on."""

    name: str
    unit: str
    """`usd` or `tokens`."""
    limit: Decimal
    spent: Decimal
    """In this run, or today."""
    share_of: UUID | None = None
    """The job that gave it to its child; None: people set it."""

    @property
    def is_spent(self) -> bool:
        """No call may begin."""
        return self.spent >= self.limit


@attrs.frozen(kw_only=True)
class AttemptFacts:
    """The last attempt that ended before the job did."""

    attempt: int
    outcome: str
    error: str | None
    error_class: str | None
    code: str | None = None
    source: str | None = None
    """What failed, by the name of its breaker; None: the job's own code."""
    pod: str | None = None
    """The pod that ran it."""
    threads_lost: int = 0
    """Threads that time-outs have left behind in that pod, by its last heartbeat."""
    has_pod: bool = False
    """That pod has not ended."""


@attrs.frozen(kw_only=True)
class DeafFacts:
    """The job was stopped, and its handler runs on: see `runtime.jobs.deaf_handlers`."""

    stopped_by: str
    """`time-out`, or the reason of a stop in lower case."""
    over_s: float
    """Seconds since the stop, at the last report, which was made `at`."""
    at: datetime
    stands_at: str
    """The line at which its code stands."""


@attrs.frozen(kw_only=True)
class MisfitFacts:
    """The misfit of one code, as the last pod with that code reported it."""

    attempt: int
    at: datetime
    kind: str
    """See `domain.errors.MisfitKind`."""
    error: str
    pod: str | None
    """Name of the pod that looked; None: it is forgotten."""
    version: str | None
    """The version of its code."""


@attrs.frozen(kw_only=True)
class WaitFacts:
    """One of the things that wake a suspended job."""

    kind: str
    """`signal`, `child` or `approval`."""
    name: str
    """Of the signal; the key of the step that has begun the children; the id of the request."""
    key: str | None = None
    """The key that the signal is sent to; None: the job."""
    awaited: Awaited | None = None
    """The request for approval."""
    children: Mapping[str, int] | None = None
    """How many have not ended, by state; `held`: not submitted, `unserved`: no pod has their
    type."""


@attrs.frozen(kw_only=True)
class WhyFacts:
    """All that is known of a job at one instant of the database's clock."""

    now: datetime
    job_id: UUID
    type: str
    status: JobStatus
    attempt: int
    retry_count: int
    max_retries: int
    priority: int = 0
    """As the job was given."""
    due_by: datetime | None = None
    """Its deadline."""
    started_at: datetime | None
    finished_at: datetime | None
    heartbeat_at: datetime | None
    suspended_at: datetime | None
    next_retry_at: datetime | None
    cancel_requested_at: datetime | None
    cancelled_by: str | None
    cancel_reason: str | None
    error_message: str | None
    error_class: str | None
    error_code: str | None
    waiting_on: str | None
    step: str | None
    """Number and key of the last committed step."""
    running_step: RunningStep | None
    """The step that a running job has run longest; None: no step runs long."""
    ahead_count: int
    """Tasks that come before its own, counted up to a bound."""
    task: TaskFacts | None
    owner: OwnerFacts | None
    queue: QueueFacts | None
    pause: PauseFacts | None
    fleet: FleetFacts
    breaker: BreakerFacts | None
    budget: BudgetFacts | None
    awaited: Awaited | None
    """The approval, unknown effect, quota or freeze that it waits for."""
    last: AttemptFacts | None
    line: LineFacts | None = None
    deaf: DeafFacts | None = None
    misfits: tuple[MisfitFacts, ...] = ()
    """One for each code that looked and did not fit, the last one first."""
    waits: tuple[WaitFacts, ...] = ()
    """What wakes it before its time: any of these."""
