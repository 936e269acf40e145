"""The base of all widgets: lines drawn by hand on the theme's background."""

from collections.abc import Iterator, Sequence
from typing import Self

from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from cortex_tui.app_context import AppContext


class Drawn(Widget):
    """Subclasses define `draw`: the line at a height, for a width in cells that is not 0."""

    DEFAULT_CSS = """
    Drawn { height: 1; width: 1fr; }
    """

    def __init__(self, context: AppContext, *, id: str | None = None) -> None:  # noqa: A002 -- Textual's
        super().__init__(id=id)
        self.context = context
        self._drawn: dict[int, Strip] = {}
        """The lines on screen, or about to be painted."""
        self._drawn_size = Size(0, 0)
        """The size of the widget for which they were drawn."""

    def draw(self, y: int, width: int) -> Strip:
        """Return a line of any length; text without a background gets the theme's."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Repaint only the lines that changed: painting costs most."""
        width, height = self._measured()
        changed = []
        for y in range(height):
            line, before = self._made(y, width), self._drawn.get(y)
            if line is not before and line != before:
                self._drawn[y] = line
                changed.append(y)
        if changed:
            super().refresh(*_regions(changed, width))

    def refresh(self, *regions: Region, **options: bool) -> Self:
        """Drop the cached lines."""
        self._drawn = {}
        return super().refresh(*regions, **options)

    def render_line(self, y: int) -> Strip:
        return self._line_at(y, self._measured().width)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines for Textual.

        Without a border, no CSS rule affects a line: not asking for each rule saves a third of the
        painting.
        """
        if self.styles.gutter:
            return super().render_lines(crop)
        _, background = self.background_colors
        width = self._measured().width
        lines = [self._line_at(y, width) for y in crop.line_range]
        for each in self.get_line_filters():
            lines = [_filtered(line, each, background) for line in lines]
        return [line.crop(*crop.column_span) for line in lines]

    def _line_at(self, y: int, width: int) -> Strip:
        line = self._drawn.get(y)
        if line is None:
            line = self._drawn[y] = self._made(y, width)
        return line

    def _measured(self) -> Size:
        """Return the size; a new one, which Textual does not announce, drops the cached lines."""
        size = self.size
        if size != self._drawn_size:
            self._drawn, self._drawn_size = {}, size
        return size

    def _made(self, y: int, width: int) -> Strip:
        line = self.draw(y, width) if width else Strip.blank(0)
        return line.adjust_cell_length(width).apply_style(self.context.palette["ground"])


def _filtered(line: Strip, by: LineFilter, background: Color) -> Strip:
    """Return a filtered line; the same object, with its caches, if nothing changes."""
    before = list(line)
    after = by.apply(before, background)
    return line if after is before else Strip(after, line.cell_length)


def _regions(lines: Sequence[int], width: int) -> Iterator[Region]:
    """Yield the fewest regions that cover exactly these lines, in order."""
    first = before = lines[0]
    for y in lines[1:]:
        if y != before + 1:
            yield Region(0, first, width, before - first + 1)
            first = y
        before = y
    yield Region(0, first, width, before - first + 1)
