"""The result of a command on several jobs: one row per job, errors in their own rows."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from cortex.cli.changes import ChangeRequest
from cortex.cli.screen.output import Output
from cortex.domain.idempotency import error_from
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.postgres.session import Session
from cortex.view.cells import Cell, Row
from cortex.view.jobs import state_shown
from cortex.view.resource import Field


def typed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a row with typed values: a response is plain JSON."""
    status, error = document["status"], document["error"]
    return document | {
        "id": UUID(document["id"]),
        "status": None if status is None else JobStatus(status),
        "error": None if error is None else error_from(error),
    }


def change_named(
    change: ChangeRequest,
    call: Session,
    job_ids: Sequence[UUID],
    work: Callable[..., Awaitable[Sequence[Any]]],
    *,
    operation: str,
) -> list[dict[str, Any]]:
    """Change jobs named by id, once under a key; return a typed row for each."""
    done = change.write(
        call,
        lambda db, by, reason: work(db, job_ids, by=by, reason=reason),
        operation=operation,
        request={"jobs": sorted(job_ids)},
    )
    return [typed(each) for each in done]


def show_acts(output: Output, columns: Sequence[Field[Row]], rows: Sequence[Row]) -> None:
    """Show the result of each job; then raise the first error, if any."""
    output.listing("jobs", columns, rows, empty="")
    failed = [row["error"] for row in rows if row["error"] is not None]
    if failed:
        raise failed[0]


def act_columns(describe: Callable[[Row], str], *more: Field[Row]) -> tuple[Field[Row], ...]:
    """Return the columns of results; `describe` words a job without an error."""

    def remark(row: Row) -> str:
        return describe(row) if row["error"] is None else str(row["error"].message)

    return (
        Field(name="id", shown=lambda r: Cell(short_id(r["id"]), "bold")),
        Field(name="status", title="state", shown=_state),
        Field(
            name="remark",
            title="what happens",
            value=remark,
            shown=lambda r: Cell(safe(remark(r))),
            least=20,
            is_for_people=True,
        ),
        *more,
        Field(
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
