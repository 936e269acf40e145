"""What a command does to several jobs at once: a row for each, its error in its own row."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from cortex.cli.output import Output
from cortex.cli.phrases import short_id
from cortex.cli.table import Cell, Column, Row
from cortex.cli.terminal import STATES
from cortex.domain.idempotency import PERMANENT, error_document, error_from
from cortex.domain.job import JobStatus
from cortex.domain.safe import safe


async def act_on_each(
    job_ids: Sequence[UUID], act: Callable[[UUID], Awaitable[dict[str, Any]]], **blank: Any
) -> list[dict[str, Any]]:
    """Act on jobs in one transaction; return their rows, which hold what `act` returned.

    A permanent error stays with its job, so that the others are acted on, too; its row has `blank`.
    """
    rows: dict[UUID, dict[str, Any]] = {}
    for job_id in sorted(job_ids):  # in one transaction: one order of locks
        rows[job_id] = {"id": job_id, "status": None, **blank, "error": None}
        try:
            rows[job_id] |= await act(job_id)
        except PERMANENT as error:
            rows[job_id]["error"] = error_document(error)
    return [rows[job_id] for job_id in job_ids]


def typed(told: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose values have their types again: a response is plain JSON."""
    status, error = told["status"], told["error"]
    return told | {
        "id": UUID(told["id"]),
        "status": None if status is None else JobStatus(status),
        "error": None if error is None else error_from(error),
    }


def show_acts(output: Output, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Show what became of each job; then raise the first error, if there was any."""
    output.listing("jobs", columns, rows, empty="")
    failed = [row["error"] for row in rows if row["error"] is not None]
    if failed:
        raise failed[0]


def act_columns(told: Callable[[Row], str], *more: Column) -> tuple[Column, ...]:
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
    state = STATES[row["status"]]
    return Cell(str(state), state.word)
