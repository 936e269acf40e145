"""The pane beside a list with the details under the cursor; very wide screens have two."""

from collections.abc import Callable, Hashable
from typing import Final

import attrs

from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.widgets.page import Lines, Page

SIDE_MIN: Final = 120
"""Cells of a screen; from here on it has a side pane."""
THIRD_MIN: Final = 200
"""From here on there is a second pane, or a wider first one."""


@attrs.frozen(kw_only=True)
class About:
    """The content of a pane."""

    key: Hashable
    """The identity of the object: another one is shown from its beginning."""
    title: Cell
    lines: Lines


class Side(Page):
    """Updated by `follow`; `Frame` decides whether it is shown, and how wide."""

    def __init__(self, context: AppContext, *, about: Callable[[int], About | None]) -> None:
        """`about` returns the content for a width in cells; None if the cursor is on nothing."""
        super().__init__(context, head=lambda: (self._title, Cell("")))
        self._about = about
        self._key: Hashable = None
        self._title = Cell("")

    def on_resize(self) -> None:
        self._scroll(0)  # only the waiting page's `Resized` counts
        self.follow()

    @property
    def is_seen_now(self) -> bool:
        """Whether the screen has room for it."""
        return self.size.width > 0

    def follow(self) -> None:
        """Show the details under the cursor."""
        if not self.is_seen_now:
            return
        found = self._about(self.room)
        if found is None:
            found = About(key=None, title=Cell(""), lines=())
        is_other, self._key, self._title = found.key != self._key, found.key, found.title
        self.show(found.lines, is_other=is_other)
