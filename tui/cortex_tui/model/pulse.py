"""The first screen: the values read from the cluster, its lines, and the cursor."""

from collections.abc import Sequence
from uuid import UUID

import attrs

from cortex.store.pulse import Attention, Figures, Recent
from cortex.store.queues import QueueRow
from cortex.store.screen_head import Head
from cortex.view.cells import Cell


@attrs.define(kw_only=True)
class Pulse:
    """None: not read yet."""

    head: Head | None = None
    figures: Figures | None = None
    recent: Recent | None = None
    attention: Attention | None = None
    queues: list[QueueRow] | None = None


@attrs.frozen
class Opens:
    """The screen that enter opens from a line."""

    screen: str
    id: UUID | None = None
    """Id of the request, effect or job; None: the screen shows no single object."""
    key: str = ""
    """Distinguishes lines that open the same screen."""


@attrs.frozen
class PulseLine:
    cells: tuple[Cell, ...] = ()
    opens: Opens | None = None


class PulseCursor:
    """Stays on a line that opens something while other lines come and go."""

    def __init__(self) -> None:
        self._lines: Sequence[PulseLine] = ()
        self._on: Opens | None = None
        self.at: int | None = None
        """Index of its line; None: no line opens anything."""

    @property
    def opens(self) -> Opens | None:
        return self._on

    def follow(self, lines: Sequence[PulseLine]) -> None:
        """Take new lines: stay on the same object, else near the same place."""
        self._lines = lines
        places = self._places()
        same = [place for place in places if lines[place].opens == self._on]
        before = self.at or 0
        if not places:
            self.at = None
        else:
            self.at = same[0] if same else min(places, key=lambda place: abs(place - before))
        self._on = None if self.at is None else lines[self.at].opens

    def move(self, by: int) -> bool:
        """Move by `by` lines that open something; return whether it moved."""
        places = self._places()
        if self.at is None:
            return False
        index = places.index(self.at)
        after = max(0, min(index + by, len(places) - 1))
        self.at = places[after]
        self._on = self._lines[self.at].opens
        return after != index

    def _places(self) -> list[int]:
        return [place for place, line in enumerate(self._lines) if line.opens is not None]
