"""Reads one file of settings, unless it belongs to others: what they write would act as this user.

The owner and the content are those of the same open file.
"""

import os
import stat
from pathlib import Path
from typing import Any, Final

from cortex.domain.errors import UsageError

BYTES_MAX: Final = 16_384
"""The parser takes a time by the square of the parts of a dotted key: half a second for this."""


def read_settings(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file, none if it is missing. Raises `UsageError`."""
    try:
        raw = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        if isinstance(error, PermissionError) and not os.access(path.parent, os.X_OK):
            return {}  # nobody can say whether it is there: the folder is another user's
        raise UsageError(f"{path}: {error.strerror}") from error
    import tomllib  # noqa: PLC0415 -- most commands find no file

    try:
        return tomllib.loads(raw.decode())
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path}: its values are nested too deeply") from error


def _read(path: Path) -> bytes:
    # Without O_NONBLOCK a named pipe would block the open until it has a writer.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(file)
        if status.st_uid not in {0, os.geteuid()}:
            raise UsageError(
                f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()} or root",
                hint="remove it; or read it, then take it over: chown",
            )
        if status.st_mode & stat.S_IWOTH:
            raise UsageError(f"{path} may be written by every user", hint="chmod o-w")
        with open(file, "rb", closefd=False) as reader:
            content = reader.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise UsageError(f"{path} has more than {BYTES_MAX:,} bytes, too many for settings")
        return content
    finally:
        os.close(file)
