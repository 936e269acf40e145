"""`cortex patches`: which unfinished jobs need which branch of a change to their code."""

import click

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.store import steps as store
from cortex.view.resources.patches import PATCHES


@click.command(cls=Command, columns=PATCHES.fields)
@click.pass_obj
def patches(options: Options) -> None:
    """List patches in job code, and how many unfinished jobs need each branch.

    `old` jobs reached `ctx.patched` under older code and keep the old branch, `new` ones take the
    new branch. `undecided` ones have begun but not reached it: they may need either. Delete the
    old branch when `old` and `undecided` are 0 for all types, and check the code without it with
    `cortex preflight`.
    """
    output = Output(options)
    with session(options) as call:
        rows = call(store.patches)
    output.resource(PATCHES, rows)
    if rows and rows[0].is_capped:
        output.say(
            f"only the oldest {store.PATCHED_JOBS_MAX:,} unfinished jobs are counted", "warn"
        )
