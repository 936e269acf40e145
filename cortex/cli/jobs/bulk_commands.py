"""How what a command did to several jobs is shown: a row for each, its error in its own row."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from cortex.cli.screen.output import Output
from cortex.cli.screen.table import Column
from cortex.domain.idempotency import error_from
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.view.cells import Cell, Row
from cortex.view.jobs import state_shown


def typed(told: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose values have their types again: a response is plain JSON."""
    status, error = told["status"], told["error"]
    return told | {
        "id": UUID(told["id"]),
        "status": None if status is None else JobStatus(status),
        "error": None if error is None else error_from(error),
    }


def show_acts(output: Output, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> None:
    """Show what became of each job; then raise the first error, if there was any."""
    output.listing("jobs", columns, rows, empty="")
    failed = [row["error"] for row in rows if row["error"] is not None]
    if failed:
        raise failed[0]


def act_columns(told: Callable[[Row], str], *more: Column[Row]) -> tuple[Column[Row], ...]:
    """Return the columns of acts; `told` says for people what happens to a job without an error."""

    def remark(row: Row) -> str:
        return told(row) if row["error"] is None else str(row["error"].message)

    return (
        Column(name="id", shown=lambda r: Cell(short_id(r["id"]), "bold")),
        Column(name="status", title="state", shown=_state),
        Column(
            name="remark",
            title="what happens",
            value=remark,
            shown=lambda r: Cell(safe(remark(r))),
            least=20,
            is_for_people=True,
        ),
        *more,
        Column(
            name="error",
            value=lambda r: None if r["error"] is None else r["error"].code,
            is_default=False,
        ),
    )


def _state(row: Row) -> Cell:
    if row["status"] is None:
        return Cell("✗", "fail")
    state = state_shown(row["status"], row["waiting_on"])
    return Cell(str(state), state.style)
