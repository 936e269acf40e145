"""What the commands of agents and flows show of their versions."""

from typing import Any

from cortex.cli.screen.table import Column
from cortex.domain.phrases import age, since_s
from cortex.domain.safe import safe
from cortex.store.spec_versions import SpecVersion
from cortex.view.cells import Cell


def document_of(noun: str, rows: list[SpecVersion]) -> dict[str, Any]:
    """Return the versions of one series, newest first, as JSON."""
    newest = rows[0]
    return {
        noun: {"name": newest.name, **_applied_as(newest), "spec": newest.spec},
        "versions": [_applied_as(row) for row in rows],
    }


def columns_of(noun: str, *own: Column[SpecVersion]) -> tuple[Column[SpecVersion], ...]:
    """Return the columns of a list: those of both, around a noun's own."""
    return (
        Column(name="name", title=noun, shown=lambda r: Cell(safe(r.name), "bold"), least=10),
        Column(name="version", shown=lambda r: Cell(f"v{r.version}")),
        *own,
        Column(name="applied_at", title="applied", shown=_applied),
        Column(name="description", value=lambda r: r.spec.get("description") or None, least=12),
        Column(name="applied_by", is_default=False),
    )


def _applied_as(row: SpecVersion) -> dict[str, Any]:
    return {"version": row.version, "applied_by": row.applied_by, "applied_at": row.applied_at}


def _applied(row: SpecVersion) -> Cell:
    return Cell(safe(f"{age(since_s(row, row.applied_at))} by {row.applied_by}"))
