"""`cortex tui`: the terminal UI, in this process; its code is loaded only here."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click
import platformdirs

from cortex.cli.asking import acting, as_option
from cortex.cli.options import Command, Options
from cortex.cli.screen.terminal import stderr_terminal, stdout_terminal
from cortex.cli.target import database, settings_from
from cortex.config import Settings
from cortex.domain.errors import UsageError
from cortex.domain.people import Identity
from cortex.domain.safe import safe

if TYPE_CHECKING:
    from cortex_tui.beside import PodBeside

THEMES: Final = ("dark", "light", "ansi")
NOTIFY: Final = ("off", "bell", "osc")
KEYS_FILE: Final = "keys.toml"
PICTURES: Final = "screenshots"


@click.command(cls=Command)
@click.option("--read-only", is_flag=True, help="Disable all keys that change something.")
@as_option
@click.option("--ascii", "is_ascii", is_flag=True, help="Use only ASCII characters.")
@click.option(
    "--theme",
    type=click.Choice(THEMES),
    default="dark",
    show_default=True,
    metavar="NAME",
    help="dark, light or ansi (the terminal's own colours; the only one with 16 colours).",
)
@click.option(
    "--notify",
    type=click.Choice(NOTIFY),
    default=NOTIFY[0],
    show_default=True,
    help="How to call you while the terminal is not in front: osc is a desktop notification.",
)
@click.pass_obj
def tui(
    options: Options,
    *,
    read_only: bool,
    actor: str | None,
    is_ascii: bool,
    theme: str,
    notify: str,
) -> None:
    """Watch and control jobs in the terminal UI.

    `?` shows all keys, `q` quits. keys.toml in the user's configuration folder changes keys.
    """
    refuse_what_is_no_terminal("cortex tui", hint="use cortex jobs watch")
    settings = settings_from(options)
    identity = acting(options, actor)
    with database(settings, must_exist=True) as address:
        code = show(
            address,
            settings,
            options,
            identity=identity,
            is_read_only=read_only,
            is_ascii=is_ascii,
            theme=theme,
            notify=notify,
        )
    raise click.exceptions.Exit(code)


def show(
    address: str,
    settings: Settings,
    options: Options,
    *,
    identity: Identity,
    is_read_only: bool = False,
    is_ascii: bool = False,
    theme: str = THEMES[0],
    notify: str = NOTIFY[0],
    pod: "PodBeside | None" = None,
) -> int:
    """Run the UI on a database until it is closed; return the exit code, see `cortex_tui.run`."""
    from cortex_tui.run import run

    terminal = stdout_terminal(options.color)
    place = "local" if settings.dsn is None else _place(address)
    return run(
        address,
        identity=identity,
        place=place if settings.tenant is None else f"{place}, tenant {safe(settings.tenant)}",
        is_read_only=is_read_only,
        is_ascii=is_ascii or terminal.is_ascii,
        has_color=terminal.has_color,
        theme=theme,
        notify=notify,
        keys_file=Path(platformdirs.user_config_dir("cortex")) / KEYS_FILE,
        pictures=Path(platformdirs.user_state_dir("cortex")) / PICTURES,
        reports=platformdirs.user_log_path("cortex", appauthor=False),
        is_debug=options.debug,
        report=_report,
        pod=pod,
        tenant=settings.tenant,
    )


def _report(line: str) -> None:
    with suppress(OSError):  # the terminal is gone
        stderr_terminal().write(line)


def refuse_what_is_no_terminal(command: str, *, hint: str) -> None:
    """Raise `UsageError` if there is no terminal to draw on or to read keys from."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        what = f"{command} needs a terminal for its input and its output"
    elif (term := os.environ.get("TERM", "")) in {"", "dumb"}:
        what = f"this terminal cannot draw a screen: TERM is {term or 'not set'}"
    else:
        return
    raise UsageError(what, hint=hint)


def _place(address: str) -> str:
    """Name a database for the top bar: its name and host, never its user."""
    parts = urlsplit(address)
    name = parts.path.removeprefix("/") or "postgres"
    return f"{name}@{parts.hostname}" if parts.hostname else name
