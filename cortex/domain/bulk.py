"""Bulk operations: one change of many jobs or dead letters, made by a job of type `bulk`.

The job fixes their ids first, then changes them slice by slice. Each slice is one transaction and
one step, and may be repeated after a kill: what its operation has changed counts as done.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.clock import uuid7_of
from cortex.domain.errors import UsageError
from cortex.domain.job import BULK, Submission
from cortex.domain.job_filter import parse_filter

LIMIT_DEFAULT: Final = 1_000
LIMIT_MAX: Final = 10_000
"""Jobs or dead letters of one operation: the newest jobs, the oldest dead letters."""
NAMED_MAX: Final = 5_000
"""Ids in a payload."""
RATE_DEFAULT: Final = 50.0
"""Dead letters per second."""
RATE_MIN: Final = 0.001
RATE_MAX: Final = 10_000.0
"""Dead letters or jobs per second."""
SLICE_S: Final = 0.5
"""A slice has as many as the rate admits in this time."""
LATE_MAX_S: Final = 1.0
"""At most this much delay is made up for."""
REASON_MAX: Final = 500
FAILED_KEPT: Final = 100
ERROR_MAX: Final = 1_000


class BulkVerb(StrEnum):
    """What happens to the jobs or dead letters."""

    CANCEL = "cancel"
    RETRY = "retry"
    DISCARD = "discard"

    @property
    def done(self) -> str:
        """What happened to one of them."""
        return _DONE[self]


_DONE: Final = {
    BulkVerb.CANCEL: "cancelled",
    BulkVerb.RETRY: "retried",
    BulkVerb.DISCARD: "discarded",
}


@attrs.frozen(kw_only=True)
class BulkRequest:
    """What a person asks for: the argument of a job of type `bulk`."""

    verb: BulkVerb
    reason: str
    """Stored with each of them; the submitter of the job is who changed them."""
    jobs: str | None = None
    """A filter, as typed; "" matches all jobs. With `letter:` it selects dead letters."""
    job_ids: tuple[UUID, ...] = ()
    """Jobs by name instead; with a filter for dead letters, those of it that were counted."""
    letters_through: UUID | None = None
    """The job of the newest dead letter that a person counted: newer ones are left alone."""
    limit: int = LIMIT_DEFAULT
    rate_per_s: float | None = None
    """None: as fast as the database allows."""
    counted_at: datetime | None = None
    """When a person was shown how many jobs match: later ones are left alone."""
    agent_version: int | None = None
    """For retries of dead letters: None is the same, 0 the newest."""
    from_start: bool = False
    tenant: str | None = None
    """Only jobs of this tenant, whose the operation itself is; None: of all."""

    @classmethod
    def counted(
        cls,
        verb: BulkVerb,
        job_ids: Sequence[UUID],
        *,
        jobs: str,
        at: datetime | None,
        reason: str,
        rate_per_s: float | None = None,
        agent_version: int | None = None,
        from_start: bool = False,
        tenant: str | None = None,
    ) -> "BulkRequest":
        """Return a request for the jobs that a person counted and confirmed; `at`: when.

        They are named, because by now the filter `jobs` may match others. Too many to name are
        chosen again, at most as many: of dead letters those up to the last one that was counted.
        """
        request = cls(
            verb=verb,
            reason=reason,
            jobs=jobs,
            limit=len(job_ids),
            rate_per_s=rate_per_s,
            agent_version=agent_version,
            from_start=from_start,
            tenant=tenant,
        )
        if request.is_about_letters:
            if len(job_ids) > NAMED_MAX:
                return attrs.evolve(request, letters_through=job_ids[-1])
            return attrs.evolve(request, job_ids=tuple(job_ids))
        if len(job_ids) > NAMED_MAX:
            return attrs.evolve(request, counted_at=at)
        return attrs.evolve(request, jobs=None, limit=LIMIT_DEFAULT, job_ids=tuple(job_ids))

    @property
    def is_about_letters(self) -> bool:
        return parse_filter(self.jobs or "").is_about_letters

    def check(self) -> None:
        """Raise `UsageError` for a request that makes no sense."""
        if (self.jobs is None) != bool(self.job_ids) and not self.is_about_letters:
            raise UsageError("a bulk operation takes one of jobs and job_ids")
        verbs = {BulkVerb.RETRY, BulkVerb.DISCARD if self.is_about_letters else BulkVerb.CANCEL}
        if self.verb not in verbs:
            raise UsageError(f"{self.verb} is for {_OTHERS[self.is_about_letters]}")
        for name, value, low, high in (
            ("limit", self.limit, 1, LIMIT_MAX),
            ("rate_per_s", self.rate_per_s, RATE_MIN, RATE_MAX),
            ("job_ids", len(self.job_ids), 0, NAMED_MAX),
            ("the length of the reason", len(self.reason), 0, REASON_MAX),
        ):
            if value is not None and not low <= value <= high:
                raise UsageError(f"{name} is {value}, outside {low:g} to {high:,}")

    def submission(self, job_id: UUID) -> Submission:
        """Return the job that carries it out."""
        self.check()
        fields = attrs.asdict(self, filter=_is_given)
        return Submission(
            id=job_id,
            type=BULK,
            queue_name=BULK,
            tenant=self.tenant,
            payload=orjson.dumps({"request": fields}, default=str).decode(),
        )


_OTHERS: Final = {True: "jobs", False: "dead letters"}


def _is_given(field: "attrs.Attribute[Any]", value: object) -> bool:
    return value != field.default


@attrs.frozen(kw_only=True)
class BulkOrder:
    """A bulk operation in progress."""

    id: UUID
    """The first job that carried it out."""
    by: str
    credential: str | None = None
    at: datetime
    """When its ids were fixed, by the database's clock."""
    request: BulkRequest

    def heir_id(self, job_id: UUID) -> UUID:
        """Return the id of the new job that continues a failed one, the same at every repeat."""
        seed = hashlib.blake2b(self.id.bytes + job_id.bytes, digest_size=10).digest()
        return uuid7_of(int(self.at.timestamp() * 1000), int.from_bytes(seed) >> 6)


@attrs.frozen(kw_only=True)
class BulkChoice:
    """The fixed ids of an operation, and what is known of it from then on."""

    id: UUID
    by: str
    credential: str | None = None
    at: datetime
    job_ids: tuple[UUID, ...]
    refused: Mapping[str, int]
    """How many others match but would stay unchanged, by reason."""
    has_more: bool
    """More may match than the limit admits."""
    slice_max: int
    """The most of one transaction."""


@attrs.frozen(kw_only=True)
class BulkFailure:
    """One that could not be changed."""

    job_id: UUID
    code: str
    error: str


@attrs.frozen(kw_only=True)
class BulkCounts:
    """How many were changed, and how many were not."""

    changed: int = 0
    asked: int = 0
    """Of those, running jobs: their pods have to stop them."""
    resubmitted: int = 0
    """Of `changed`, failed jobs that new jobs continue."""
    refused: Mapping[str, int] = attrs.field(factory=dict)
    """How many had changed meanwhile, by reason."""
    failed: int = 0

    @property
    def passed(self) -> int:
        """How many had their turn."""
        return self.changed + self.failed + sum(self.refused.values())

    def plus(self, other: "BulkCounts") -> "BulkCounts":
        refused = {
            name: self.refused.get(name, 0) + other.refused.get(name, 0)
            for name in {**self.refused, **other.refused}
        }
        return BulkCounts(
            changed=self.changed + other.changed,
            asked=self.asked + other.asked,
            resubmitted=self.resubmitted + other.resubmitted,
            refused=refused,
            failed=self.failed + other.failed,
        )


@attrs.frozen(kw_only=True)
class BulkSlice:
    """What one transaction changed."""

    passed: int
    """How many of those that were asked for had their turn, the first ones."""
    counts: BulkCounts
    failures: tuple[BulkFailure, ...] = ()
    at: datetime
    """When, by the database's clock."""
    is_awaited: bool
    """Another bulk operation waits for its turn."""


@attrs.frozen(kw_only=True)
class BulkProgress:
    """The record of one slice."""

    slice: BulkSlice
    total: int
    """How many were chosen."""
    so_far: BulkCounts
    """Of this slice and all before it."""


@attrs.frozen(kw_only=True)
class BulkResult:
    """The result of an operation."""

    total: int
    """How many were chosen."""
    counts: BulkCounts
    failures: tuple[BulkFailure, ...] = ()
    """The first `FAILED_KEPT`."""
    left_out: Mapping[str, int]
    """How many others match but were not chosen, by reason."""
    has_more: bool
