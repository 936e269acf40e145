"""`cortex patches`: which unfinished jobs need which branch of a change to their code."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import NOTHING, short_id
from cortex.domain.safe import safe
from cortex.store import steps as store
from cortex.store.steps import PatchRow
from cortex.view.cells import Cell, count_cell
from cortex.view.resource import Field, on_demand

EMPTY: Final = "no unfinished job has reached a patch (ctx.patched in job code)"


@click.command(cls=Command)
@click.pass_obj
def patches(options: Options) -> None:
    """List patches in job code, and how many unfinished jobs need each branch.

    `old` jobs reached `ctx.patched` under older code and keep the old branch, `new` ones take the
    new branch. `undecided` ones have begun but not reached it: they may need either. Delete the
    old branch when `old` and `undecided` are 0 for all types, and check the code without it with
    `cortex preflight`.
    """
    output = Output(options)
    with session(options) as call:
        rows = call(store.patches)
    output.listing("patches", COLUMNS, rows, empty=EMPTY)
    if rows and rows[0].is_capped:
        output.say(
            f"only the oldest {store.PATCHED_JOBS_MAX:,} unfinished jobs are counted", "warn"
        )


def _job(job: UUID | None) -> Cell:
    return Cell(NOTHING, "dim") if job is None else Cell(short_id(job))


COLUMNS: Final[Sequence[Field[PatchRow]]] = (
    Field(name="patch", shown=lambda r: Cell(safe(r.patch), "bold"), least=16),
    Field(name="type", shown=lambda r: Cell(safe(r.type))),
    Field(name="old", shown=lambda r: count_cell(r.old, "warn"), is_right=True),
    Field(name="new", shown=lambda r: count_cell(r.new), is_right=True),
    Field(name="undecided", shown=lambda r: count_cell(r.undecided, "warn"), is_right=True),
    Field(name="old_job", title="old job", shown=lambda r: _job(r.old_job)),
    Field(
        name="undecided_job",
        title="undecided job",
        shown=lambda r: _job(r.undecided_job),
        is_spare=True,
    ),
    *on_demand("is_capped"),
)
