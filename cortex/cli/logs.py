"""`cortex logs`: what code of jobs logged and printed."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

import attrs
import click

from cortex.cli.completing import known
from cortex.cli.options import ROW_NUMBER, Command, Format, Options, Span
from cortex.cli.patient import Patient
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.errors import NotFoundError, UsageError
from cortex.domain.log_line import LEVELS, Level
from cortex.domain.phrases import SPAN_MAX_S, short_id
from cortex.domain.safe import safe
from cortex.postgres.session import Session
from cortex.store import jobs
from cortex.store import logs as store
from cortex.store.logs import LogPlace, LogRow, LogTail
from cortex.view.cells import fit, pad
from cortex.view.logs import LEVEL_CELLS, STYLES, fields_text, message_lines
from cortex.view.resources.logs import LOGS

POLL_S: Final = 0.25
"""One or two statements per poll."""
LINGER_S: Final = 1.5
"""A pod stores lines a moment after the end of their job: so long a followed log goes on."""
PAGE_MAX: Final = 1_000
LIMIT_MAX: Final = 100_000
SHOWN_CHARS_MAX: Final = 4_000
"""Of one line, for people; a traceback has fewer."""
STEP_CELLS: Final = 16
JOB_CELLS: Final = 8
TYPE_CELLS: Final = 16


Show = Callable[[Sequence[LogRow]], None]
"""Writes lines, in their order."""


@attrs.frozen(kw_only=True)
class Wanted:
    """Which lines are shown."""

    least: Level
    attempt: int | None
    step: str | None

    def has(self, row: LogRow) -> bool:
        """Return whether a line is shown."""
        return (
            row.level >= self.least
            and self.attempt in (None, row.attempt)
            and self.step in (None, row.step)
        )


@click.command("logs", cls=Command, columns=LOGS.fields)
@click.argument("job", metavar="[ID]", required=False, shell_complete=known("job"))
@click.option("-f", "--follow", is_flag=True, help="Show new lines until the job ends.")
@click.option("--all", "of_all", is_flag=True, help="Lines of all jobs.")
@click.option(
    "--level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="debug",
    metavar="LEVEL",
    help=f"Only lines from this level on: {', '.join(LEVELS)}.",
)
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Only lines of this attempt.")
@click.option("--step", metavar="KEY", help="Only lines of this step.")
@click.option(
    "--since",
    "since_s",
    type=Span(above_zero=True),
    metavar="SPAN",
    help="With --all, how far back: 15m, 1d … [everything].",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0, LIMIT_MAX),
    default=PAGE_MAX,
    show_default=True,
    metavar="N",
    help="The newest lines.",
)
@click.option("--before", type=ROW_NUMBER, metavar="ID", help="With --all: only older lines.")
@click.pass_obj
def logs(
    options: Options,
    *,
    job: str | None,
    follow: bool,
    of_all: bool,
    level: str,
    attempt: int | None,
    step: str | None,
    since_s: float | None,
    limit: int,
    before: int | None,
) -> None:
    """Show what the code of a job logged and printed, with its steps and attempts.

    Lines are kept with their job, for two weeks at most (setting logs_s). What was dropped is
    counted where it is missing.
    """
    output = Output(options)
    if (job is None) is not of_all:
        raise UsageError(
            "name one job, or --all", hint="cortex logs ID, cortex logs --all; ids: cortex jobs ls"
        )
    if of_all and (attempt, step) != (None, None):
        raise UsageError("--attempt and --step are for the log of one job")
    if not of_all and (since_s, before) != (None, None):
        raise UsageError("--since and --before are for --all")
    if follow and output.format in {Format.YAML, Format.NAME}:
        raise UsageError(f"logs --follow does not support format {output.format}", hint="use jsonl")
    wanted = Wanted(least=Level.of_word(level), attempt=attempt, step=step)
    with session(options) as call:
        reader = LogReader(
            call=call,
            look=Patient(call, output),
            output=output,
            show=_printer(output, of_all=of_all, follows=follow),
            wanted=wanted,
            follows=follow,
        )
        if job is None:
            since = SPAN_MAX_S if since_s is None else since_s
            reader.show_all(since_s=since, before=before, limit=limit)
        else:
            reader.show_job(call(jobs.find, job), limit=limit)


@attrs.frozen(kw_only=True)
class LogReader:
    """Reads lines and shows them, each once."""

    call: Session
    look: Patient
    output: Output
    show: Show
    wanted: Wanted
    follows: bool

    def show_job(self, job_id: UUID, *, limit: int) -> None:
        """Show the newest lines of a job; then, if they are followed, new ones until it ends."""
        rows = self.look(
            store.newest_of_job,
            job_id,
            least=self.wanted.least,
            attempt=self.wanted.attempt,
            step=self.wanted.step,
            limit=limit + 1,
        )
        if not rows and not self.look(jobs.counts, [job_id]):
            raise NotFoundError(f"job {job_id} does not exist", hint="list them: cortex jobs ls")
        if len(rows) > limit > 0:
            self.output.say(f"older lines: --limit {min(LIMIT_MAX, 10 * limit)}", "dim")
        shown = rows[max(0, len(rows) - limit) :]
        if shown or not self.follows:
            self.show(shown)
        if self.follows:
            # Lines that `wanted` leaves out are read once more, and left out again.
            self._follow(job_id, LogPlace().after(rows))

    def _follow(self, job_id: UUID, place: LogPlace) -> None:
        ends_at: float | None = None
        while True:
            rows = self.look(store.of_job_after, job_id, place=place, limit=PAGE_MAX)
            place = place.after(rows)
            if chosen := [row for row in rows if self.wanted.has(row)]:
                self.show(chosen)
            if len(rows) == PAGE_MAX:
                continue
            if ends_at is not None and time.monotonic() >= ends_at:
                return
            if ends_at is None and self._is_over(job_id):
                ends_at = time.monotonic() + LINGER_S
            self.call.pause(POLL_S)

    def _is_over(self, job_id: UUID) -> bool:
        states = self.look(jobs.counts, [job_id])
        if not states:
            raise NotFoundError(f"job {job_id} was deleted meanwhile")
        return all(state.is_terminal for state in states)

    def show_all(self, *, since_s: float, before: int | None, limit: int) -> None:
        """Show the newest lines of all jobs; then, if they are followed, new ones."""
        tail = LogTail(self.look(store.newest_id)) if self.follows else None
        rows = self.look(
            store.page, least=self.wanted.least, since_s=since_s, before=before, limit=limit
        )
        if tail is None or rows:
            self.show(rows[::-1])
        if len(rows) == limit > 0 and self.output.terminal.is_tty:
            self.output.say(f"older lines: --before {rows[-1].id}", "dim")
        if tail is not None:
            tail.mark(rows, now=time.monotonic())
            self._follow_all(tail)

    def _follow_all(self, tail: LogTail) -> None:
        while True:
            rows = self.look(
                tail.next, least=self.wanted.least, limit=PAGE_MAX, now=time.monotonic()
            )
            if rows:
                self.show(rows)
            if len(rows) < PAGE_MAX:
                self.call.pause(POLL_S)


def _printer(output: Output, *, of_all: bool, follows: bool) -> Show:
    """Return the function that writes lines, in their order."""
    if output.format is Format.TABLE and output.options.columns is None:
        return LinePrinter(output, of_all=of_all).show
    if not follows:
        return lambda rows: output.resource(LOGS, rows)
    if output.is_for_people:
        raise UsageError("logs --follow has no table", hint="leave --columns and -o wide out")

    def stream(rows: Sequence[LogRow]) -> None:
        for row in rows:
            fields = output.chosen(LOGS.fields)
            output.json_line({each.name: each.exact(row) for each in fields})

    return stream


class LinePrinter:
    """Prints lines for people: when, level, step, message."""

    def __init__(self, output: Output, *, of_all: bool) -> None:
        """`of_all`: name the job of each line."""
        self._output = output
        self._of_all = of_all
        self._attempt = 1

    def show(self, rows: Sequence[LogRow]) -> None:
        """Print lines in order; say so if there are none."""
        if not rows:
            self._output.say(LOGS.empty, "dim")
        terminal = self._output.terminal
        for row in rows:
            for line in self._lines(row):
                terminal.write(line)
        terminal.flush()

    def _cut(self, text: str) -> str:
        more = len(text) - SHOWN_CHARS_MAX
        return text if more <= 0 else f"{text[:SHOWN_CHARS_MAX]}… {more:,} more: --json has them"

    def _lines(self, row: LogRow) -> Iterable[str]:
        terminal = self._output.terminal
        if not self._of_all and row.attempt != self._attempt:
            self._attempt = row.attempt
            yield terminal.paint(f"── attempt {row.attempt}", "dim")
        lead = [terminal.paint(terminal.clock(row.at), "dim")]
        lead.append(terminal.paint(pad(row.level.word, LEVEL_CELLS), STYLES[row.level]))
        if self._of_all:
            lead.append(terminal.paint(pad(short_id(row.job_id), JOB_CELLS), "bold"))
            lead.append(pad(fit(safe(row.job_type or "?"), TYPE_CELLS), TYPE_CELLS))
        step = pad(fit(safe(row.step or "·"), STEP_CELLS), STEP_CELLS)
        lead.append(terminal.paint(step, "dim"))
        first, *more = message_lines(self._cut(row.message))
        fields = terminal.paint(fields_text(row.fields), "dim")
        style = "warn" if row.dropped else ""
        yield "  ".join(filter(None, (*lead, terminal.paint(first, style), fields)))
        for line in more:
            yield f"    {line}"
