"""The database that a command uses: the named one, or the embedded one."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cortex.cli.options import Options
from cortex.config import PREFIX, Settings, load, origins
from cortex.domain.errors import ForbiddenError, NotFoundError
from cortex.postgres import dsn
from cortex.postgres.database import Profile
from cortex.postgres.session import Session, open_session

PATIENCE_S: Final = 0.4
"""Longer waits show a message."""


def settings_from(options: Options, **flags: Any) -> Settings:
    """Merge the common options and a command's own flags with environment and files.

    Raises `UsageError` that names the source, the setting and the value.
    """
    common = {"dsn": options.dsn, "data": options.data, "tenant": options.tenant}
    settings = load(common | flags)
    if settings.dsn is not None:
        dsn.check(settings.dsn, source=_source_of_dsn(options))
    return settings


def data_dir(settings: Settings) -> Path:
    """Return the folder of the embedded database."""
    if settings.data is not None:
        return settings.data
    from cortex.postgres.embedded.server import default_data_dir

    return default_data_dir()


@contextmanager
def database(settings: Settings, *, must_exist: bool = False) -> Iterator[str]:
    """Yield the address of the database: the named one, or the embedded one while it is used.

    Creates the embedded one if there is none, unless it `must_exist`: then raises `NotFoundError`.
    """
    if settings.dsn is not None:
        yield settings.dsn
        return
    folder = data_dir(settings)
    if must_exist and not _is_there(folder / "pgdata"):
        raise NotFoundError(
            f"there is no database yet in {folder}",
            hint="create one with `cortex demo` or `cortex up`, or name another one with --dsn",
        )
    from cortex.postgres.embedded.server import acquire, kept_running

    with _patience("starting the embedded database …"):
        server = acquire(folder)
    with server, kept_running(server):
        yield server.dsn


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise ForbiddenError(
            f"cannot read {path.parent}: {error.strerror}",
            hint="make it readable for this user, or choose another folder with --data",
        ) from error


@contextmanager
def session(options: Options) -> Iterator[Session]:
    """Open the database for a command; it must exist and be migrated."""
    settings = settings_from(options)
    with database(settings, must_exist=True) as address:
        profile = Profile(dsn=address, connections_max=1, tenant=settings.tenant)
        with open_session(profile) as opened:
            yield opened


def _source_of_dsn(options: Options) -> str:
    if options.dsn is not None:
        return "--dsn"
    variable = PREFIX + "DSN"
    return variable if os.environ.get(variable) else f"setting dsn of {origins({})['dsn']}"


@contextmanager
def _patience(message: str) -> Iterator[None]:
    """Show a message during a long wait, on a terminal only."""
    timer = threading.Timer(PATIENCE_S, print, [message], {"file": sys.stderr})
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
