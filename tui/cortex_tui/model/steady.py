"""A short list that is read whole each time, and yet stands still under the cursor."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from cortex_tui.model.window import Window

Row = TypeVar("Row")


def take(
    window: Window[Row, Any], rows: Sequence[Row], *, key: Callable[[Row], Hashable]
) -> tuple[bool, int]:
    """Put what was read into a window; rows that are new are only counted.

    Those that stay keep their places, those that are gone leave. An empty window takes all. If none
    stays, all are new, and the cursor is on none of them: nobody acts on what came in their place.
    Returns whether something changed, and how many rows are new.
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
