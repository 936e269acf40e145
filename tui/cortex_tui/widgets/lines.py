"""Widgets of one line: the top bar, the footer, and a head between them."""

from collections.abc import Callable

from textual.strip import Strip
from textual.widget import Widget


class Line(Widget):
    """One line, drawn anew by `refresh`."""

    DEFAULT_CSS = """
    Line { height: 1; width: 1fr; }
    """

    def __init__(self, draw: Callable[[int], Strip], *, id: str | None = None) -> None:  # noqa: A002 -- Textual's
        """`draw` makes the line for a width in cells."""
        super().__init__(id=id)
        self._draw = draw

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        return self._draw(width) if y == 0 and width else Strip.blank(width)
