"""Reads input that a person names: a file or stdin, up to a limit."""

import sys
from pathlib import Path

from cortex.domain.errors import InvalidValueError, UsageError


def read_bytes(name: str, *, what: str, bytes_max: int) -> bytes:
    """Return the content of a file, or of stdin for `-`.

    Raises `UsageError` for a file that cannot be read, `InvalidValueError` for a larger one.
    """
    source = "stdin" if name == "-" else name
    try:
        if name == "-":
            content = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"cannot read the {what} from {source}: {reason}") from error
    if len(content) > bytes_max:
        raise InvalidValueError(
            f"{what} from {source} is larger than {bytes_max:,} bytes",
            hint="keep large data in a file and pass its path",
        )
    return content
