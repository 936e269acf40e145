"""`cortex jobs tree`: a job and the jobs that it has submitted."""

import click

from cortex.cli.completing import known
from cortex.cli.options import Command, Format, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store import children, jobs
from cortex.store.children import SHOWN_MAX
from cortex.view.cells import fit, pad, width_of
from cortex.view.tree import TreeLine, flat, lines_of

NAME_CELLS_MAX = 60
SHOWN_LIMIT = 1_000


@click.command(cls=Command)
@click.argument("job", metavar="ID", shell_complete=known("job"))
@click.option(
    "--shown",
    type=click.IntRange(1, SHOWN_LIMIT),
    default=SHOWN_MAX,
    show_default=True,
    help="Most children of each job; the others are counted.",
)
@click.pass_obj
def tree(options: Options, *, job: str, shown: int) -> None:
    """Show a job and the jobs that it has submitted, down to the leaves.

    Of many children, those that failed or run come first. `held`: not submitted until others end.
    """
    options.refuse_columns("a tree has no columns")
    output = Output(options)
    with session(options) as call:
        found = call(children.tree, call(jobs.find, job), shown_max=shown)
    match output.format:
        case Format.TABLE | Format.WIDE:
            _print(output, lines_of(found))
            if found.job.parent_id is not None:
                output.say(f"child of {short_id(found.job.parent_id)}", "dim")
        case Format.NAME:
            for each in lines_of(found):
                if each.job is not None:
                    output.line(str(each.job.id))
        case _:
            output.document(flat(found))


def _print(output: Output, lines: list[TreeLine]) -> None:
    named = [(f"{each.branch}{safe(each.name)}", each) for each in lines]
    alone = [name for name, each in named if each.state is not None]
    cells = min(NAME_CELLS_MAX, max(map(width_of, alone)))
    states = max(width_of(each.state.text) for each in lines if each.state is not None)
    times = max(width_of(each.time) for each in lines)
    for name, each in named:
        if each.state is None:
            output.line(name)
            continue
        state = output.terminal.paint(pad(each.state.text, states), each.state.style)
        line = f"{pad(fit(name, cells), cells)}  {state}  {pad(each.time, times)}"
        output.line(f"{line}  {safe(each.note)}".rstrip())
