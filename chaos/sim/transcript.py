"""Everything that a seed did, line by line, to compare two runs of it."""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from chaos.sim.clock import Clock
from cortex.postgres.queries import SQL_DIR, sql

SHOWN_MAX: Final = 300
MEASURED: Final = frozenset({"pods.beat"})
"""Statements that contain figures of the real process, such as its memory."""


class Transcript:
    """The lines in order, and their digest."""

    def __init__(self, clock: Clock, *, is_kept: bool = False) -> None:
        """`is_kept`: also keep the lines."""
        self._clock = clock
        self._digest = hashlib.sha256()
        self._is_kept = is_kept
        self.lines: list[str] = []
        self.count = 0

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def add(self, who: str, what: str, *details: object) -> None:
        """Record what an actor did at this instant."""
        line = f"{self._clock.now:.6f} {who} {what} {' '.join(map(str, details))}"
        self.count += 1
        self._digest.update(line.encode())
        if self._is_kept:
            self.lines.append(line)

    def ran(self, who: str, name: str, args: Iterable[object], result: Any) -> None:
        """A statement ran for a machine."""
        sent = "" if name in MEASURED else repr(args)
        self.add(who, name, _shown(sent), "->", _shown(repr(result)))


def _shown(text: str) -> str:
    if len(text) <= SHOWN_MAX:
        return text
    return f"{text[:SHOWN_MAX]}… {hashlib.sha256(text.encode()).hexdigest()[:16]}"


@cache
def query_names() -> dict[str, str]:
    """The names of the product's queries, by their texts."""
    names = {}
    for path in sorted(Path(SQL_DIR, "queries").glob("*.sql")):
        for line in path.read_text("utf-8").splitlines():
            if line.startswith("-- name: "):
                name = f"{path.stem}.{line.removeprefix('-- name: ')}"
                names[sql(name)] = name
    return names
