"""Jobs, and the records of one: attempts that ended early, changes of state, steps."""

from typing import Any, Final

from cortex.domain.budget import OwnBudget
from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.store.jobs import EndedAttempt, JobRow, ListedJob, ShownJob, StepRow, Transition
from cortex.view.caching import hit_of
from cortex.view.cells import Cell
from cortex.view.jobs import remark, state_cell, took_s
from cortex.view.phrases import NOTHING, money
from cortex.view.progress import bar
from cortex.view.resource import Field, Resource, Shape, aged, on_demand
from cortex.view.steps import numbered_step

CODE_OF_POD: Final = "the code of that pod"


def _step(row: JobRow) -> int | None:
    seq: int | None = row.checkpoint.get("seq")
    return seq


def _step_key(row: JobRow) -> str | None:
    key: str | None = row.checkpoint.get("key")
    return key


def _step_cell(row: JobRow) -> Cell:
    head = row.checkpoint
    if not head.get("seq"):
        return Cell(NOTHING, "dim")
    return Cell(safe(numbered_step(head["seq"], head["key"])))


def _cost_usd(row: JobRow) -> float | None:
    cost = row.checkpoint.get("cost_usd")
    return None if cost is None else float(cost)


def _cost_cell(row: JobRow) -> Cell:
    cost = _cost_usd(row)
    return Cell(NOTHING, "dim") if cost is None else Cell(money(cost))


def _took_cell(row: JobRow) -> Cell:
    seconds = took_s(row)
    return Cell(NOTHING, "dim") if seconds is None else Cell(span(seconds))


def _tags(row: ListedJob) -> list[str]:
    return list(row.tags or ())


FIELDS: Final[tuple[Field[Any], ...]] = (
    Field(name="id", shown=lambda r: Cell(short_id(r.id), "bold")),
    Field(name="type", least=10),
    Field(name="agent", least=10, is_spare=True),
    Field(name="status", title="state", shown=state_cell),
    Field(
        name="step",
        doc="number of the last committed step",
        value=_step,
        shown=_step_cell,
        least=12,
        is_spare=True,
    ),
    Field(
        name="attempt",
        title="att",
        shown=lambda r: Cell(str(r.attempt), "" if r.attempt else "dim"),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="cost_usd",
        doc="cost of all steps",
        title="cost",
        value=_cost_usd,
        shown=_cost_cell,
        is_right=True,
        is_spare=True,
    ),
    aged("created_at", title="age"),
    Field(
        name="took_s",
        doc="from the first start to the end, or until now",
        title="took",
        value=took_s,
        shown=_took_cell,
        is_right=True,
        is_spare=True,
    ),
    Field(name="pod", least=10, is_spare=True),
    Field(
        name="remark",
        title="why / next",
        value=remark,
        shown=lambda r: Cell(safe(remark(r)), "fail" if r.error_message else "dim"),
        least=20,
        is_for_people=True,
    ),
    Field(
        name="progress",
        doc="how far it has come, as its code says: done, total and unit",
        shown=lambda r: Cell(safe("" if r.progress is None else bar(r.progress))),
        is_default=False,
    ),
    Field(name="step_key", doc="key of that step", value=_step_key, is_default=False),
    Field(
        name="cache_hit",
        doc="share of its prompts that was read from the provider's cache",
        value=lambda r: hit_of(r.checkpoint),
        kind=float | None,
        is_default=False,
    ),
    *on_demand(checkpoint="the last step, and the cost of all steps"),
    Field(name="tags", value=_tags, is_default=False),
    *on_demand("tenant"),
    Field(name="queue_name", title="queue", is_default=False),
    *on_demand("retry_count", "max_retries", "started_at", "finished_at", "next_retry_at"),
    *on_demand("heartbeat_at", "cancel_requested_at", "cancelled_by", run_at="earliest start"),
    *on_demand(due_by="its deadline", is_late="it had not ended by its deadline"),
    Field(name="error_code", title="code", is_default=False),
    *on_demand(
        "error_message",
        last_error="of the last attempt, of a job that waits for a person",
        waiting_on="what it waits for, besides time",
    ),
)
INTERNAL: Final = frozenset({"now", "awaited", "silent_after_s", "zombie_s", "why"})

JOBS: Final = Resource(
    name="ListedJob",
    noun="jobs",
    doc="A job in a list.",
    row=ListedJob,
    fields=FIELDS,
    empty="no jobs yet; submit one: cortex jobs submit TYPE",
    unlisted=INTERNAL,
)

OWN_BUDGET: Final = Shape(
    name="OwnBudget",
    doc="A budget of one job.",
    row=OwnBudget,
    fields=(
        *on_demand("name", "unit", limit_amount="in the unit", spent="in the unit"),
        *on_demand(share_of="the job that gave it to this one; null: people set it"),
    ),
)

JOB: Final = Shape(
    name="Job",
    doc="Everything recorded about a job, except steps and history.",
    row=ShownJob,
    fields=(
        *FIELDS,
        *on_demand("agent_version", "worker_attempts", "attempts_spent", "pod_deaths"),
        *on_demand("timeout_s", "priority", "pod_id", "task_state", "task_run_at", "suspended_at"),
        *on_demand(
            "waited_s",
            "rate_limit_count",
            "config_id",
            code_version=CODE_OF_POD,
            running_step="the step that runs longest; null: none runs long",
            origin_id="the failed job that it continues",
            parent_id="the job that submitted it",
        ),
        Field(
            name="budgets",
            doc="its own: the share that its parent gave it, and what people set",
            parts=OWN_BUDGET,
            is_default=False,
        ),
        *on_demand("lineage_id", "error_class", "error_source", "updated_at", "cancel_reason"),
        *on_demand("submitted_by", trace_id="its trace: 32 hex digits"),
        *on_demand(
            schedule="the schedule that submitted it",
            scheduled_for="the instant of that schedule",
            schedule_reason="why that instant is made up for; null: it was on time",
        ),
        *on_demand("payload", "result", state="what its code has published, by key"),
        *on_demand(cache_saved_usd="what the provider's cache saved"),
    ),
    unlisted=INTERNAL | {"agent_id", "has_children", "submitted_with", "traceparent"},
)

ATTEMPT: Final = Shape(
    name="Attempt",
    doc="An attempt that ended before its job did.",
    row=EndedAttempt,
    fields=(
        *on_demand("attempt", "outcome", "ended_at", "due_at", "error", "error_class"),
        *on_demand("error_code", "error_source", "retry_count", "pod", code_version=CODE_OF_POD),
    ),
)

TRANSITION: Final = Shape(
    name="Transition",
    doc="A change of the job's state.",
    row=Transition,
    fields=(
        *on_demand("id", "previous", "new", "attempt", "at", "pod", code_version=CODE_OF_POD),
        *on_demand(metadata="details: error, time, person and reason"),
    ),
)

STEP: Final = Shape(
    name="ShownStep",
    doc="A committed step: it never runs again.",
    row=StepRow,
    fields=(
        *on_demand("seq", attempt="0: copied from the job that this one continues"),
        *on_demand("kind", "key", "started_at", "finished_at", "cost_usd", "usage"),
    ),
)
