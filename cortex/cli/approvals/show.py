"""`cortex approvals show`: everything a decision is based on."""

import click

from cortex.cli.approvals.page import page
from cortex.cli.completing import known
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.store import approvals as store
from cortex.view.resources.approvals import APPROVAL
from cortex.view.spelled import spelled


@click.command(cls=Command)
@click.argument("name", metavar="ID", shell_complete=known("approval"))
@click.pass_obj
def show(options: Options, *, name: str) -> None:
    """Show the exact call, who requests it, why, and what each answer leads to."""
    options.refuse_columns("one request has no columns")
    output = Output(options)
    with session(options) as call:
        approval = call(store.show, call(store.find, name))
    output.record(
        {"approval": APPROVAL.document(approval)},
        name=str(approval.id),
        page=lambda: page(
            spelled(approval) if output.terminal.is_ascii else approval, output.terminal
        ),
        is_whole=True,
    )
