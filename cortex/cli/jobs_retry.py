"""`cortex jobs retry`: lets jobs that wait for their next try go on at once."""

import shlex
from typing import Any, Final
from uuid import UUID

import click

from cortex.cli.asking import acting_name, as_option, reason_option
from cortex.cli.idempotent import idempotent, mutate
from cortex.cli.options import Command, Options
from cortex.cli.output import Output
from cortex.cli.phrases import clock_time, short_id, span
from cortex.cli.table import Cell, Column, Row
from cortex.cli.target import session
from cortex.cli.terminal import STATES
from cortex.domain.breaker import BreakerState
from cortex.domain.idempotency import PERMANENT, error_document, error_from
from cortex.domain.job import JobStatus
from cortex.domain.safe import safe
from cortex.store import breakers, jobs, retries
from cortex.store.database import Database
from cortex.store.session import Session


@click.command(cls=Command)
@click.argument("job_names", metavar="ID…", nargs=-1, required=True)
@reason_option("Kept in the record.")
@as_option
@idempotent
@click.pass_obj
def retry(
    options: Options,
    *,
    job_names: tuple[str, ...],
    reason: str,
    actor: str | None,
    idempotency_key: str | None,
) -> None:
    """Let jobs try again now.

    For jobs in RETRY, and those that wait for their next worker attempt; a circuit breaker that
    is open still decides about their calls. Ends with 5 when one of them does not wait so.
    """
    output = Output(options)
    by = acting_name(actor)
    with session(options) as call:
        job_ids = list(dict.fromkeys(call(jobs.find, name) for name in job_names))
        waited = {call(jobs.show, job_id)["waiting_on"] for job_id in job_ids}
        done = mutate(
            call,
            lambda db: _retry(db, job_ids, by=by, reason=reason),
            output=output,
            key=idempotency_key,
            operation="jobs.retry",
            request={"jobs": sorted(job_ids), "by": by, "reason": reason},
        )
        for name in sorted(each for each in waited if each):
            _tell_of_breaker(call, name, output)
    rows = [_row(each) for each in done]
    output.listing("jobs", COLUMNS, rows, empty="")
    failed = [row["error"] for row in rows if row["error"] is not None]
    if failed:
        raise failed[0]


def _tell_of_breaker(call: Session, name: str, output: Output) -> None:
    """Say that an open breaker decides, until when, and what would help."""
    for row in call(breakers.page, name=name, limit=1):
        if row["state"] != BreakerState.OPEN:
            return
        until = "until somebody closes it"
        if row["forced_by"] is None and row["open_until"] is not None:
            left_s = (row["open_until"] - row["now"]).total_seconds()
            at = clock_time(row["open_until"])
            until = f"for {span(left_s)} (until {at})" if left_s > 0 else "until one call tries it"
        output.say(
            f"breaker {name} decides about their calls, and is open {until}: "
            f"cortex breakers close {shlex.quote(name)} --reason TEXT",
            "warn",
        )


async def _retry(
    db: Database, job_ids: list[UUID], *, by: str, reason: str
) -> list[dict[str, Any]]:
    """Let jobs go; an error stays with its job, so that the others are let go, too."""
    rows: dict[UUID, dict[str, Any]] = {}
    for job_id in sorted(job_ids):  # in one transaction: one order of locks
        rows[job_id] = {"id": job_id, "status": None, "error": None}
        try:
            rows[job_id]["status"] = await retries.retry_now(db, job_id, by=by, reason=reason)
        except PERMANENT as error:
            rows[job_id]["error"] = error_document(error)
    return [rows[job_id] for job_id in job_ids]


def _row(told: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose values have their types again: a response is plain JSON."""
    status, error = told["status"], told["error"]
    return {
        "id": UUID(told["id"]),
        "status": None if status is None else JobStatus(status),
        "error": None if error is None else error_from(error),
    }


def _told(row: Row) -> str:
    return "tries again now" if row["error"] is None else str(row["error"].message)


def _state(row: Row) -> Cell:
    if row["status"] is None:
        return Cell("✗", "fail")
    state = STATES[row["status"]]
    return Cell(str(state), state.word)


COLUMNS: Final = (
    Column(name="id", shown=lambda r: Cell(short_id(r["id"]), "bold")),
    Column(name="status", title="state", shown=_state),
    Column(
        name="remark",
        title="what happens",
        value=_told,
        shown=lambda r: Cell(safe(_told(r))),
        least=20,
        is_for_people=True,
    ),
    Column(
        name="error",
        value=lambda r: None if r["error"] is None else r["error"].code,
        is_default=False,
    ),
)
