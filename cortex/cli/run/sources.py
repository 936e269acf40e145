"""The files that an application consists of, and whether they have changed: by looking at them.

A look is one `stat` for each file, some microseconds: no thread and no package is needed for it.
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

import cortex

_CORTEX: Final = Path(cortex.__file__).resolve().parent
_SUFFIX: Final = ".py"
_OTHERS: Final = (".", "test_", "conftest")
"""How files begin that no application imports: of editors and tests."""
_SEEN_MAX: Final = 5_000
"""Files that are looked at: more are no application's own."""

State = tuple[int, int, int] | None
"""Time of the last change in ns, size, and inode; None: it is not there."""


def loaded_sources() -> list[str]:
    """Return the sources of loaded modules that are neither installed, Python's nor Cortex's."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    others = {Path(sysconfig.get_path(name)).resolve() for name in names} | {_CORTEX}
    found = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(_SUFFIX):
            continue
        path = Path(file).resolve()
        if others.isdisjoint(path.parents):
            found.append(str(path))
    return sorted(found)


def files_beside(apps: Iterable[str]) -> list[str]:
    """Return the sources in the folders of an application's files: also those not loaded yet."""
    folders = {Path.cwd()}
    for app in apps:
        path = Path(app) if app.endswith(_SUFFIX) or "/" in app else Path(*app.split("."))
        folders |= {path.absolute()} if path.is_dir() else {path.absolute().parent}
    return sorted(
        str(file)
        for folder in folders
        if folder.is_dir()
        for file in folder.glob(f"*{_SUFFIX}")
        if not file.name.startswith(_OTHERS)
    )


@attrs.define
class Sources:
    """The state of some files at the last look."""

    apps: Sequence[str]
    _states: dict[str, State] = attrs.field(factory=dict)

    def add(self, files: Iterable[str]) -> None:
        """Look at these as well from now on; what has changed before is no change."""
        for file in files:
            if file not in self._states and len(self._states) < _SEEN_MAX:
                self._states[file] = _state(file)

    def changed(self) -> list[str]:
        """Return what has changed since the last look, or is new beside the application."""
        known = self._states
        new = [file for file in files_beside(self.apps) if file not in known]
        found = [file for file, state in known.items() if _state(file) != state]
        self.add(new)
        for file in found:
            known[file] = _state(file)
        return sorted([*new, *found])


def changed_at(files: Iterable[str]) -> float | None:
    """Return when the last of these files was changed, as seconds of Unix time."""
    states = [state for file in files if (state := _state(file)) is not None]
    return max(state[0] for state in states) / 1e9 if states else None


def _state(file: str) -> State:
    try:
        found = os.stat(file)  # noqa: PTH116 -- half the time of a Path's, many times a second
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
