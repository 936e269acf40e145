"""`cortex effects ls`: external effects of jobs, the newest first."""

import click

from cortex.cli.listing import named_states
from cortex.cli.options import Command, Options, completions, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.effect import EffectStatus
from cortex.domain.phrases import short_id
from cortex.store import effects, jobs
from cortex.view.effects import WORDS
from cortex.view.resources.effects import EFFECTS


@click.command(cls=Command, columns=EFFECTS.fields)
@click.option(
    "--status",
    multiple=True,
    metavar="STATE",
    shell_complete=lambda *given: completions(WORDS, given[-1]),
    help="pending, unknown, applied, not-applied or given-up; commas separate several.",
)
@click.option("--tool", metavar="NAME", help="Only effects of this tool.")
@click.option("--job", metavar="ID", help="Only effects of this job.")
@limit_option(50)
@click.option("--before", metavar="ID", help="Only effects older than this one: the next page.")
@click.pass_obj
def ls(
    options: Options,
    *,
    status: tuple[str, ...],
    tool: str | None,
    job: str | None,
    limit: int,
    before: str | None,
) -> None:
    """List effects, the newest first. Unknown ones need a person to record their outcome."""
    statuses = named_states(status, WORDS)
    output = Output(options)
    with session(options) as call:
        rows = call(
            effects.page,
            statuses=statuses or tuple(EffectStatus),
            tool=tool,
            job_id=call(jobs.find, job) if job else None,
            before=call(effects.find, before) if before else None,
            limit=limit,
        )
    is_filtered = any((statuses, tool, job, before))
    output.resource(EFFECTS, rows, empty="no effect matches" if is_filtered else None)
    if len(rows) == limit and output.terminal.is_tty:
        output.say(f"older ones: --before {short_id(rows[-1].id)}", "dim")
