"""Children: the jobs that the code of a job submits, as values."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal
from uuid import UUID

import attrs

from cortex.domain.job import JobStatus

DEPTH_MAX: Final = 20
"""Jobs above a child: more are a job that submits itself without end."""
CHILDREN_MAX: Final = 100_000
"""Children of one step."""
CONCURRENCY_MAX: Final = 10_000
"""Children of one step that run at once."""

SpawnVerdict = Literal["done", "lease_lost", "too_deep", "ancestor", "busy", "other"]
AdoptVerdict = Literal["done", "lease_lost", "wait", "busy", "more"]


@attrs.frozen(kw_only=True)
class ChildTerms:
    """How the children of one step are to run; None takes the default of their type."""

    type: str
    agent: str | None = None
    queue_name: str | None = None
    priority: int | None = None
    """None: the parent's."""
    delay_s: float | None = None
    max_retries: int | None = None
    timeout_s: int | None = None
    tags: tuple[str, ...] = ()
    traceparent: str | None = None
    is_detached: bool = False
    """They go on when their parent ends."""
    budget: Mapping[str, Decimal] | None = None
    """Amount that each of them may spend, by unit; see `checked_share`."""

    def to_json(self) -> dict[str, Any]:
        """Return what is given, as `cortex.spawn_children` reads it."""
        given = attrs.asdict(self, filter=lambda _, value: value is not None and value != ())
        if self.tags:
            given["tags"] = sorted(set(self.tags))
        if self.budget is not None:
            given["budget"] = {unit: f"{amount:f}" for unit, amount in self.budget.items()}
        return given


@attrs.frozen(kw_only=True)
class SpawnReply:
    """What became of an attempt to submit children."""

    verdict: SpawnVerdict
    ordinal: int | None = None
    """`other`: where the record has another job. `too_deep`: how many jobs are above."""


@attrs.frozen(kw_only=True)
class ChildOutcome:
    """How a child ended."""

    ordinal: int
    job_id: UUID
    status: str
    """A terminal `JobStatus`."""
    result: str | None = None
    """JSON text."""
    error: str | None = None
    error_code: str | None = None
    error_class: str | None = None
    by: str | None = None
    """Who cancelled it."""
    reason: str | None = None
    is_left: bool = False
    """An earlier job of the lineage left it failed, cancelled, or not begun: it runs again."""

    @property
    def is_completed(self) -> bool:
        return self.status == JobStatus.COMPLETED


_SUBMITTER: Final = "the job that submitted it"
_HOW: Final = {
    JobStatus.COMPLETED: "ended without waiting for it",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELLED: "was cancelled",
}


def reason_of_cut(status: str | None, why: str | None) -> str:
    """Say why a child is cancelled whose parent has ended in this state; None: it goes on."""
    if status is None:
        return f"{_SUBMITTER} goes on without it"
    if why is not None and why.startswith(_SUBMITTER):  # so was the parent
        return why
    return f"{_SUBMITTER} {_HOW[JobStatus(status)]}{f': {why}' if why else ''}"[:500]
