"""`cortex jobs state`: what a job's code shows of itself."""

import click

from cortex.cli.completing import known
from cortex.cli.options import Command, Format, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store import jobs
from cortex.view.cells import pad, width_of
from cortex.view.phrases import exact
from cortex.view.progress import bar

LABEL_CELLS_MAX = 40


@click.command(cls=Command)
@click.argument("job", metavar="ID", shell_complete=known("job"))
@click.pass_obj
def state(options: Options, *, job: str) -> None:
    """Show the state and the progress that a job has published.

    That is what its code has assigned to `ctx.state` and given to `ctx.progress`: current to a
    quarter of a second while the job runs, and kept with the job.
    """
    options.refuse_columns("a state has no columns")
    output = Output(options)
    with session(options) as call:
        job_id = call(jobs.find, job)
        found = call(jobs.show, job_id)
    shown, progress = found.state or {}, found.progress
    match output.format:
        case Format.TABLE | Format.WIDE:
            if progress is not None:
                output.line(safe(bar(progress)))
            cells = min(LABEL_CELLS_MAX, max(map(width_of, shown), default=0))
            for key, value in sorted(shown.items()):
                output.line(f"{pad(safe(key), cells)}  {safe(exact(value))}")
            if not shown and progress is None:
                output.say(f"job {short_id(job_id)} has published nothing", "dim")
        case Format.NAME:
            for key in sorted(shown):
                output.line(safe(key))
        case _:
            output.document({"job_id": job_id, "state": shown, "progress": progress})
