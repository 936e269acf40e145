"""Patches: which unfinished jobs need which branch of a change to their code."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.domain.phrases import short_id
from cortex.store import steps
from cortex.store.steps import PatchRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field, WholeResource, counted, on_demand


def _job(job: UUID | None) -> Cell:
    return Cell(NOTHING, "dim") if job is None else Cell(short_id(job))


FIELDS: Final[Sequence[Field[PatchRow]]] = (
    Field(name="patch", doc="the id given to `ctx.patched`", least=16, style="bold"),
    Field(name="type"),
    counted("old", doc="unfinished jobs that keep the old branch", style="warn"),
    counted("new", doc="unfinished jobs that take the new branch"),
    counted("undecided", doc="unfinished jobs that have begun and not reached it", style="warn"),
    Field(
        name="old_job",
        doc="the oldest job that keeps the old branch",
        title="old job",
        shown=lambda r: _job(r.old_job),
    ),
    Field(
        name="undecided_job",
        doc="the oldest undecided job",
        title="undecided job",
        shown=lambda r: _job(r.undecided_job),
        is_spare=True,
    ),
    *on_demand(is_capped="there are more jobs; newer ones are not counted"),
)

PATCHES: Final = WholeResource(
    name="Patch",
    noun="patches",
    doc="A patch in the code of one job type.",
    row=PatchRow,
    fields=FIELDS,
    empty="no unfinished job has reached a patch (ctx.patched in job code)",
    page=steps.patches,
)
