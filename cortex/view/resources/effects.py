"""Effects: calls with an outside result, and what became of them."""

from typing import Final

from cortex.domain.canonical import canonical
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.effects import EffectDetail, EffectRow
from cortex.view.cells import Cell
from cortex.view.effects import remark, state_cell
from cortex.view.phrases import exact
from cortex.view.resource import Field, Resource, Shape, aged, on_demand
from cortex.view.steps import step_label


def _digest(row: EffectDetail) -> str:
    return row.digest.hex()


FIELDS: Final = (
    Field(
        name="id",
        doc="also the idempotency key for the other system",
        shown=lambda r: Cell(short_id(r.id), "bold"),
    ),
    Field(name="tool", least=10),
    Field(name="status", title="state", shown=state_cell),
    Field(name="job_id", title="job", shown=lambda r: Cell(short_id(r.job_id))),
    Field(
        name="key",
        doc="the step that makes it",
        title="step",
        shown=lambda r: Cell(safe(step_label(r.key))),
        least=8,
        is_spare=True,
    ),
    aged("created_at", title="age", style="dim"),
    Field(
        name="remark",
        title="why / next",
        value=remark,
        shown=lambda r: Cell(safe(remark(r)), "dim"),
        least=16,
        is_for_people=True,
    ),
    Field(
        name="arguments",
        shown=lambda r: Cell(exact(r.arguments)),
        json=lambda r: canonical(r.arguments),
        least=12,
        is_spare=True,
    ),
    *on_demand("agent", why="why it failed, or why its outcome is unknown"),
    *on_demand("calls_count", "can_reconcile", "finished_at"),
    *on_demand("resolved_by", "approval_id", resolution="resolution by a person"),
)

EFFECTS: Final = Resource(
    name="EffectRow",
    noun="effects",
    doc="A call with an external effect: intent before, outcome after.",
    row=EffectRow,
    fields=FIELDS,
    empty="no job has changed anything outside yet",
    unlisted=frozenset({"now"}),
)

EFFECT: Final = Shape(
    name="Effect",
    doc="Everything recorded about an effect.",
    row=EffectDetail,
    fields=(
        *FIELDS,
        *on_demand("job_status", "job_type", "agent_version", "tenant", "lineage_id", "step"),
        Field(name="digest", doc="SHA-256 of the arguments", value=_digest),
        *on_demand("attempt", "is_sure", "called_at", "resolved_at", "resolved_reason"),
        *on_demand(
            people="how many people approved the call: as many must say that it was not applied",
            agreed_by="who has said so of its last call",
        ),
        Field(name="result", doc="the returned value, if known", value=lambda r: r.returned),
    ),
    unlisted=frozenset({"now", "output", "returned"}),
)
