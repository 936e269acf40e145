"""`cortex jobs retry`: retries waiting jobs at once."""

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

import click

from cortex.cli.bulk import BulkWords
from cortex.cli.changes import ChangeRequest, changes
from cortex.cli.choice import JOBS, BulkCommand, JobsRequest, act_on_all, chosen
from cortex.cli.jobs.bulk_commands import act_columns, change_named, show_acts
from cortex.cli.options import Command
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.breaker import BreakerState
from cortex.domain.bulk import BulkVerb
from cortex.domain.clock import system_chance
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import HEIR, HEIRS
from cortex.domain.phrases import short_id, span
from cortex.domain.waiting import FreezeWait, QuotaWait
from cortex.postgres.session import Session
from cortex.store import breakers, jobs
from cortex.store.job_choice import retry_each
from cortex.store.jobs import ShownJob
from cortex.view.cells import Row
from cortex.view.phrases import localised
from cortex.view.resource import Field
from cortex.view.verbs import RETRY_JOB

RETRY: Final = BulkCommand(
    verb=BulkVerb.RETRY,
    words=BulkWords(operation="jobs.retry.bulk", would="would try again now", done="try again now"),
)


@click.command(cls=Command)
@chosen(JOBS)
@changes(RETRY_JOB)
def retry(change: ChangeRequest, *, request: JobsRequest) -> None:
    """Retry jobs now, by id or by filter.

    A job in RETRY, or one that waits for its next worker attempt, continues at once; an open
    circuit breaker still decides about its calls. A FAILED job continues in a new job after its
    last step, as with `cortex dead retry`; a filter includes failed jobs only if it names them:
    'status:fail'. Exits with 5 if a job cannot be retried. A filter submits a job of type `bulk`,
    which goes on after Ctrl-C.
    """
    if not request.names:
        act_on_all(change, request, RETRY)
        return
    output = change.output
    with session(change.options) as call:
        job_ids = list(dict.fromkeys(call(jobs.find, name) for name in request.names))
        shown = [call(jobs.show, each) for each in job_ids]
        waited = {row.waiting_on: row for row in shown}
        if failed := [row for row in shown if row.status is JobStatus.FAILED]:
            change.confirm(_question(failed))
        work = partial(retry_each, credential=change.credential, new_id=system_chance().new_id)
        rows = change_named(change, call, job_ids, work, operation="jobs.retry")
        for name in sorted(each for each in waited if each):
            _report_breaker(call, name, output)
            _report_hold(waited[name], output)
    show_acts(output, COLUMNS, rows)


def _report_breaker(call: Session, name: str, output: Output) -> None:
    """Report that an open breaker decides, until when, and how to close it."""
    for row in call(breakers.page, name=name, limit=1):
        if row.state != BreakerState.OPEN:
            return
        until = "until it is closed"
        if row.open_until is not None:
            left_s = (row.open_until - row.now).total_seconds()
            at = output.talk.clock(row.open_until)
            until = (
                f"for {span(left_s)} (until {at})" if left_s > 0 else ("until one call tests it")
            )
        output.say(
            f"breaker {name} decides about their calls, and is open {until}: "
            f"cortex breakers close {shlex.quote(name)} --reason TEXT",
            "warn",
        )


def _report_hold(job: ShownJob, output: Output) -> None:
    """Report that a freeze or a quota decides about effects, and how to lift it."""
    observed = job.awaited
    if isinstance(observed, FreezeWait) or (
        isinstance(observed, QuotaWait) and observed.is_used_up
    ):
        words = localised(observed.words) if output.talk.is_tty else observed.words
        output.say(f"it {words}; {observed.ways_out[0]}", "warn")


def _question(failed: Sequence[ShownJob]) -> str:
    if len(failed) > 1:
        return f"retry {len(failed)} failed jobs: {HEIRS}"
    (job,) = failed
    name = f"{job.agent or job.type} {short_id(job.id)}"
    return f"retry {name}, which failed ({job.error_message}): {HEIR}"


def _summary(row: Row) -> str:
    if row.get("retried_as") is None:
        return "tries again now"
    return f"goes on as {short_id(UUID(row['retried_as']))}, from its last checkpoint"


COLUMNS: Final = act_columns(_summary, Field(name="retried_as", title="new job", is_default=False))
