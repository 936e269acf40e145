"""Dead letters: jobs that failed for good, by error or one by one."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from cortex.domain.dead_letter import DeadLetter, DeadLetterDetail, DeadLetterGroup, DeadLetterHead
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.dead_letters import breaker_cell, on_retry, state_cell
from cortex.view.phrases import NOTHING, age, since_s
from cortex.view.resource import Field, Resource, Shape, on_demand
from cortex.view.steps import step_label


def _age_of(instant: Callable[[Any], datetime]) -> Callable[[DeadLetterHead], Cell]:
    return lambda row: Cell(age(since_s(row, instant(row))), "dim")


def _count(row: DeadLetterGroup) -> Cell:
    return Cell(f"{row.count:,}{'' if row.is_all else '+'}", "bold")


def _code(row: DeadLetterHead) -> Cell:
    code = row.error_code
    return Cell(safe(code), "fail") if code else Cell(NOTHING, "dim")


def _step(row: DeadLetterHead) -> Cell:
    if row.step is None:
        return Cell(NOTHING, "dim")
    number, _, key = row.step.partition(" ")
    return Cell(safe(step_label(key) if key else number))


_ERROR: Final[tuple[Field[Any], ...]] = (
    Field(name="error_code", title="code", shown=_code, least=8),
    Field(name="error_message", title="error", least=16),
    Field(
        name="on_retry",
        doc="effect of a retry, or how the dead letter was resolved",
        title="on retry",
        value=on_retry,
        shown=lambda r: Cell(safe(on_retry(r)), "dim"),
        least=16,
    ),
)
_MORE: Final[tuple[Field[Any], ...]] = (
    Field(
        name="error_source",
        doc="what failed; null: the job's own code",
        title="source",
        is_default=False,
    ),
    *on_demand("agent", "error_class"),
    Field(
        name="breaker",
        doc="current state of the breaker of its source",
        shown=breaker_cell,
        is_default=False,
    ),
    *on_demand(
        asks_again_after="steps before the model's response that failed it; null: another cause",
    ),
    Field(
        name="step",
        doc="the last committed step",
        title="last step",
        shown=_step,
        is_default=False,
    ),
)

ERRORS: Final = Resource(
    name="DeadLetterGroup",
    noun="errors",
    doc="Dead letters with the same error; where they differ, fields are those of the newest one.",
    row=DeadLetterGroup,
    fields=(
        Field(name="fingerprint", shown=lambda r: Cell(r.fingerprint, "bold")),
        Field(name="count", shown=_count, is_right=True),
        Field(name="type", least=8),
        *_ERROR,
        Field(
            name="first_at",
            title="first",
            shown=_age_of(lambda r: r.first_at),
            is_right=True,
            is_spare=True,
        ),
        Field(name="last_at", title="last", shown=_age_of(lambda r: r.last_at), is_right=True),
        Field(name="escalated_count", title="escalated", is_default=False),
        Field(name="job_id", doc="job of the newest one", title="newest", is_default=False),
        Field(
            name="is_all",
            doc="false: only the newest matching dead letters were counted",
            is_default=False,
        ),
        *_MORE,
    ),
    empty="no dead letters",
    unlisted=frozenset({"now"}),
)

LETTERS: Final = Resource(
    name="DeadLetter",
    noun="letters",
    doc="A dead letter: a failed job, until a person or the triage has resolved it.",
    row=DeadLetter,
    fields=(
        Field(name="job_id", title="id", shown=lambda r: Cell(short_id(r.job_id), "bold")),
        Field(name="type", least=8),
        Field(name="state", shown=lambda r: state_cell(r.state)),
        *_ERROR,
        Field(
            name="created_at",
            title="age",
            shown=_age_of(lambda r: r.created_at),
            is_right=True,
        ),
        *on_demand("fingerprint", "tenant", "retried_as", "triaged_at", "resolved_by"),
        *on_demand("resolved_at", "reason", "lineage_id", is_automatic="retried automatically"),
        *_MORE,
    ),
    empty="no dead letters",
    unlisted=frozenset({"now"}),
)

LETTER: Final = Shape(
    name="ShownDeadLetter",
    doc="A failed job with everything that explains the failure.",
    row=DeadLetterDetail,
    fields=(
        *LETTERS.fields,
        *on_demand("agent_version", "payload", "attempt", "worker_attempts", "retry_count"),
        *on_demand("max_retries", "timeout_s", "pod", "submitted_at", "started_at", "finished_at"),
        *on_demand("waited_s", "step_at", "spent_usd", "retried_status", "origin_id", "trace_id"),
        *on_demand(
            "stack",
            payload_changes="differences of the payload that it was retried with: field, old, "
            "new; null: none",
            raw="raw response of a model or a tool",
        ),
    ),
    unlisted=frozenset({"now"}),
)
