"""The rows of the list of effects: unknown ones in pages, then the newest of the others."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from cortex.store.effects import EffectRow
from cortex_tui.model.window import PAGE_ROWS, ROWS_MAX, Window

Rows = Sequence[EffectRow]


class EffectList:
    """The rows that were read, and where the next page begins."""

    def __init__(self, opened_for: UUID | None) -> None:
        """`opened_for`: the effect that comes first, whatever its place in the list."""
        self.opened_for = opened_for
        self.first: EffectRow | None = None
        """That effect, once it was read."""
        self.others: Rows = ()
        self._unknown: Rows = ()
        self._below: UUID | None = None
        """The last unknown effect that was read, if there are more."""

    @property
    def wants_first(self) -> bool:
        return self.opened_for is not None and self.first is None

    def start_of(self, top: int, *, goes_on: bool) -> int:
        """Return the start of a page: the visible one again, or the next one."""
        known = len(self._unknown)
        return known if goes_on else min(max(0, top - PAGE_ROWS // 2), known)

    def before(self, start: int) -> UUID | None:
        """Return the effect above a page, from which its statement reads on."""
        return self._unknown[start - 1].id if start else None

    def take_page(self, rows: Rows, start: int) -> bool | None:
        """Replace the rows of a page.

        Returns whether the list is full while there are more; None: known rows follow the page.
        """
        known = self._unknown
        rest: Rows = ()
        if len(rows) == PAGE_ROWS:
            last = _place(rows[-1])
            rest = [row for row in known[start:] if _place(row) < last]
        self._unknown = [*known[:start], *rows, *rest][:ROWS_MAX]
        if rest:
            return None
        has_more = len(rows) == PAGE_ROWS
        is_full = has_more and len(self._unknown) >= ROWS_MAX
        self._below = rows[-1].id if has_more and not is_full else None
        return is_full

    def fill(self, window: Window[EffectRow, UUID]) -> bool:
        """Assemble the list; return whether it changed."""
        first = [] if self.first is None else [self.first]
        others = self.others if self._below is None else ()
        found = {row.id: row for row in [*first, *self._unknown]}
        rows = [*found.values(), *(row for row in others if row.id not in found)]
        is_changed = window.refill(rows)
        window.below = self._below
        return is_changed


def _place(row: EffectRow) -> tuple[datetime, UUID]:
    return row.created_at, row.id
