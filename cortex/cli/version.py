"""`cortex version`."""

import click

import cortex
from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output


@click.command(cls=Command)
@click.pass_obj
def version(options: Options) -> None:
    """Show the version."""
    number = cortex.__version__
    Output(options).record({"version": number}, name=number, page=lambda: [f"cortex {number}"])
