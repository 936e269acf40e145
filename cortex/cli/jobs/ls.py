"""`cortex jobs ls`."""

from typing import Final

import attrs
import click

from cortex.cli.completing import known
from cortex.cli.filtering import filter_argument
from cortex.cli.options import Command, Options, completions, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.job_filter import (
    STATE_NAMES,
    JobCursor,
    JobFilter,
    StateTerm,
    parse_filter,
    parse_state,
)
from cortex.domain.phrases import short_id
from cortex.postgres.session import Session
from cortex.store import jobs
from cortex.store.job_pages import JobPage, page
from cortex.store.why import facts_of_all
from cortex.view.resources.jobs import JOBS
from cortex.view.why_brief import EXPLAINED, brief

PAGES_MAX: Final = 50
"""At most this many sparse pages are combined: about 100,000 jobs are scanned."""


def parse_states(words: tuple[str, ...]) -> tuple[StateTerm, ...]:
    """Parse states: `run`, `RUNNING`, `effect`; commas separate several."""
    return tuple(term for text in words for part in text.split(",") for term in parse_state(part))


@click.command(cls=Command, columns=JOBS.fields)
@filter_argument
@click.option(
    "--status",
    multiple=True,
    metavar="STATE",
    shell_complete=lambda *given: completions(STATE_NAMES, given[-1]),
    help="pend, run, asks, retry, done …",
)
@click.option(
    "--type",
    "types_",
    multiple=True,
    metavar="TYPE",
    help="Only this job type.",
    shell_complete=known("type"),
)
@click.option(
    "--agent", metavar="NAME", help="Only this agent's jobs.", shell_complete=known("agent")
)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only jobs with this tag.")
@limit_option(50)
@click.option("--before", metavar="ID", help="Only jobs older than this one: the next page.")
@click.pass_obj
def ls(
    options: Options,
    *,
    filters: tuple[str, ...],
    status: tuple[str, ...],
    types_: tuple[str, ...],
    agent: str | None,
    tags: tuple[str, ...],
    limit: int,
    before: str | None,
) -> None:
    """List jobs, the newest first.

    FILTER: 'status:retry,fail agent:invoice-* type:T queue:Q tenant:NAME tag:TAG code:CODE age>10m
    created<2026-01-31 id:9f3a1c'. All terms must hold; commas separate alternatives. Of failed jobs
    also 'letter:open,escalated fingerprint:3fa9 class:permanent ended<2h'.
    """
    which = _which(filters, parse_states(status), types_, agent, tags)
    output = Output(options)
    with session(options) as call:
        place = JobCursor(call(jobs.find, before)) if before else None
        found = _found(call, which, place=place, limit=limit)
        if agent and not found.jobs:
            from cortex.store import specs
            from cortex.store.specs import SpecKind

            # An unknown agent is an error, not an empty list.
            call(specs.versions, SpecKind.AGENT, agent)
    is_filtered = which != JobFilter() or before
    output.resource(JOBS, found.jobs, empty="no job matches" if is_filtered else None)
    if found.next is None:
        return
    if found.is_short and len(found.jobs) < limit:
        # The full id: the end of an id is searched among the newest jobs only.
        output.say(f"many jobs were looked at, there may be more: --before {found.next.id}", "warn")
    elif output.terminal.is_tty:
        output.say(f"older ones: --before {short_id(found.next.id)}", "dim")


def _which(
    filters: tuple[str, ...],
    states: tuple[StateTerm, ...],
    types: tuple[str, ...],
    agent: str | None,
    tags: tuple[str, ...],
) -> JobFilter:
    """Combine the filter and the options: values of one criterion are alternatives."""
    which = parse_filter(" ".join(filters))
    return attrs.evolve(
        which,
        states=(*which.states, *states),
        types=(*which.types, *types),
        agents=(*which.agents, *([agent] if agent else ())),
        tags=(*which.tags, *tags),
    )


def _found(call: Session, which: JobFilter, *, place: JobCursor | None, limit: int) -> JobPage:
    """Continue reading after sparse pages, within limits."""
    found = call(page, which, before=place, limit=limit)
    rows = found.jobs
    for _ in range(PAGES_MAX - 1):
        if not found.is_short or len(rows) == limit:
            break
        found = call(page, which, before=found.next, limit=limit - len(rows))
        rows += found.jobs
    waiting = [row.id for row in rows if row.status in EXPLAINED]
    facts = call(facts_of_all, waiting)
    whys = {job_id: brief(each) for job_id, each in facts.items()}
    return attrs.evolve(found, jobs=[attrs.evolve(row, why=whys.get(row.id)) for row in rows])
