"""A window on a list that may be endless: a bounded number of rows, and a cursor pinned by id.

Rows load and leave at both ends as the cursor moves; new rows at the top are counted and not shown
until the operator asks, so that no row ever slides under the cursor.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

Row = TypeVar("Row")
Place = TypeVar("Place")

ROWS_MAX: Final = 2_000
PAGE_ROWS: Final = 200
AHEAD_ROWS: Final = 100
"""The next page loads when this many rows are left before the end of the window."""

GONE: Final = "what the cursor was on is gone: j and k choose another one"


class Window(Generic[Row, Place]):
    """Rows in order, the first visible one, and the cursor."""

    def __init__(
        self,
        key: Callable[[Row], Hashable],
        *,
        place: Callable[[Row], Place | None] = lambda _: None,
    ) -> None:
        """`place` returns where to continue beside a row; without it, dropped rows are lost.

        A row that changes keeps its original place.
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
        """Extra lines below the last row."""
        self.is_free = False
        """The cursor's row is gone with all around it: the cursor is nowhere until it is moved."""
        self._cursor: Hashable | None = None
        self._at = 0
        """The cursor's former index, in case its row is gone."""
        self._places: dict[Hashable, int] | None = None
        """The index of each row; None: it is out of date."""
        self._came_at: dict[Hashable, Place | None] = {}
        """The original places of rows that moved since they were read."""

    # --- the cursor

    @property
    def cursor(self) -> int | None:
        """Index of the cursor's row; None if there is none."""
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
        index = self.cursor
        return None if index is None else self.rows[index]

    def move(self, by: int) -> None:
        """Move the cursor by `by` rows, within the window."""
        index = self.cursor
        self.move_to(self.top if index is None else index + by)

    def why_none(self, empty: str) -> str:
        """Return why the cursor is on no row; `empty` is the message for an empty list."""
        return GONE if self.rows else empty

    def free(self) -> None:
        """Remove the cursor: no other row takes the place of its row."""
        self._cursor, self.is_free = None, True

    def move_to(self, index: int) -> None:
        """Put the cursor on a row, and scroll it into sight."""
        if self.rows:
            self._put(max(0, min(index, len(self.rows) - 1)))
            self._show(self._at)

    def scroll(self, by: int) -> None:
        """Scroll the window; the cursor follows at the edges."""
        self.top = max(0, min(self.top + by, self._top_max))
        index = self.cursor
        if index is not None:
            self._put(max(self.top, min(index, self.top + self.height - 1)))

    def resize(self, height: int) -> None:
        """Change the height; the cursor stays in sight."""
        self.height = max(1, height)
        index = self.cursor
        if index is not None:
            self._show(index)

    @property
    def visible(self) -> Sequence[Row]:
        return self.rows[self.top : self.top + self.height]

    # --- rows

    def replace(
        self, rows: Sequence[Row], *, above: Place | None, below: Place | None, at_end: bool = False
    ) -> None:
        """Show another part of the list, with the cursor on its first or last row."""
        self.rows = list(rows)[:ROWS_MAX]
        self._places = None
        self._came_at = {}
        self.above, self.below = above, below
        self.top = self._top_max if at_end else 0
        self._cursor = None
        if self.rows:
            self._put(len(self.rows) - 1 if at_end else 0)

    def rearrange(self, rows: Sequence[Row]) -> None:
        """Show other rows: the cursor stays on its row and keeps its place if it was in sight."""
        index = self.cursor
        in_sight = 0 if index is None else index - self.top
        self.rows = list(rows)
        self._places = None
        index = self.cursor
        if index is not None:
            self.top = max(0, min(index - in_sight, self._top_max))
            self._show(index)

    def renew(self, rows: Sequence[Row], *, below: Place | None) -> None:
        """Show the start of the list; the cursor stays on its row if that is in sight."""
        kept = self._cursor
        self.replace(rows, above=None, below=below)
        for index, row in enumerate(self.visible):
            if self._key(row) == kept:
                self._put(index)

    def refill(self, rows: Sequence[Row]) -> bool:
        """Show the new rows of a short list; return whether they differ from those before.

        The cursor stays on its row, which stays in sight if it was. If none of the former rows
        remains, the cursor is on no row.
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
        """Append the page below; rows far above are dropped, and can be reread."""
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
        """Prepend the page above; drops rows far below. The visible rows stay in place."""
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
        """Replace rows by newer versions; return whether any differs."""
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
        """Return where to continue beside a row: its position in the list when it was read."""
        key = self._key(row)
        return self._came_at[key] if key in self._came_at else self._place(row)

    @property
    def wants_below(self) -> bool:
        """Whether the end of the window is near, and the list goes on."""
        seen_until = self.top + self.height
        return self.below is not None and seen_until + AHEAD_ROWS > len(self.rows)

    @property
    def wants_above(self) -> bool:
        """Whether the start of the window is near, and the list goes on above."""
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
