"""Jobs as values: their states, what a pod gets when it claims one, and what it reports back."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Protocol
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import ApprovalRequest
from cortex.domain.hot import hot
from cortex.domain.published import JobProgress
from cortex.domain.usage import Usage
from cortex.domain.waits import Wait

SEND_NOTIFICATION: Final = "send_notification"
APPROVAL_NOTIFY: Final = "approval_notify"
PATCH_PREFIX: Final = "patched: "
"""Before a patch's id: the key of the step that records which branch its job takes."""
UPKEEP: Final = ("expire_approvals", "sweep_zombies")
"""The types of the built-in schedules' jobs, which lists show only by type or id."""
RUN_FLOW: Final = "run_flow"
EXECUTE_TOOL: Final = "execute_tool"
RUN_AGENT: Final = "run_agent"
ABANDONED_AFTER_S: Final = 30.0
"""How long after its cancellation a handler that goes on is ended; a cleanup may take that long."""
BULK: Final = "bulk"
"""The type of jobs that carry out bulk operations, and the queue in which they take turns."""
BEYOND_TENANT: Final = frozenset({APPROVAL_NOTIFY, BULK, EXECUTE_TOOL, *UPKEEP})
"""Types that act on all tenants' jobs or call any tool: a token of one tenant submits none."""
DEFAULT_TENANT: Final = "default"
"""The tenant of what is submitted without one, and of facts and messages of the installation."""


class JobStatus(StrEnum):
    """State of a job; the last three are terminal."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING_FOR_APPROVAL = "WAITING_FOR_APPROVAL"
    RETRY = "RETRY"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """No transition leads out of it."""
        return not TRANSITIONS[self]


TRANSITIONS: Final[dict[JobStatus, frozenset[JobStatus]]] = {
    JobStatus.PENDING: frozenset({JobStatus.RUNNING, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.RUNNING: frozenset(JobStatus) - {JobStatus.PENDING, JobStatus.RUNNING},
    JobStatus.RETRY: frozenset({JobStatus.RUNNING, JobStatus.FAILED, JobStatus.CANCELLED}),
    JobStatus.WAITING_FOR_APPROVAL: frozenset(
        {JobStatus.RUNNING, JobStatus.FAILED, JobStatus.CANCELLED}
    ),
    JobStatus.COMPLETED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
}
"""The legal transitions; the database refuses all others by the same table."""


class StepKind(StrEnum):
    """The kind of a step: own function or effect, response, tool call, decision, and so on."""

    STEP = "step"
    MODEL = "model"
    TOOL = "tool"
    EFFECT = "effect"
    APPROVAL = "approval"
    MESSAGE = "message"
    PATCH = "patch"
    EMIT = "emit"
    CHILD = "child"
    """Jobs that it submitted, or how they ended."""
    FIRST = "first"


@attrs.frozen(kw_only=True)
class RunningStep:
    """The step that a running job has run longest, as its pod last reported it."""

    kind: str
    """A `StepKind`, or one that only a newer release has."""
    key: str
    since: datetime
    more: int
    """How many other steps run beside it."""


def running_step_of(stored: Mapping[str, Any]) -> RunningStep:
    """Restore a step from the JSON of the database."""
    return RunningStep(
        kind=stored["kind"],
        key=stored["key"],
        since=datetime.fromisoformat(stored["since"]),
        more=stored["more"],
    )


@attrs.frozen(kw_only=True)
class Submission:
    """A job as submitted; None takes the default of its type."""

    id: UUID
    type: str
    payload: str = "{}"
    """JSON text."""
    agent: str | None = None
    tenant: str | None = None
    queue_name: str | None = None
    priority: int | None = None
    delay_s: float | None = None
    run_at: datetime | None = None
    """Earliest start; wins over `delay_s`."""
    worker_attempts: int | None = None
    max_retries: int | None = None
    timeout_s: int | None = None
    job_key: str | None = None
    tags: tuple[str, ...] = ()
    traceparent: str | None = None
    """The trace and span that it is submitted in: see `domain.tracing`."""
    due_by: datetime | None = None
    """Its deadline, by which jobs of one priority are ordered."""


@attrs.frozen(cache_hash=True)  # used as a key throughout an attempt
class Lease:
    """The right to write to a job: valid while the job still has this attempt."""

    job_id: UUID
    attempt: int


@hot
class Claim:
    """Everything that a pod needs to run one attempt of a job."""

    lease: Lease
    type: str
    payload: str
    """JSON text."""
    agent_id: UUID | None
    agent_version: int | None
    attempts_spent: int
    """Claims of its task that count, this one included."""
    max_attempts: int
    is_queued: bool
    """It belongs to a named queue, whose next job may run when this one has ended."""
    has_steps: bool
    """An earlier attempt committed steps: they must be loaded before the handler runs."""
    cancel_requested: bool
    left_s: float
    """Seconds until the job's own time-out."""
    timeout_s: int
    has_open: bool = False
    """An earlier attempt began effects or asked people: what has no step must be loaded, too."""
    tenant: str = DEFAULT_TENANT
    retry_count: int = 0
    max_retries: int = 3
    rate_limit_count: int = 0
    """Application retries that a rate limit has cost so far."""
    config_id: int | None = None
    """The policies and prices that it began with."""
    lineage_id: UUID | None = None
    """The first job of the lineage that this one continues; None if it is the first."""
    waits_count: int = 0
    """How many times in a row it was suspended without a step in between."""
    own_failure_unix_s: float | None = None
    """When it last had to wait because its own call failed, without a step since then."""
    broken_answers: int = 0
    """How often in a row that call failed in the middle of an answer."""
    due_for_s: float = 0.0
    """Seconds since the job, not this attempt, was due."""
    is_suspect: bool = False
    """Pods or processes have died while running it: it runs in a process of its own."""
    process_deaths: int = 0
    """Processes of its own that died while running it, without a step in between."""
    traceparent: str | None = None
    """The trace and span that it was submitted in; None: its trace is its own."""


@attrs.frozen(kw_only=True)
class Step:
    """A committed step: what a resumed job replays."""

    seq: int
    key: str
    digest: bytes
    output: str | None
    """JSON text."""
    usage: Usage | None
    cost_usd: Decimal | None
    kind: StepKind = StepKind.STEP
    amid: str | None = None
    """The circumstances in which it was requested: see `durable.replay.Amid`."""
    parent_key: str | None = None
    """Key of the step whose function requested it; None: the handler did."""


@attrs.frozen
class OpenEffect:
    """An effect on the ledger whose step is not in the record; it may have been applied."""

    key: str
    """Of its step."""
    status: str


@attrs.frozen(kw_only=True)
class Past:
    """Facts of a job's earlier attempts, beside their steps and effects."""

    questions: tuple[str, ...] = ()
    """Keys of the steps that wait for people's decisions, or that have not found theirs yet."""
    is_same_code: bool = False
    """They all ran on pods with this pod's code."""


@attrs.frozen
class EffectOutcome:
    """The outcome of an effect step."""

    id: UUID
    why_not: str | None = None
    """Why it was certainly not applied; None: it was."""


class StepTally(Protocol):
    """Numbers the steps of one attempt, in the order in which they are committed."""

    def number(self, step: "StepDone", /) -> tuple[int, str | None]:
        """Return the seq and the head of the job if this is its next step to be committed.

        No head: the seq, kind and key of the step are the head.
        """

    def committed(self, step: "StepDone", /) -> None:
        """The step is in the record: only now its seq is taken, so that a refusal leaves no gap."""


@hot(kw_only=True)
class StepDone:
    """Commit a finished step."""

    lease: Lease
    kind: StepKind
    key: str
    digest: bytes
    duration_s: float
    output: str
    """JSON text."""
    usage: str | None = None
    """JSON text."""
    cost_usd: Decimal | None = None
    spent: Usage | None = None
    """The same as `usage`."""
    ended_at: float
    """By trio's clock."""
    tally: StepTally
    """Gives it its number once it is sent."""
    effect: EffectOutcome | None = None
    given: str | None = None
    """Its input, for people: redacted and cut."""
    amid: str | None = None
    parent_key: str | None = None


@hot
class NumberedStep:
    """A step with its number: sending it again cannot commit it twice."""

    step: StepDone
    seq: int
    head: str | None


@attrs.frozen(kw_only=True)
class EffectIntent:
    """Request permission for an outside call; the answer is an `IntentReply`."""

    lease: Lease
    id: UUID
    """The invocation's, if it is a new one."""
    key: str
    tool: str
    arguments: str
    """Canonical JSON."""
    digest: bytes
    """SHA-256 of the arguments."""
    is_sure: bool
    """No earlier call can have been applied, or it may be repeated anyway."""
    can_reconcile: bool
    approval_id: UUID | None
    is_named: bool = True
    """The call is a tool's, whose name counts: that of a job's own function may change."""
    is_idempotent: bool = False
    """The other side applies it once for each invocation id."""


@attrs.frozen(kw_only=True)
class IntentReply:
    """The answer to an intent; see `cortex.intend` for the verdicts."""

    id: UUID
    """The invocation's: that of the first intent."""
    verdict: str
    attempt: int
    """The attempt that had it before."""
    result: str | None
    """JSON text: of one that is done; the arguments of an open call that is another one."""
    why: str | None
    """Why it does not begin; the tool of an open call that is another one."""
    quota: str | None
    """The quota that stops it."""
    used: Decimal | None
    limit: Decimal | None
    amount: Decimal | None
    wait_s: float | None
    """Seconds until that quota resets."""


@attrs.frozen(kw_only=True)
class EffectReport:
    """Record the outcome of an effect without a step: an error follows."""

    lease: Lease
    id: UUID
    is_applied: bool
    """False: it was certainly not applied."""
    why: str
    result: str | None = None
    """JSON text: the result of one that was applied."""


@hot(kw_only=True)
class Finish:
    """End the job: COMPLETED with a result, FAILED with an error, or CANCELLED."""

    lease: Lease
    status: JobStatus
    result: str | None = None
    error: str | None = None
    code: str | None = None
    error_class: str | None = None
    """Name of the failure's class, with an error only."""
    error_source: str | None = None
    fact: str | None = None
    """JSON text: further fields of the error for the record."""


@attrs.frozen(kw_only=True)
class Release:
    """End the attempt but not the job: its task becomes due again after `delay_s`."""

    lease: Lease
    outcome: str
    """`failed`, `handed_back` or `process_died`, as in the table of ended attempts."""
    delay_s: float = 0.0
    is_counted: bool = True
    """Whether this attempt counts against the task's worker attempts."""
    error: str | None = None
    code: str | None = None
    error_class: str | None = None
    error_source: str | None = None
    fact: str | None = None


@attrs.frozen(kw_only=True)
class Misfit:
    """Hand the job back: the pod's code cannot take it, other code may. Nothing is counted."""

    lease: Lease
    kind: str
    """What does not fit: see `domain.errors.MisfitKind`."""
    error: str
    """All that does not fit, on one line."""


@attrs.frozen
class UnknownEffect:
    """An effect of unknown outcome."""

    id: UUID
    why: str


@attrs.frozen(kw_only=True)
class Suspend:
    """End the attempt and its task: the job is in RETRY for `delay_s`, or waits for a person."""

    lease: Lease
    delay_s: float | None
    """Seconds until it is due; None: a person lets it go on (WAITING_FOR_APPROVAL)."""
    is_counted: bool
    """Whether it uses one of the job's application retries."""
    waiting_on: str | None = None
    """What it waits for besides time: the name of a breaker or of a budget."""
    is_rate_limit: bool = False
    is_own_failure: bool = False
    """Its own call failed, and so opened the breaker that it waits for or kept it open."""
    is_broken_answer: bool = False
    """That call failed in the middle of its answer."""
    requests: tuple[ApprovalRequest, ...] = ()
    """Decisions that it asks for."""
    awaited: tuple[UUID, ...] = ()
    """Decisions requested before: if one has come by now, it goes on at once."""
    unknown: tuple[UnknownEffect, ...] = ()
    """Effects whose outcome a person must report."""
    waits: tuple[Wait, ...] = ()
    """What else wakes it before its time."""
    error: str | None = None
    code: str | None = None
    error_class: str | None = None
    error_source: str | None = None
    fact: str | None = None


@hot(kw_only=True)
class Publish:
    """Publish what job code has assigned since the last time; fenced by its attempt."""

    lease: Lease
    number: int
    """Raised with each one of the attempt: one that is sent again changes nothing."""
    changes: str = "{}"
    """JSON text of an object: new values by key."""
    defaults: str = "{}"
    """The same, of a replay: for keys that its handler has assigned more often than the record
    says."""
    removed: tuple[str, ...] = ()
    removed_again: tuple[str, ...] = ()
    """The same, of a replay."""
    progress: JobProgress | None = None
    is_default: bool = False
    """The progress, too, comes from a replay."""
    counts: str = "{}"
    """JSON text of an object: how often the handler has assigned each of these keys; its progress
    has the empty key."""


Operation = StepDone | Publish | EffectIntent | EffectReport | Finish | Misfit | Release | Suspend
"""The operations of a running job for the committer."""
