"""What all widgets of ours are: lines that are drawn by hand, on the ground of the theme."""

from textual.strip import Strip
from textual.widget import Widget

from cortex_tui.desk import Desk


class Drawn(Widget):
    """Gives `draw`: the line at a height, for a width in cells that is not 0."""

    DEFAULT_CSS = """
    Drawn { height: 1; width: 1fr; }
    """

    def __init__(self, desk: Desk, *, id: str | None = None) -> None:  # noqa: A002 -- Textual's
        super().__init__(id=id)
        self.desk = desk

    def draw(self, y: int, width: int) -> Strip:
        """Return a line, of any length; what has no ground of its own gets the theme's."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        """Return a line as Textual wants it."""
        width = self.size.width
        line = self.draw(y, width) if width else Strip.blank(0)
        return line.adjust_cell_length(width).apply_style(self.desk.palette["ground"])
