"""Pauses: what does not start now, who paused it, and why."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.queueing.pauses import PauseKind
from cortex.domain.safe import safe
from cortex.store import pauses
from cortex.store.pauses import PauseRow
from cortex.view.cells import Cell, count_cell
from cortex.view.phrases import NOTHING, time_of_day
from cortex.view.resource import Field, WholeResource

COUNTED: Final = frozenset({PauseKind.TENANT, PauseKind.JOB})
"""Due tasks of these are set aside, and counted; those of types and queues stay where they are."""

FIELDS: Final[Sequence[Field[PauseRow]]] = (
    Field(
        name="target",
        doc="`all`, `type:NAME`, `tenant:NAME`, `queue:NAME` or `job:ID`",
        value=lambda r: str(r.target),
        shown=lambda r: Cell(safe(str(r.target)), "bold"),
    ),
    Field(name="kind"),
    Field(name="name", doc="empty: everything, or the default queue"),
    Field(name="paused_by", title="by"),
    Field(
        name="paused_at",
        title="since",
        shown=lambda r: Cell(time_of_day(r.paused_at, r.now)),
    ),
    Field(name="reason", least=16),
    Field(
        name="held",
        doc="due tasks set aside, of tenants and jobs; up to 10,000",
        shown=lambda r: count_cell(r.held) if r.kind in COUNTED else Cell(NOTHING, "dim"),
        is_right=True,
    ),
)

PAUSES: Final = WholeResource(
    name="Pause",
    noun="pauses",
    doc="A pause: its jobs do not start; those that run end their attempt.",
    row=PauseRow,
    fields=FIELDS,
    unlisted=frozenset({"now"}),
    empty="nothing is paused",
    page=pauses.page,
)
