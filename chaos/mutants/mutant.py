"""A mutant: exact replacements in a copy of the tree, and the invariant that they break."""

import re
from pathlib import Path
from typing import Final

from attrs import frozen

MIGRATIONS: Final = Path("sql/migrations")
_CREATED: Final = re.compile(r"^CREATE (?:OR REPLACE )?([A-Z ]+?) ([a-z_.]+)", re.MULTILINE)


class StaleError(Exception):
    """The patch of a mutant does not fit the tree any more and must be rewritten."""


@frozen
class Patch:
    """One replacement; `old` occurs exactly once in the file."""

    path: str
    """Below the root of the tree."""
    old: str
    new: str

    def apply(self, tree: Path) -> None:
        """Write it. Raises `StaleError`, and then changes nothing."""
        file = tree / self.path
        text = file.read_text("utf-8")
        count = text.count(self.old)
        if count != 1:
            raise StaleError(f"its text stands {count} times in {self.path}: {self.old[:60]!r}")
        if file.parent == tree / MIGRATIONS and (later := _replaced_by(file, text, self.old)):
            raise StaleError(f"{later} replaces what it breaks in {self.path}: {self.old[:60]!r}")
        file.write_text(text.replace(self.old, self.new), "utf-8")


def _replaced_by(file: Path, text: str, old: str) -> str | None:
    """The first later migration that redefines the object that contains `old`."""
    made = [each for each in _CREATED.finditer(text) if each.start() <= text.index(old)]
    if not made:
        return None
    what, name = made[-1].groups()
    again = re.compile(
        rf"^(?:CREATE (?:OR REPLACE )?|DROP ){what} (?:IF EXISTS )?{re.escape(name)}\b",
        re.MULTILINE,
    )
    later = (each for each in sorted(file.parent.glob("*.sql")) if each.name > file.name)
    return next((each.name for each in later if again.search(each.read_text("utf-8"))), None)


@frozen(kw_only=True)
class Mutant:
    """One way in which the runtime could be wrong."""

    name: str
    what: str
    """What is broken, in one line."""
    scene: str
    """The run that exposes it."""
    invariant: str
    """The invariant whose checker has to find it, such as `I4`, or the storm whose judge has to."""
    patches: tuple[Patch, ...]

    def apply(self, tree: Path) -> None:
        """Break a tree. Raises `StaleError` that names the mutant."""
        for patch in self.patches:
            try:
                patch.apply(tree)
            except StaleError as error:
                raise StaleError(f"mutant {self.name} is stale: {error}") from None
