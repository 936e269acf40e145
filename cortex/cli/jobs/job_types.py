"""`cortex jobs types`."""

from collections.abc import Sequence
from typing import Final

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import NOTHING
from cortex.domain.safe import safe
from cortex.store import codes
from cortex.store.codes import ListedType
from cortex.view.cells import Cell
from cortex.view.jobs import arguments_text
from cortex.view.resource import Field, on_demand


def _arguments(row: ListedType) -> str | None:
    """Describe the arguments of the newest code, and whether other codes take others."""
    if not row.codes:
        return None
    newest = row.codes[0]
    others = [each.version for each in row.codes[1:] if each.schema != newest.schema]
    where = f" (code {newest.version}; others: {', '.join(others)})" if others else ""
    return f"{arguments_text(newest.schema) or 'none'}{where}"


def _arguments_shown(row: ListedType) -> Cell:
    text = _arguments(row)
    return Cell(NOTHING, "dim") if text is None else Cell(safe(text))


TYPE_COLUMNS: Final[Sequence[Field[ListedType]]] = (
    Field(name="type", least=10),
    Field(
        name="is_live",
        title="runs now",
        shown=lambda r: Cell("yes", "done") if r.is_live else Cell("no ready pod", "dim"),
    ),
    Field(name="arguments", value=_arguments, shown=_arguments_shown, least=12),
    *on_demand("codes"),
)


@click.command(cls=Command)
@click.pass_obj
def types(options: Options) -> None:
    """List the job types that pods have registered, their arguments, and which run now."""
    output = Output(options)
    with session(options) as call:
        rows = call(codes.types)
    output.listing("types", TYPE_COLUMNS, rows, empty="no pod has registered a type yet: cortex up")
