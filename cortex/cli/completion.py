"""`cortex completion`: the script with which a shell completes commands, options and ids."""

import click
from click.shell_completion import get_completion_class

from cortex.cli.options import Command, Options
from cortex.cli.screen.output import Output

SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """Return the script for one of `SHELLS`."""
    from cortex.cli.main import COMPLETE_VARIABLE, cli

    found = get_completion_class(shell)
    if found is None:
        raise AssertionError(f"click completes no commands for {shell}")
    return found(cli, {}, "cortex", COMPLETE_VARIABLE).source()


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_obj
def completion(options: Options, *, shell: str) -> None:
    """Print the script that completes commands in a shell: bash, zsh or fish.

    Packages install it. Elsewhere, for bash: cortex completion bash >
    ~/.local/share/bash-completion/completions/cortex
    """
    text = script(shell).strip()
    Output(options).record({"shell": shell, "script": text}, name=shell, page=text.splitlines)
