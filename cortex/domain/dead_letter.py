"""Dead letters: the triage's decision about a failed job, and the prospect of its retry."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.argument_check import ArgumentChange, changes
from cortex.domain.errors import ApprovalExpiredError, DeniedError, UsageError
from cortex.domain.failure import FailureClass
from cortex.domain.job import APPROVAL_NOTIFY, BULK, JobStatus

NEWEST: Final = 0
"""Means the newest version of an agent."""


class DeadLetterState(StrEnum):
    """The fate of a failed job."""

    OPEN = "OPEN"
    ESCALATED = "ESCALATED"
    RETRIED = "RETRIED"
    DISCARDED = "DISCARDED"
    ARCHIVED = "ARCHIVED"

    @property
    def is_unresolved(self) -> bool:
        """It may still be retried or discarded."""
        return self in UNRESOLVED


UNRESOLVED: Final = (DeadLetterState.OPEN, DeadLetterState.ESCALATED, DeadLetterState.ARCHIVED)

DECISIONS: Final = frozenset({DeniedError.code, ApprovalExpiredError.code})
"""Codes of errors with which people decide that a job fails: it is no dead letter."""


_CREDENTIALS: Final = "the credentials are fixed"
_THING: Final = "what it asks for exists"

REMEDIES: Final = {
    "usage": "its configuration is fixed",
    "authentication": _CREDENTIALS,
    "permission": _CREDENTIALS,
    "forbidden": _CREDENTIALS,
    "database_forbidden": _CREDENTIALS,
    "permission_denied": _CREDENTIALS,
    "account_suspended": "the account is no longer on hold",
    "billing": "the account has credit",
    "not_found": _THING,
    "file_not_found": _THING,
    "host_unknown": _THING,
}
"""What an operator has to do before a retry can succeed, by the code of the error."""

_UNREADABLE: Final = "payload"
"""Prefix of an invalid value's message if the payload does not fit its handler."""


@attrs.frozen(kw_only=True)
class DeadLetterHead:
    """Fields of a dead letter, and of a group by its newest one."""

    job_id: UUID
    fingerprint: str
    type: str
    error_code: str | None
    error_class: str | None
    error_source: str | None
    """What failed, by the name of its breaker; None: the job's own code."""
    error_message: str
    breaker: str | None
    """State of that breaker; None: it never opened."""
    agent: str | None
    step: str | None
    """The last committed step."""
    asks_again_after: int | None
    """Steps before the model response that failed the job; None: another cause."""
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class DeadLetterGroup(DeadLetterHead):
    """Dead letters with the same error."""

    count: int
    escalated_count: int
    first_at: datetime
    last_at: datetime
    is_all: bool
    """There are no others; else these are from the examined ones."""


@attrs.frozen(kw_only=True)
class DeadLetter(DeadLetterHead):
    """A failed job."""

    lineage_id: UUID
    tenant: str
    state: DeadLetterState = attrs.field(converter=DeadLetterState)
    created_at: datetime
    triaged_at: datetime | None
    resolved_at: datetime | None
    resolved_by: str | None
    reason: str | None
    retried_as: UUID | None
    is_automatic: bool
    """It was retried automatically."""


@attrs.frozen(kw_only=True)
class DeadLetterDetail(DeadLetter):
    """All that is known of a failed job."""

    payload: Any
    attempt: int
    worker_attempts: int
    retry_count: int
    max_retries: int
    timeout_s: int | None
    agent_version: int | None
    submitted_at: datetime
    started_at: datetime | None
    finished_at: datetime
    waited_s: float
    origin_id: UUID | None
    pod: str | None
    step_at: datetime | None
    spent_usd: Decimal | None
    stack: str | None
    raw: str | None
    trace_id: str | None
    retried_status: JobStatus | None
    payload_changes: list[dict[str, Any]] | None
    """The differences of the payload with which it was retried, as recorded; None: none."""


@attrs.frozen(kw_only=True)
class FailureCause:
    """Why a job failed, and the present state of the cause."""

    code: str | None
    message: str
    error_class: str | None = None
    source: str | None = None
    """What failed, by the name of its breaker; None: the job's own code."""
    breaker: str | None = None
    """State of that breaker; None: it never opened."""
    is_escalated: bool = False
    """The failure notified a person at once."""
    asks_again_after: int | None = None
    """Steps before the model response that failed the job; None: another cause."""

    @classmethod
    def of(cls, row: "DeadLetterHead") -> "FailureCause":
        """Return the cause of a dead letter, or of a group of them."""
        return cls(
            code=row.error_code,
            message=row.error_message,
            error_class=row.error_class,
            source=row.error_source,
            breaker=row.breaker,
            asks_again_after=row.asks_again_after,
        )

    @property
    def is_transient(self) -> bool:
        """The same call may succeed later."""
        return self.error_class in (FailureClass.TRANSIENT_INFRA, FailureClass.TRANSIENT_APP)

    @property
    def is_unreadable(self) -> bool:
        """The job's handler cannot take its payload."""
        return self.code == "invalid_value" and self.message.startswith(_UNREADABLE)

    @property
    def is_cut_off(self) -> bool:
        """Its source's breaker admits no call."""
        return self.source is not None and self.breaker not in (None, "CLOSED")


@attrs.frozen
class TriageVerdict:
    """The triage's decision about a dead letter; OPEN leaves it to a person."""

    state: DeadLetterState
    reason: str | None = None


def judge(cause: FailureCause) -> TriageVerdict:
    """Decide about a dead letter whose cause is not transient."""
    if cause.is_unreadable:
        return TriageVerdict(DeadLetterState.ARCHIVED, f"no handler could read it: {cause.message}")
    is_permanent = cause.error_class == FailureClass.PERMANENT
    if cause.is_escalated or (is_permanent and cause.code in REMEDIES):
        remedy = REMEDIES.get(cause.code or "", "a person has fixed it")
        return TriageVerdict(DeadLetterState.ESCALATED, f"it fails until {remedy}")
    return TriageVerdict(DeadLetterState.OPEN)


def prospect(cause: FailureCause, *, step: str | None) -> str:
    """Describe in one line what a retry would do; `step`: the last one in the record."""
    if cause.is_unreadable:
        return "fails again unless its payload is edited or its code changes: --payload FILE"
    if cause.code == "diverged":
        return "fails again unless it restarts or its code changes: --from-start"
    start, remedy = _start(cause, step), _remedy(cause)
    breaker = f"the breaker of {cause.source} is {cause.breaker}"
    if remedy is None:
        return f"{start}, then waits: {breaker}" if cause.is_cut_off else start
    wait = f", waits while {breaker}" if cause.is_cut_off else ""
    return f"{start}{wait}; will fail again unless {remedy}"


def _start(cause: FailureCause, step: str | None) -> str:
    if cause.asks_again_after is not None:
        before = cause.asks_again_after
        return f"asks the model again after step {before}" if before else "asks the model again"
    return "restarts" if step is None else f"continues after step {step}"


def _remedy(cause: FailureCause) -> str | None:
    """Return what must happen before a retry can succeed; None: nothing known."""
    if cause.code in REMEDIES and not cause.is_transient:
        return REMEDIES[cause.code]
    is_same = cause.error_class == FailureClass.PERMANENT and cause.asks_again_after is None
    return "its code or agent changes" if is_same else None


EFFECTS_STAY: Final = "effects that it has applied are not repeated"
"""What holds for every retry, from the start too: an effect belongs to the lineage of jobs."""
CHANGES_KEPT: Final = 100
VALUE_KEPT: Final = 500


@attrs.frozen(kw_only=True)
class PayloadEdit:
    """Another payload for the job that continues a failed one; the failed job keeps its own."""

    payload: str
    """JSON text."""
    changes: tuple[ArgumentChange, ...]

    @classmethod
    def of(cls, job_type: str, old: Any, payload: str) -> "PayloadEdit":
        """Compare a checked payload with that of the failed job.

        Raises `UsageError` if they are the same, and for types whose jobs are requested by commands
        and routes of their own.
        """
        if job_type in (BULK, APPROVAL_NOTIFY):
            raise UsageError(f"the payload of a {job_type} job cannot be edited")
        found = tuple(changes(old, orjson.loads(payload)))
        if not found:
            raise UsageError(
                "the payload is the same as the failed job's", hint="retry it without --payload"
            )
        return cls(payload=payload, changes=found)

    @property
    def record(self) -> str:
        """Return its record as JSON: the first differences, with the beginnings of values."""
        return orjson.dumps(
            [
                {"field": each.field, "old": _beginning(each.old), "new": _beginning(each.new)}
                for each in self.changes[:CHANGES_KEPT]
            ]
        ).decode()


def _beginning(text: str | None) -> str | None:
    if text is None or len(text) <= VALUE_KEPT:
        return text
    return f"{text[: VALUE_KEPT - 1]}…"
