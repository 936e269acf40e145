"""A mutant: exact replacements in a copy of the tree, and the invariant that is broken by them."""

from pathlib import Path

from attrs import frozen


class StaleError(Exception):
    """A mutant whose patch does not fit the tree any more: it is to be written anew."""


@frozen
class Patch:
    """One replacement; `old` stands exactly once in the file."""

    path: str
    """Below the root of the tree."""
    old: str
    new: str

    def apply(self, tree: Path) -> None:
        """Write it. Raises `StaleError`, and changes nothing then."""
        file = tree / self.path
        text = file.read_text("utf-8")
        count = text.count(self.old)
        if count != 1:
            raise StaleError(f"its text stands {count} times in {self.path}: {self.old[:60]!r}")
        file.write_text(text.replace(self.old, self.new), "utf-8")


@frozen(kw_only=True)
class Mutant:
    """One way in which the runtime could be wrong."""

    name: str
    what: str
    """What is broken, in a line."""
    scene: str
    """The run that exposes it."""
    invariant: str
    """Whose checker has to find it, such as `I4`."""
    patches: tuple[Patch, ...]

    def apply(self, tree: Path) -> None:
        """Break a tree. Raises `StaleError` that names the mutant."""
        for patch in self.patches:
            try:
                patch.apply(tree)
            except StaleError as error:
                raise StaleError(f"mutant {self.name} is stale: {error}") from None
