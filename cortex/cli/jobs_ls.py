"""`cortex jobs ls` and `cortex jobs types`."""

import difflib
from typing import Final

import click

from cortex.cli.job_words import JOB_COLUMNS
from cortex.cli.options import Command, Options
from cortex.cli.output import Output
from cortex.cli.phrases import short_id
from cortex.cli.table import Cell, Column
from cortex.cli.target import session
from cortex.cli.terminal import STATES
from cortex.domain.errors import UsageError
from cortex.domain.job import JobStatus
from cortex.store import agents, jobs, pods

LIMIT_MAX: Final = 1000

_WORDS: Final = {state.word: status for status, state in STATES.items()} | {
    status.value.lower(): status for status in JobStatus
}


def parse_statuses(words: tuple[str, ...]) -> list[JobStatus]:
    """Return the states that words name: `run`, `RUNNING`, several with commas."""
    found = []
    for word in (part.strip().lower() for text in words for part in text.split(",")):
        if word not in _WORDS:
            close = difflib.get_close_matches(word, _WORDS, n=1)
            raise UsageError(
                f"unknown state {word!r}",
                hint=f"did you mean {close[0]!r}?"
                if close
                else f"states: {', '.join(state.word for state in STATES.values())}",
            )
        found.append(_WORDS[word])
    return found


@click.command(cls=Command)
@click.option("--status", multiple=True, metavar="STATE", help="pend, run, appr, retry, done …")
@click.option("--type", "types_", multiple=True, metavar="TYPE", help="Only this job type.")
@click.option("--agent", metavar="NAME", help="Only this agent's jobs.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, metavar="N"
)
@click.option("--before", metavar="ID", help="Only jobs older than this one: the next page.")
@click.pass_obj
def ls(
    options: Options,
    *,
    status: tuple[str, ...],
    types_: tuple[str, ...],
    agent: str | None,
    limit: int,
    before: str | None,
) -> None:
    """List jobs, the newest first."""
    statuses = parse_statuses(status)
    output = Output(options)
    output.chosen(JOB_COLUMNS)
    with session(options) as call:
        rows = call(
            jobs.page,
            statuses=statuses,
            types=types_,
            agent=agent,
            before=call(jobs.find, before) if before else None,
            limit=limit,
        )
        if agent and not rows:
            call(agents.versions, agent)  # an agent that does not exist is an error, not no jobs
    filtered = bool(statuses or types_ or agent or before)
    empty = "no job matches" if filtered else "no jobs yet; submit one: cortex jobs submit TYPE"
    output.listing("jobs", JOB_COLUMNS, rows, empty=empty)
    if len(rows) == limit and output.terminal.is_tty:
        output.say(f"older ones: --before {short_id(rows[-1]['id'])}", "dim")


TYPE_COLUMNS: Final = (
    Column(name="type", least=10),
    Column(
        name="is_live",
        title="runs now",
        shown=lambda r: Cell("yes", "done") if r["is_live"] else Cell("no ready pod", "dim"),
    ),
)


@click.command(cls=Command)
@click.pass_obj
def types(options: Options) -> None:
    """List the job types that pods have registered, and whether a ready pod runs them."""
    output = Output(options)
    with session(options) as call:
        live = set(call(pods.live_types))
        rows = [{"type": name, "is_live": name in live} for name in call(jobs.known_types)]
    output.listing("types", TYPE_COLUMNS, rows, empty="no pod has registered any yet: cortex up")
