"""`cortex tokens ls`: access to the HTTP API; never shows the tokens themselves."""

import click

from cortex.cli.options import Command, Options, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.store import tokens as store
from cortex.view.resources.tokens import TOKENS


@click.command(cls=Command, columns=TOKENS.fields)
@click.option("--all", "with_ended", is_flag=True, help="Include revoked and expired tokens.")
@click.option("--name", metavar="NAME", help="Only this person's.")
@limit_option(100)
@click.pass_obj
def ls(options: Options, *, with_ended: bool, name: str | None, limit: int) -> None:
    """List tokens, the newest first: holder, roles, last use."""
    output = Output(options)
    with session(options) as call:
        rows = call(store.page, name=name, with_ended=with_ended, limit=limit)
    output.resource(TOKENS, rows, empty="no token matches" if name or with_ended else None)
