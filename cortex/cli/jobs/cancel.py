"""`cortex jobs cancel`: ends waiting jobs, and asks pods to stop running ones."""

from typing import Any, Final
from uuid import UUID

import click

from cortex.cli.bulk import BulkWords
from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.choice import JOBS, BulkCommand, JobsRequest, act_on_all, chosen
from cortex.cli.jobs.bulk_commands import act_columns, change_named, show_acts
from cortex.cli.jobs.watch import wait_for
from cortex.cli.options import Command
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.bulk import BulkVerb
from cortex.domain.errors import ConflictError, UsageError
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.postgres.session import Session
from cortex.store import jobs
from cortex.store.job_choice import cancel_each
from cortex.view.cells import Row
from cortex.view.jobs import state_of
from cortex.view.resource import Field
from cortex.view.verbs import CANCEL_JOB

CANCEL: Final = BulkCommand(
    verb=BulkVerb.CANCEL,
    words=BulkWords(operation="jobs.cancel.bulk", would="would be cancelled", done="cancelled"),
)


@click.command(cls=Command)
@chosen(JOBS)
@click.option("--wait", is_flag=True, help="Wait until they have ended.")
@changes(CANCEL_JOB)
def cancel(change: ChangeRequest, *, request: JobsRequest, wait: bool) -> None:
    """Cancel jobs, by id or by filter.

    A waiting job is CANCELLED at once; a running one is stopped by its pod. Exits with 5 if one of
    them had ended already. A filter submits a job of type `bulk`, which goes on after Ctrl-C.
    """
    if not request.names:
        if wait:
            raise UsageError("--wait goes with ids", hint="to see the rest: cortex jobs ls")
        act_on_all(change, request, CANCEL)
        return
    with session(change.options) as call:
        job_ids = list(dict.fromkeys(call(jobs.find, name) for name in request.names))
        change.confirm(_question(call, job_ids))
        rows = change_named(change, call, job_ids, cancel_each, operation="jobs.cancel")
        if wait:
            rows = [_waited(call, row, change.output) for row in rows]
    show_acts(change.output, COLUMNS, rows)


def _question(call: Session, job_ids: list[UUID]) -> str:
    if len(job_ids) > 1:
        return f"cancel {len(job_ids)} jobs"
    job = call(jobs.show, job_ids[0])
    agent = f" of {job.agent}" if job.agent else ""
    state = state_of(job)
    return f"cancel {short_id(job.id)}, {job.type}{agent}, {state.word}"


def _waited(call: Session, row: dict[str, Any], output: Output) -> dict[str, Any]:
    if row["status"] is not JobStatus.RUNNING:
        return row
    ended = wait_for(call, row["id"], output=output).status
    if ended is JobStatus.CANCELLED:
        return row | {"status": ended}
    late = ConflictError(f"job {row['id']} was {ended.value} before its pod could stop it")
    return row | {"status": ended, "error": late}


def _summary(row: Row) -> str:
    if row["status"] is JobStatus.RUNNING:
        where = f"pod {row['pod']}" if row["pod"] else "the next pod that takes it"
        return f"requested; {where} has to stop it"
    return "cancelled"


COLUMNS: Final = act_columns(_summary, Field(name="pod", is_default=False))
