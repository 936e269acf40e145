"""A short list that is reread whole, and yet stays still under the cursor."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from cortex_tui.model.window import Window

Row = TypeVar("Row")


def take(
    window: Window[Row, Any], rows: Sequence[Row], *, key: Callable[[Row], Hashable]
) -> tuple[bool, int]:
    """Put the rows read into a window; new rows are only counted.

    Rows that remain keep their places, rows that are gone leave. An empty window takes all rows. If
    no row remains, all are new, and the cursor is on none, so that nobody acts on a replacement.
    Returns whether something changed, and the number of new rows.
    """
    if not window.rows:
        _show(window, rows, is_lost=window.is_free)
        return bool(rows), 0
    found = {key(row): row for row in rows}
    kept = [found[key(row)] for row in window.rows if key(row) in found]
    new_count = len(found) - len(kept)
    if len(kept) == len(window.rows):
        return window.update(kept), new_count
    if not kept:
        _show(window, rows, is_lost=True)
        return True, 0
    top, at = window.top, window.cursor or 0
    following = [key(row) for row in window.rows[at:]]
    places = {key(row): index for index, row in enumerate(kept)}
    index = next((places[each] for each in following if each in places), len(kept) - 1)
    window.replace(kept, above=None, below=None)
    window.top = min(top, index)
    window.move_to(index)
    return True, new_count


def _show(window: Window[Row, Any], rows: Sequence[Row], *, is_lost: bool) -> None:
    window.replace(rows, above=None, below=None)
    if is_lost:
        window.free()
