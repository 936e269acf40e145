"""`cortex breakers ls`: recent failures, and the jobs that wait for recovery."""

from typing import Final

import click

from cortex.cli.options import Command, Options, limit_option
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.store import breakers as store
from cortex.store.breakers import with_past
from cortex.view.resources.breakers import BREAKERS

LIMIT: Final = 200


@click.command(cls=Command, columns=BREAKERS.fields)
@limit_option(LIMIT, "Maximum number of rows.", most=10_000)
@click.pass_obj
def ls(options: Options, *, limit: int) -> None:
    """List circuit breakers, open ones first."""
    output = Output(options)
    with session(options) as call:
        rows = call(with_past, call(store.page, limit=limit))
    output.resource(BREAKERS, rows)
