"""Asking before something that cannot be undone, who it is that asks, and why."""

import getpass
import os
import socket
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from cortex.cli.options import Options, Text
from cortex.domain.errors import UsageError
from cortex.domain.redaction import storable
from cortex.domain.token import Role, digest_of_token, may, of_token, of_user
from cortex.postgres.session import Session
from cortex.store import tokens

ACTOR_MAX: Final = 200
REASON_MAX: Final = 500
"""Characters; both stand in every list of what was done."""

COUNT_MAX: Final = 100
"""More than that is not agreed to by one key."""

TOKEN_VARIABLE: Final = "CORTEX_TOKEN"  # noqa: S105 -- its name
MAKE_TOKEN: Final = "make one: cortex tokens create --name NAME --role approver"  # noqa: S105

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


NO_TERMINAL: Final = "needs confirmation, but there is no terminal"


class Reason(Text):
    """Text that may be left out: "" is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value, param, ctx) if value else ""


def confirm(question: str, options: Options, *, is_agreed: bool) -> None:
    """Ask y/N on a terminal unless `--yes` was given; ends the command for anything but yes.

    Without a terminal nobody can be asked: raises `UsageError`.
    """
    if is_agreed:
        return
    if not _can_be_asked(options):
        raise UsageError(f"{question}: {NO_TERMINAL}", hint="add --yes")
    if not click.confirm(question, err=True):
        click.echo("nothing was done", err=True)
        raise click.exceptions.Exit(1)


def confirm_count(question: str, count: int, options: Options, *, is_agreed: bool) -> None:
    """Ask before many things are changed: above `COUNT_MAX` the number has to be typed.

    As `confirm` else.
    """
    if is_agreed or count <= COUNT_MAX:
        confirm(question, options, is_agreed=is_agreed)
        return
    if not _can_be_asked(options):
        raise UsageError(f"{question}: {NO_TERMINAL}", hint="add --yes")
    typed = click.prompt(f"{question}: type {count:,} to go on", err=True, default="")
    if typed.replace(",", "").strip() != str(count):
        click.echo("nothing was done", err=True)
        raise click.exceptions.Exit(1)


def _can_be_asked(options: Options) -> bool:
    return not options.no_input and sys.stdin.isatty() and sys.stderr.isatty()


def acting_name(given: str | None) -> str:
    """Return who acts: the given name, else the operating system's user."""
    if given:
        return given
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("this user has no name", hint="say who acts: --as NAME") from None
    if storable(name) != name or len(name) > ACTOR_MAX:
        told = "this user's name is not text that the record can hold"
        raise UsageError(told, hint="say who acts: --as NAME")
    return name


def acting_credential() -> str:
    """Return what shows who acts: the operating system's user, whatever name was given."""
    return of_user(os.getuid(), socket.gethostname())


def deciding_person(call: Session, given: str | None) -> tuple[str, str]:
    """Return the name and the credential of who decides: CORTEX_TOKEN's, else the OS user's.

    A given name is a label. Raises `UsageError` for a token that may not decide.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return acting_name(given), acting_credential()
    digest = digest_of_token(token.strip())
    holder = None if digest is None else call(tokens.used, digest)
    if holder is None or not holder.is_good:
        raise UsageError(f"{TOKEN_VARIABLE} holds no token that is good", hint=MAKE_TOKEN)
    if not may(holder.roles, Role.APPROVER):
        told = f"the token of {holder.name} in {TOKEN_VARIABLE} lacks the role approver"
        raise UsageError(told, hint=MAKE_TOKEN)
    return given or holder.name, of_token(holder.token_id)


as_option = click.option(
    "--as", "actor", type=Text(ACTOR_MAX), metavar="NAME", help="Who acts [the OS user]."
)


unasked_option = click.option(
    "--yes", is_flag=True, expose_value=False, help="Nothing is asked here: for scripts."
)
"""Of a command that acts at once, so that a script may give it to each that acts."""


def reason_option(
    told: str, *, is_required: bool = False, chars_max: int = REASON_MAX
) -> Callable[[Decorated], Decorated]:
    """Return the option by which a command is told why; `told` is its help."""
    if is_required:
        return click.option(
            "--reason", type=Text(chars_max), required=True, metavar="TEXT", help=told
        )
    return click.option("--reason", type=Reason(chars_max), default="", metavar="TEXT", help=told)
