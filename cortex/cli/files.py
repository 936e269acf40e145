"""Reads input that a person names: a file or stdin, up to a limit."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cortex.domain.errors import InvalidValueError, UsageError

if TYPE_CHECKING:  # it loads the YAML library, which most commands that read files do not need
    from cortex.agent.yaml_source import Definition

YAML_BYTES_MAX: Final = 1_048_576


def read_definitions(
    files: Sequence[str],
    *,
    what: str,
    parse: "Callable[[str, str], Sequence[Definition]]",
) -> "list[Definition]":
    """Return what YAML files define, `-` for stdin; `what` is its name in the plural.

    Raises `UsageError` for a file that cannot be read, and for a name that is in two files.
    """
    places: dict[str, str] = {}
    found: list[Definition] = []
    for name in files:
        source = "stdin" if name == "-" else name
        content = read_bytes(name, what=what, bytes_max=YAML_BYTES_MAX)
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise UsageError(f"{source}:{line}: this is not UTF-8") from error
        for each in parse(text, source):
            if each.name in places:
                where = f"{places[each.name]} and {source}"
                raise UsageError(f"{what.removesuffix('s')} {each.name!r} is in both {where}")
            places[each.name] = source
            found.append(each)
    return found


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
