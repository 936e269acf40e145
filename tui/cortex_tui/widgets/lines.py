"""A widget of one line: the top bar, the footer, a heading between them."""

from collections.abc import Callable

from textual.strip import Strip

from cortex_tui.app_context import AppContext
from cortex_tui.widgets.drawn import Drawn


class Line(Drawn):
    """One line; `redraw` repaints it if it changed."""

    def __init__(
        self,
        context: AppContext,
        line: Callable[[int], Strip],
        *,
        id: str | None = None,  # noqa: A002 -- Textual's
    ) -> None:
        """`line` draws it for a width in cells."""
        super().__init__(context, id=id)
        self._make = line

    def draw(self, y: int, width: int) -> Strip:  # noqa: ARG002 -- it has one
        return self._make(width)
