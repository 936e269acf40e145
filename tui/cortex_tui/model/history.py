"""The screens visited, to go back and forward."""

from typing import Final

import attrs

VISITS_MAX: Final = 100


@attrs.frozen
class Place:
    """A base screen, and the screens opened on top of it."""

    mode: str
    opened: tuple[tuple[str, tuple[object, ...]], ...] = ()
    """Names of screens, each with its arguments."""


class History:
    """Places in the order of visits, and the current one."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._at = -1

    def visit(self, place: Place) -> None:
        """Add a place; drops the places after the current one."""
        if self._places and self._places[self._at] == place:
            return
        del self._places[self._at + 1 :]
        self._places.append(place)
        del self._places[:-VISITS_MAX]
        self._at = len(self._places) - 1

    def go(self, by: int) -> Place | None:
        """Go back or forward; None if there is no such place."""
        wanted = self._at + by
        if not 0 <= wanted < len(self._places):
            return None
        self._at = wanted
        return self._places[wanted]
