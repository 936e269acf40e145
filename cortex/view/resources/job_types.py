"""Job types that pods have registered, and the arguments that they take."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.safe import safe
from cortex.store import codes
from cortex.store.codes import ListedType
from cortex.view.cells import Cell
from cortex.view.jobs import arguments_text
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field, WholeResource, on_demand


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


FIELDS: Final[Sequence[Field[ListedType]]] = (
    Field(name="type", least=10),
    Field(
        name="is_live",
        doc="a ready pod runs it",
        title="runs now",
        shown=lambda r: Cell("yes", "done") if r.is_live else Cell("no ready pod", "dim"),
    ),
    Field(
        name="arguments",
        doc="of the newest code, in words; null: no ready pod runs it",
        value=_arguments,
        shown=_arguments_shown,
        least=12,
    ),
    *on_demand(codes="what the codes of ready pods take, the newest one first"),
)

TYPES: Final = WholeResource(
    name="JobType",
    noun="types",
    doc="A job type that a pod has registered, or that is built in.",
    row=ListedType,
    fields=FIELDS,
    empty="no pod has registered a type yet: cortex up",
    page=codes.types,
)
