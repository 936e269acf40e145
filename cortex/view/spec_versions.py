"""Versions of agents and flows, as people see them."""

from typing import Any

from cortex.domain.safe import safe
from cortex.store.spec_versions import SpecVersion
from cortex.view.cells import Cell
from cortex.view.phrases import age, since_s
from cortex.view.resource import Field


def document_of(noun: str, rows: list[SpecVersion]) -> dict[str, Any]:
    """Return the versions of one series, newest first, as JSON."""
    newest = rows[0]
    return {
        noun: {"name": newest.name, **_applied_as(newest), "spec": newest.spec},
        "versions": [_applied_as(row) for row in rows],
    }


def columns_of(noun: str, *own: Field[SpecVersion]) -> tuple[Field[SpecVersion], ...]:
    """Return the columns of a list: those of both, around a noun's own."""
    return (
        Field(name="name", title=noun, shown=lambda r: Cell(safe(r.name), "bold"), least=10),
        Field(name="version", shown=lambda r: Cell(f"v{r.version}")),
        *own,
        Field(name="applied_at", title="applied", shown=_applied),
        Field(
            name="description",
            value=lambda r: r.spec.get("description") or None,
            kind=str | None,
            least=12,
        ),
        Field(name="applied_by", is_default=False),
        Field(name="spec", doc="its specification", is_default=False),
    )


def _applied_as(row: SpecVersion) -> dict[str, Any]:
    return {"version": row.version, "applied_by": row.applied_by, "applied_at": row.applied_at}


def _applied(row: SpecVersion) -> Cell:
    return Cell(safe(f"{age(since_s(row, row.applied_at))} by {row.applied_by}"))
