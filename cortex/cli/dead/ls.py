"""`cortex dead ls`: failed jobs, by error or one by one."""

from typing import Final

import click

from cortex.cli.dead.filters import filtered, nothing_matches
from cortex.cli.filtering import filter_argument
from cortex.cli.options import Command, Options, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.dead_letter import DeadLetterState
from cortex.domain.errors import UsageError
from cortex.domain.job_filter import DEAD, of_letters, parse_filter, term
from cortex.domain.phrases import short_id
from cortex.store import dead_letters, jobs
from cortex.view.resources.dead_letters import ERRORS, LETTERS

NO_OLDER: Final = "no older ones"


@click.command(cls=Command, columns=(*ERRORS.fields, *LETTERS.fields))
@filter_argument
@filtered
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([*(s.value.lower() for s in DeadLetterState), "all"], case_sensitive=False),
    metavar="STATE",
    help="open, escalated, retried, discarded, archived or all [open, escalated, archived].",
)
@click.option("--each", is_flag=True, help="One line per dead letter, not per error.")
@limit_option(50)
@click.option("--before", metavar="ID", help="With --each, show older ones: the next page.")
@click.pass_obj
def ls(
    options: Options,
    *,
    filters: tuple[str, ...],
    states: tuple[str, ...],
    each: bool,
    limit: int,
    before: str | None,
) -> None:
    """List dead letters: what failed, how often, and the effect of a retry.

    FILTER: as in `jobs ls`, such as 'fingerprint:3fa9 agent:invoice-* ended<2h'; with no `letter:`
    the unresolved ones.
    """
    output = Output(options)
    if before and not each:
        raise UsageError("--before needs --each: errors have no pages", hint="use --limit")
    output.chosen(LETTERS.fields if each else ERRORS.fields)
    terms = [term("letter", state) for state in states]
    which = parse_filter(of_letters(" ".join((*filters, *terms))))
    with session(options) as call:
        after = call(jobs.find, before) if before else None
        groups = [] if each else call(dead_letters.groups, which, limit=limit)
        rows = call(dead_letters.page, which, before=after, limit=limit + 1) if each else []
        empty = None
        if not (rows or groups) and after is not None:
            call(dead_letters.of_jobs, [after])  # a job without a dead letter is an error
            empty = NO_OLDER
        elif not (rows or groups) and which != DEAD:
            empty = nothing_matches(call, which)
    if not each:
        output.resource(ERRORS, groups, empty=empty)
        if groups and not groups[0].is_all:
            counted = f"counted only the newest {dead_letters.COUNTED_MAX:,} matching dead letters"
            output.say(f"{counted}: narrow the filter, or list older ones with --each", "warn")
        return
    shown = rows[:limit]
    output.resource(LETTERS, shown, empty=empty)
    if len(rows) > limit and output.terminal.is_tty:
        output.say(f"older ones: --before {short_id(shown[-1].job_id)}", "dim")
    elif before and shown and output.terminal.is_tty:
        output.say(NO_OLDER, "dim")
