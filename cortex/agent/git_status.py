"""Reading what `git status` prints: one line a change, hostile names in quotes."""

import os
import re
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cortex.agent.artefacts import printable
from cortex.domain.timeout_receipt import Change

# Fields before the path: of an ordinary change, and of one that is not merged.
_FIELDS: Final = {"1": 8, "u": 10}
_ESCAPES: Final = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))


def changes_in(root: Path, lines: Sequence[str]) -> list[Change]:
    """Return the changes in lines of `git status --porcelain=v2`, the newest first.

    Those of unknown age come before. Blocks: it looks at each file.
    """
    found = []
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "?":
            found.append(_change(root, "??", rest))
        elif kind in _FIELDS:
            found.append(_change(root, rest[:2], line.split(" ", _FIELDS[kind])[-1]))
    return sorted(found, key=_age)


def _age(change: Change) -> float:
    return float("-inf") if change.changed_at is None else -change.changed_at.timestamp()


def _change(root: Path, state: str, quoted: str) -> Change:
    name = os.fsdecode(_unquoted(quoted))
    size_bytes: int | None = None
    changed_s: float | None = None
    place = root / name
    for depth, path in enumerate((place, *place.parents)):
        try:
            found = path.lstat()
        except OSError:
            continue  # gone: its folder changed when it went
        is_folder_itself = stat.S_ISDIR(found.st_mode) and depth == 0  # a repository in this one
        changed_s = None if is_folder_itself else found.st_ctime
        size_bytes = found.st_size if depth == 0 and not is_folder_itself else None
        break
    return Change(
        path=printable(name),
        state=state,
        size_bytes=size_bytes,
        changed_at=None if changed_s is None else datetime.fromtimestamp(changed_s, UTC),
    )


def _unquoted(name: str) -> bytes:
    r"""A name as git prints it: plain, or in quotes with `\n` and `\303` for what is not plain."""
    if not name.startswith('"'):
        return os.fsencode(name)
    return re.sub(rb"\\([0-7]{3}|.)", _unescaped, os.fsencode(name[1:-1]))


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([_ESCAPES[code[0]] if code[0] in _ESCAPES else int(code, 8)])
