"""What all widgets of ours are: lines that are drawn by hand, on the ground of the theme."""

from collections.abc import Iterator, Sequence
from typing import Self

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
        self._made_ready: dict[int, Strip] = {}
        """Those that are to be handed out next."""

    def draw(self, y: int, width: int) -> Strip:
        """Return a line, of any length; what has no ground of its own gets the theme's."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Paint those lines anew that would look otherwise now: to paint one costs most."""
        width, height = self.size
        lines = {y: self._made(y, width) for y in range(height)}
        changed = {y: line for y, line in lines.items() if line != self._painted.get(y)}
        if changed:
            self.refresh(*_regions(list(changed), width))
            self._made_ready = changed

    def refresh(self, *regions: Region, **options: bool) -> Self:
        """Forget the lines that were made ready: they may be old."""
        self._made_ready = {}
        return super().refresh(*regions, **options)

    def render_line(self, y: int) -> Strip:
        """Return a line as Textual wants it."""
        width, line = self.size.width, self._made_ready.pop(y, None)
        if line is None or line.cell_length != width:  # a new size asks without a refresh
            line = self._made(y, width)
        self._painted[y] = line
        return line

    def _made(self, y: int, width: int) -> Strip:
        line = self.draw(y, width) if width else Strip.blank(0)
        return line.adjust_cell_length(width).apply_style(self.desk.palette["ground"])


def _regions(lines: Sequence[int], width: int) -> Iterator[Region]:
    """Yield as few regions as hold these lines, in order, and no others."""
    first = before = lines[0]
    for y in lines[1:]:
        if y != before + 1:
            yield Region(0, first, width, before - first + 1)
            first = y
        before = y
    yield Region(0, first, width, before - first + 1)
