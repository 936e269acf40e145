"""Confirmation before irreversible changes, and the person and reason behind a change."""

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
"""Characters; the reason appears in lists."""

COUNT_MAX: Final = 100
"""A larger number must be typed to confirm it."""

TOKEN_VARIABLE: Final = "CORTEX_TOKEN"  # noqa: S105 -- its name
MAKE_TOKEN: Final = "create one: cortex tokens create --name NAME --role approver"  # noqa: S105

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


NO_TERMINAL: Final = "needs confirmation, but there is no terminal"


class Reason(Text):
    """Optional text: "" means none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value, param, ctx) if value else ""


def confirm(question: str, options: Options, *, is_agreed: bool) -> None:
    """Ask y/N on a terminal unless `--yes` was given; exit for any answer but yes.

    Raises `UsageError` without a terminal.
    """
    if is_agreed:
        return
    if not _can_be_asked(options):
        raise UsageError(f"{question}: {NO_TERMINAL}", hint="add --yes")
    if not click.confirm(question, err=True):
        click.echo("nothing was done", err=True)
        raise click.exceptions.Exit(1)


def confirm_count(question: str, count: int, options: Options, *, is_agreed: bool) -> None:
    """Ask before many changes: above `COUNT_MAX` the number must be typed.

    Otherwise like `confirm`.
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
    """Return the acting person: the given name, else the operating system's user."""
    if given:
        return given
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        raise UsageError("this user has no name", hint="name yourself: --as NAME") from None
    if storable(name) != name or len(name) > ACTOR_MAX:
        text = "this user's name is not text that can be stored"
        raise UsageError(text, hint="name yourself: --as NAME")
    return name


def acting_credential() -> str:
    """Return the acting credential: the operating system's user, regardless of a given name."""
    return of_user(os.getuid(), socket.gethostname())


def deciding_person(call: Session, given: str | None) -> tuple[str, str]:
    """Return name and credential of the decider: from CORTEX_TOKEN, else the OS user.

    A given name is only a label. Raises `UsageError` for a token that may not decide.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return acting_name(given), acting_credential()
    digest = digest_of_token(token.strip())
    holder = None if digest is None else call(tokens.used, digest)
    if holder is None or not holder.is_good:
        raise UsageError(f"{TOKEN_VARIABLE} does not hold a valid token", hint=MAKE_TOKEN)
    if not may(holder.roles, Role.APPROVER):
        text = f"the token of {holder.name} in {TOKEN_VARIABLE} lacks the role approver"
        raise UsageError(text, hint=MAKE_TOKEN)
    return given or holder.name, of_token(holder.token_id)


as_option = click.option(
    "--as", "actor", type=Text(ACTOR_MAX), metavar="NAME", help="Name to record [the OS user]."
)


unasked_option = click.option(
    "--yes",
    is_flag=True,
    expose_value=False,
    help="Accepted for scripts: this command asks nothing.",
)
"""For commands that never ask, so that scripts can pass --yes to every command that changes
something.
"""


def reason_option(
    text: str, *, is_required: bool = False, chars_max: int = REASON_MAX
) -> Callable[[Decorated], Decorated]:
    if is_required:
        return click.option(
            "--reason", type=Text(chars_max), required=True, metavar="TEXT", help=text
        )
    return click.option("--reason", type=Reason(chars_max), default="", metavar="TEXT", help=text)
