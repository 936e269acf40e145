"""What all widgets of ours are: lines that are drawn by hand, on the ground of the theme."""

from textual.geometry import Region
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
        self._painted: dict[int, Strip] = {}
        """Each line as it was handed out last."""

    def draw(self, y: int, width: int) -> Strip:
        """Return a line, of any length; what has no ground of its own gets the theme's."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Paint those lines anew that would look otherwise now: a line costs more than to make it."""
        width, height = self.size
        changed = [y for y in range(height) if self._made(y) != self._painted.get(y)]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """Return a line as Textual wants it."""
        line = self._painted[y] = self._made(y)
        return line

    def _made(self, y: int) -> Strip:
        width = self.size.width
        line = self.draw(y, width) if width else Strip.blank(0)
        return line.adjust_cell_length(width).apply_style(self.desk.palette["ground"])
