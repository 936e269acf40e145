"""The screens that one was on, to go back to and forth again."""

from typing import Final

import attrs

VISITS_MAX: Final = 100


@attrs.frozen
class Place:
    """Where one was: a screen that is changed to, and what was opened on top of it."""

    mode: str
    opened: tuple[tuple[str, tuple[object, ...]], ...] = ()
    """Names of screens, each with what it is about."""


class History:
    """Places in the order of the visits, and at which of them one is."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._at = -1

    def visit(self, place: Place) -> None:
        """Go somewhere; what one had gone back from is forgotten."""
        if self._places and self._places[self._at] == place:
            return
        del self._places[self._at + 1 :]
        self._places.append(place)
        del self._places[:-VISITS_MAX]
        self._at = len(self._places) - 1

    def go(self, by: int) -> Place | None:
        """Go back or forth; None: there is nothing."""
        wanted = self._at + by
        if not 0 <= wanted < len(self._places):
            return None
        self._at = wanted
        return self._places[wanted]
