"""Confirmation before irreversible changes, and the person and reason behind a change."""

import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from cortex.cli.options import Options, Text
from cortex.cli.target import session
from cortex.domain.errors import UsageError
from cortex.domain.people import Identity
from cortex.postgres.session import Session
from cortex.store import tokens
from cortex.store.people import system_user

LABEL_MAX: Final = 80
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


def acting(options: Options, label: str | None) -> Identity:
    """Return who acts: the holder of the token in CORTEX_TOKEN, else the OS user.

    The label of `--as` stands beside the name. Raises `UsageError` for an invalid token.
    """
    if not os.environ.get(TOKEN_VARIABLE):
        return Identity.from_system(system_user(), label=label)
    with session(options) as call:
        return acting_in(call, label)


def acting_in(call: Session, label: str | None) -> Identity:
    """Return who acts, as `acting` does, in an open session."""
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return Identity.from_system(system_user(), label=label)
    found = call(tokens.identity, token, label=label)
    if found is None:
        raise UsageError(f"{TOKEN_VARIABLE} does not hold a valid token", hint=MAKE_TOKEN)
    return found


as_option = click.option(
    "--as",
    "actor",
    type=Text(LABEL_MAX),
    metavar="LABEL",
    help="Label to record beside your name, which is the OS user's or your token's.",
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
