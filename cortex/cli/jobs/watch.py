"""`cortex jobs watch` and `cortex jobs wait`: follow jobs until they end."""

import time
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import attrs
import click

from cortex.cli.completing import known
from cortex.cli.jobs.facts import Cursor, Snapshot, document_of, is_ending, snapshot
from cortex.cli.jobs.follow import FactPrinter, status_line
from cortex.cli.options import Command, Format, Options, Seconds
from cortex.cli.patient import Patient
from cortex.cli.screen.live_line import live_line
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.errors import TimedOutError, UsageError
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.waiting import CODE
from cortex.postgres.session import Session
from cortex.store import jobs
from cortex.store.why import facts_of_all
from cortex.view import why as rules
from cortex.view.resource import on_demand
from cortex.view.resources.jobs import JOBS
from cortex.view.why_brief import EXPLAINED, brief

POLL_S: Final = 0.25
"""One statement per poll: four per second."""
WHY_EVERY_S: Final = 5.0
"""The reason why a job waits changes while its record does not; it takes a statement of its own."""
EXIT_NOT_COMPLETED: Final = 6
TIMEOUT_MAX_S: Final = 365 * 86_400.0


@click.command(cls=Command)
@click.argument("job", metavar="ID", shell_complete=known("job"))
@click.option("--plain", is_flag=True, help="One fact per line, as in a pipe.")
@click.pass_obj
def watch(options: Options, *, job: str, plain: bool) -> None:
    """Follow a job until it ends: each step, each attempt, each change of state.

    Exits with 0 when the job is COMPLETED, 6 when it is FAILED or CANCELLED.
    """
    output = Output(options)
    if output.format in {Format.YAML, Format.NAME}:
        raise UsageError(
            f"jobs watch does not support format {output.format}", hint="use json, or no format"
        )
    with session(options) as call:
        job_id = call(jobs.find, job)
        if output.is_for_people:
            ended = _watch_lines(call, job_id, output=output, is_live=not plain)
        else:
            ended = _watch_documents(call, job_id, output=output)
    exit_by([ended])


@click.command(cls=Command)
@click.argument("job_names", metavar="ID…", nargs=-1, required=True, shell_complete=known("job"))
@click.option(
    "--timeout",
    type=Seconds(TIMEOUT_MAX_S),
    metavar="S",
    help="Time-out in seconds; exits with 7.",
)
@click.pass_obj
def wait(options: Options, *, job_names: tuple[str, ...], timeout: float | None) -> None:
    """Wait silently until jobs end, then print how.

    Exits with 0 when all are COMPLETED, 6 when one is FAILED or CANCELLED, 7 after the time-out.
    """
    output = Output(options)
    give_up_at = None if timeout is None else time.monotonic() + timeout
    with session(options) as call:
        job_ids = [call(jobs.find, name) for name in job_names]
        ended = [wait_for(call, each, output=output, give_up_at=give_up_at) for each in job_ids]
    output.listing(JOBS.noun, ENDING_COLUMNS, [each.job for each in ended], empty="")
    exit_by(ended)


def wait_for(
    call: Session, job_id: UUID, *, output: Output, give_up_at: float | None = None
) -> Snapshot:
    """Return the job's last snapshot. Raises `TimedOutError` at a monotonic instant."""
    is_said = False
    for observed in looks(call, job_id, output=output):
        if observed.is_over:
            return observed
        if not is_said and observed.job.waiting_on == CODE:
            is_said = True
            facts = call(facts_of_all, [job_id]).get(job_id)
            why_not = "" if facts is None else f": {rules.why(facts).sentence}"
            output.say(f"job {short_id(job_id)} waits for code that fits it{why_not}", "warn")
        if give_up_at is not None and time.monotonic() >= give_up_at:
            raise TimedOutError(
                f"job {short_id(job_id)} is still {observed.status.value}",
                hint=f"it continues by itself; to follow it: cortex jobs watch {job_id}",
            )
    raise AssertionError("polling ends with a job that is over")


def exit_by(ended: list[Snapshot]) -> None:
    """Exit according to how jobs ended."""
    if any(each.status is not JobStatus.COMPLETED for each in ended):
        raise click.exceptions.Exit(EXIT_NOT_COMPLETED)


def looks(
    call: Session, job_id: UUID, *, output: Output, look: Patient | None = None
) -> Iterator[Snapshot]:
    """Poll a job until it is over; wait while the database is unavailable.

    Raises the error of the first poll.
    """
    look = look or Patient(call, output)
    cursor = Cursor()
    observed: Snapshot | None = None
    while observed is None or not observed.is_over:
        observed = look(snapshot, job_id, cursor)
        cursor = observed.cursor
        yield observed
        if observed.is_complete and not observed.is_over:
            call.pause(POLL_S)


def _watch_lines(call: Session, job_id: UUID, *, output: Output, is_live: bool) -> Snapshot:
    terminal = output.terminal
    printer = FactPrinter(terminal)
    look = Patient(call, output)
    whys = _Whys(look)
    with live_line(terminal, is_on=is_live) as live:
        for observed in looks(call, job_id, output=output, look=look):
            if observed.facts:
                live.clear()
                printer.print(fact for fact in observed.facts if not is_ending(fact))
            if observed.is_over:
                printer.print_ending(observed.job)
                return observed
            before, brief = whys.brief, whys.of(observed)
            if brief and brief != before and not live.is_on:
                printer.print_why(observed.job, brief)
            live.show(status_line(attrs.evolve(observed.job, why=brief), terminal))
    raise AssertionError("polling ends with a job that is over")


class _Whys:
    """Why a waiting job is not running: read when its record changes, and periodically."""

    def __init__(self, look: Patient) -> None:
        self._look = look
        self._standing: object = None
        self._due_at = 0.0
        self.brief = ""

    def of(self, observed: Snapshot) -> str:
        """Return the reason in a few words; "" if there is none, or the record already shows it."""
        job = observed.job
        standing = (job.status, job.attempt, job.retry_count)
        if standing != self._standing or time.monotonic() >= self._due_at:
            self._standing, self._due_at = standing, time.monotonic() + WHY_EVERY_S
            self.brief = ""
            if observed.status in EXPLAINED:
                facts = self._look(facts_of_all, [job.id]).get(job.id)
                self.brief = "" if facts is None else brief(facts)
        return self.brief


def _watch_documents(call: Session, job_id: UUID, *, output: Output) -> Snapshot:
    for observed in looks(call, job_id, output=output):
        for fact in observed.facts:
            output.json_line(document_of(fact))
        if observed.is_over:
            kept = ("id", "status", "finished_at", "result", "error_message", "error_code")
            output.json_line(
                {"fact": "ended", **{name: getattr(observed.job, name) for name in kept}}
            )
            return observed
    raise AssertionError("polling ends with a job that is over")


_SHOWN_AT_THE_END: Final = frozenset({"id", "status", "took_s", "cost_usd", "remark"})

ENDING_COLUMNS: Final = (
    *(column for column in JOBS.fields if column.name in _SHOWN_AT_THE_END),
    *on_demand("result", "error_message", "error_code", "finished_at"),
)
