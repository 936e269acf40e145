"""Asking before something that cannot be undone, and who it is that asks."""

import getpass
import sys

import click

from cortex.cli.options import Options
from cortex.domain.errors import UsageError


def confirm(question: str, options: Options, *, is_agreed: bool) -> None:
    """Ask y/N on a terminal unless `--yes` was given; ends the command for anything but yes.

    Without a terminal nobody can be asked: raises `UsageError`.
    """
    if is_agreed:
        return
    if options.no_input or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question}: nobody can be asked here", hint="add --yes")
    if not click.confirm(question, err=True):
        click.echo("nothing was done", err=True)
        raise click.exceptions.Exit(1)


def acting_name(given: str | None) -> str:
    """Return who acts: the given name, else the operating system's user."""
    if given:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("this user has no name", hint="say who acts: --as NAME") from None


as_option = click.option("--as", "actor", metavar="NAME", help="Who acts [the OS user].")
