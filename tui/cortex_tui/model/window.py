"""A window on a list that may be endless: at most so many rows, and a cursor that is pinned by id.

Rows come and go at both ends as one moves; what is new at the top is counted and not shown until
it is asked for, so that no row ever slides under the cursor.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")
Place = TypeVar("Place")

ROWS_MAX: Final = 2_000
PAGE_ROWS: Final = 200
AHEAD_ROWS: Final = 100
"""So many rows before an end of the window comes in sight, the next page is wanted."""

GONE: Final = "what the cursor was on is gone: j and k choose another one"


class Window(Generic[Row, Place]):
    """Rows in their order, the first visible one, and the cursor."""

    def __init__(
        self,
        key: Callable[[Row], Hashable],
        *,
        place: Callable[[Row], Place | None] = lambda _: None,
    ) -> None:
        """`place`: from where to read on beside a row; without it what left cannot come again.

        A row that changes keeps the place at which it came.
        """
        self._key = key
        self._place = place
        self.rows: list[Row] = []
        self.above: Place | None = None
        """Where the page above begins; None: the window holds the first row of the list."""
        self.below: Place | None = None
        """Where the page below begins; None: the window holds the last one."""
        self.top = 0
        """Index of the first visible row."""
        self.height = 1
        """Visible rows."""
        self.after = 0
        """Lines below the last row, which are shown with it."""
        self.is_free = False
        """What the cursor was on is gone, with all around it: it is nowhere until it is moved."""
        self._cursor: Hashable | None = None
        self._at = 0
        """Where the cursor was, should its row be gone."""
        self._places: dict[Hashable, int] | None = None
        """Where each row is; None: rows came or went since it was made."""
        self._came_at: dict[Hashable, Place | None] = {}
        """Of rows whose place is another since."""

    # --- the cursor

    @property
    def cursor(self) -> int | None:
        """Index of the cursor's row; None: there is none."""
        if not self.rows or self.is_free:
            return None
        if self._at < len(self.rows) and self._key(self.rows[self._at]) == self._cursor:
            return self._at
        for index, row in enumerate(self.rows):
            if self._key(row) == self._cursor:
                self._at = index
                return index
        self._put(min(self._at, len(self.rows) - 1))
        return self._at

    @property
    def current(self) -> Row | None:
        """The cursor's row."""
        index = self.cursor
        return None if index is None else self.rows[index]

    def move(self, by: int) -> None:
        """Move the cursor by so many rows, as far as the window goes."""
        index = self.cursor
        self.move_to(self.top if index is None else index + by)

    def why_none(self, empty: str) -> str:
        """Say why the cursor is on no row; `empty`: what is said of an empty list."""
        return GONE if self.rows else empty

    def free(self) -> None:
        """Put the cursor nowhere: no other row takes the place of the one that it was on."""
        self._cursor, self.is_free = None, True

    def move_to(self, index: int) -> None:
        """Put the cursor on a row, and that row in sight."""
        if self.rows:
            self._put(max(0, min(index, len(self.rows) - 1)))
            self._show(self._at)

    def scroll(self, by: int) -> None:
        """Move what is visible; the cursor follows at the edges."""
        self.top = max(0, min(self.top + by, self._top_max))
        index = self.cursor
        if index is not None:
            self._put(max(self.top, min(index, self.top + self.height - 1)))

    def resize(self, height: int) -> None:
        """Take another height; the cursor stays in sight."""
        self.height = max(1, height)
        index = self.cursor
        if index is not None:
            self._show(index)

    @property
    def visible(self) -> Sequence[Row]:
        """The rows in sight."""
        return self.rows[self.top : self.top + self.height]

    # --- rows

    def replace(
        self, rows: Sequence[Row], *, above: Place | None, below: Place | None, at_end: bool = False
    ) -> None:
        """Show another piece of the list; the cursor goes to its first row, or to its last one."""
        self.rows = list(rows)[:ROWS_MAX]
        self._places = None
        self._came_at = {}
        self.above, self.below = above, below
        self.top = self._top_max if at_end else 0
        self._cursor = None
        if self.rows:
            self._put(len(self.rows) - 1 if at_end else 0)

    def rearrange(self, rows: Sequence[Row]) -> None:
        """Show other rows: the cursor stays on its row, and that where it was in sight."""
        index = self.cursor
        in_sight = 0 if index is None else index - self.top
        self.rows = list(rows)
        self._places = None
        index = self.cursor
        if index is not None:
            self.top = max(0, min(index - in_sight, self._top_max))
            self._show(index)

    def renew(self, rows: Sequence[Row], *, below: Place | None) -> None:
        """Show the beginning of the list; the cursor stays with its row if that is in sight."""
        kept = self._cursor
        self.replace(rows, above=None, below=below)
        for index, row in enumerate(self.visible):
            if self._key(row) == kept:
                self._put(index)

    def refill(self, rows: Sequence[Row]) -> bool:
        """Show all rows of a short list anew; return whether they differ from those before.

        The cursor stays with its row, which stays in sight if it was. Where no row of those before
        is there any more it is on none.
        """
        index = self.cursor
        was_seen = index is not None and self.top <= index < self.top + self.height
        is_changed = list(rows) != self.rows
        keys = {self._key(row) for row in rows}
        is_lost = bool(self.rows) and all(self._key(row) not in keys for row in self.rows)
        self.rows = list(rows)[:ROWS_MAX]
        if is_lost:
            self.free()
        self._places = None
        self.above = self.below = None
        self.top = min(self.top, self._top_max)
        index = self.cursor
        if was_seen and index is not None:
            self._show(index)
        return is_changed

    def extend(self, rows: Sequence[Row], *, below: Place | None) -> None:
        """Add the page below; rows far above leave, and can be read again."""
        known = {self._key(row) for row in self.rows}
        self.rows += [row for row in rows if self._key(row) not in known]
        self._places = None
        self.below = below
        gone = max(0, min(len(self.rows) - ROWS_MAX, self.top))
        if gone:
            self._forget(self.rows[:gone])
            del self.rows[:gone]
            self.above = self.place_of(self.rows[0])
            self.top -= gone
            self._at -= gone

    def precede(self, rows: Sequence[Row], *, above: Place | None) -> None:
        """Add the page above; rows far below leave. What is visible stays where it is."""
        known = {self._key(row) for row in self.rows}
        fresh = [row for row in rows if self._key(row) not in known]
        self.rows[:0] = fresh
        self._places = None
        self.above = above
        self.top += len(fresh)
        self._at += len(fresh)
        if len(self.rows) > max(ROWS_MAX, self.top + self.height):
            kept = max(ROWS_MAX, self.top + self.height)
            self._forget(self.rows[kept:])
            del self.rows[kept:]
            self.below = self.place_of(self.rows[-1])

    def update(self, rows: Sequence[Row]) -> bool:
        """Put newer versions of rows in their places; return whether one of them is different."""
        is_changed = False
        if self._places is None:
            self._places = {self._key(row): index for index, row in enumerate(self.rows)}
        for row in rows:
            index = self._places.get(self._key(row))
            if index is not None and self.rows[index] != row:
                if (place := self._place(self.rows[index])) != self._place(row):
                    self._came_at.setdefault(self._key(row), place)
                self.rows[index] = row
                is_changed = True
        return is_changed

    def place_of(self, row: Row) -> Place | None:
        """Return from where to read on beside a row: where it stood in the list when it came."""
        key = self._key(row)
        return self._came_at[key] if key in self._came_at else self._place(row)

    @property
    def wants_below(self) -> bool:
        """The end of the window is near, and the list goes on."""
        seen_until = self.top + self.height
        return self.below is not None and seen_until + AHEAD_ROWS > len(self.rows)

    @property
    def wants_above(self) -> bool:
        """The beginning of the window is near, and it is not that of the list."""
        return self.above is not None and self.top < AHEAD_ROWS

    # ---

    @property
    def _top_max(self) -> int:
        return max(0, len(self.rows) + self.after - self.height)

    def _forget(self, rows: Sequence[Row]) -> None:
        for row in rows if self._came_at else ():
            self._came_at.pop(self._key(row), None)

    def _put(self, index: int) -> None:
        self._at = index
        self._cursor, self.is_free = self._key(self.rows[index]), False

    def _show(self, index: int) -> None:
        below = self.after if index == len(self.rows) - 1 else 0
        lowest = index + below - self.height + 1
        self.top = max(0, lowest, min(self.top, index, self._top_max))
