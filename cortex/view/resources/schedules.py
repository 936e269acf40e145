"""Schedules: what the clock submits, and what became of it."""

from typing import Final

from cortex.domain.safe import safe
from cortex.store.background import schedules
from cortex.store.background.schedules import ScheduleRow
from cortex.view.cells import Cell
from cortex.view.resource import Field, NamedResource, on_demand
from cortex.view.schedules import last_text, next_text, runs, state_of


def _state(row: ScheduleRow) -> Cell:
    word, words, style = state_of(row)
    return Cell(safe(f"● {words}" if word == "ok" else words), style)


# The name is never shortened: people type it.
FIELDS: Final = (
    Field(name="name", title="schedule", style="bold"),
    Field(name="state", value=lambda r: state_of(r)[0], kind=str, shown=_state, least=12),
    Field(name="cron", least=9),
    Field(name="zone", style="dim", least=3, is_spare=True),
    Field(name="type", title="runs", shown=lambda r: Cell(safe(runs(r))), least=8),
    Field(
        name="next_at",
        doc="the next instant",
        title="next",
        shown=lambda r: Cell(next_text(r)),
        least=10,
    ),
    Field(name="last_instant", title="last", shown=lambda r: Cell(last_text(r), "dim"), least=8),
    *on_demand(
        "agent",
        "arguments",
        "tenant",
        "jitter_s",
        "missed_at",
        "last_outcome",
        "last_job_id",
        "last_status",
        "last_error",
        "paused_at",
        "paused_by",
        "pause_reason",
        "changed_by",
        "changed_at",
        "reason",
        "created_at",
    ),
    *on_demand(
        backfill_s="how late an instant may be and still fire",
        overlap="while an earlier job is open",
        instant_as="the argument that gets the instant",
        origin="who declares it",
        due_at="when its job is submitted: with its jitter",
        is_served="a living pod can run its jobs",
        is_declared="false: no living pod's code declares it any more",
        has_missed="an instant was missed within the last hour; false for built-in ones",
        problem="why it cannot be evaluated",
        queued="instants that wait for an earlier job",
        missed_count="instants older than the backfill period",
    ),
)

SCHEDULES: Final = NamedResource(
    name="Schedule",
    noun="schedules",
    doc="A schedule: what it submits, and when.",
    row=ScheduleRow,
    fields=FIELDS,
    empty="no schedule exists: cortex schedules apply FILE",
    page=schedules.page,
    unlisted=frozenset({"now", "schedule"}),
)
