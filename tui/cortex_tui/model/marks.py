"""The marked rows of a list: single rows, ranges, or everything that matches its filter.

Marks are kept by id: they stay on their rows when those move, also out of sight.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

MARKS_MAX: Final = 2_000
"""As many rows as a window holds; for more, mark everything that matches the filter."""


class Marks:
    def __init__(self) -> None:
        self._ids: dict[UUID, None] = {}
        """In the order of marking."""
        self._anchor: UUID | None = None
        """The row marked last, where a range begins."""
        self.is_all = False
        """All rows that match the filter are marked, however many there are."""

    def __bool__(self) -> bool:
        return self.is_all or bool(self._ids)

    def __contains__(self, key: object) -> bool:
        return self.is_all or key in self._ids

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._ids)

    def __len__(self) -> int:
        """The number of rows marked by hand."""
        return len(self._ids)

    def toggle(self, key: UUID) -> bool:
        """Mark or unmark a row; return whether there was room."""
        self._anchor = key
        if key in self._ids:
            del self._ids[key]
            return True
        return self._add((key,))

    def extend(self, keys: Sequence[UUID], at: int) -> bool:
        """Mark all rows from the last marked one to `at`; return whether there was room.

        `keys` are those of the list. Without a mark among them the range is that one row.
        """
        first = keys.index(self._anchor) if self._anchor in keys else at
        self._anchor = keys[at]
        return self._add(keys[min(first, at) : max(first, at) + 1])

    def take_all(self) -> None:
        """Mark all rows that match the filter, in place of the marks set by hand."""
        self.clear()
        self.is_all = True

    def clear(self) -> None:
        self._ids.clear()
        self._anchor = None
        self.is_all = False

    def _add(self, keys: Sequence[UUID]) -> bool:
        for key in keys:
            if len(self._ids) >= MARKS_MAX and key not in self._ids:
                return False
            self._ids[key] = None
        return True
