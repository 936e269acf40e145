"""All fields of the row under the cursor of the screen below, which keeps reading it."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import attrs
from textual import on
from textual.widget import Widget

from cortex.domain.errors import NotFoundError
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex_tui import internals
from cortex_tui.app_context import AppContext
from cortex_tui.model.selected import Selected
from cortex_tui.render.field_lines import FieldLines, exact_value, field_lines
from cortex_tui.render.table import evolved
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.page import Page

HALVES: Final = {"half_down": "ctrl+d", "half_up": "ctrl+u"}
READ_EVERY_S: Final = 2.0


class FieldsScreen(Frame):
    """The fields of one row, and a cursor on one of them."""

    NAME = "fields"

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        self._page = Page(context, head=self._head)
        self._below: Frame | None = None
        self._selected: Selected | None = None
        """The row as last read."""
        self._due = float("-inf")
        """When the row is read again, if not by the screen below."""
        self._is_gone = False
        """The screen below does not show it any more."""
        self._shown = FieldLines(lines=(), starts=())
        self._cursor = 0
        """Number of the field under the cursor."""

    def body(self) -> Iterable[Widget]:
        return (self._page,)

    def on_mount(self) -> None:
        below = [each for each in internals.screens(self.app) if isinstance(each, Frame)]
        self._below = below[below.index(self) - 1] if self in below[1:] else None
        self._take()

    def path(self) -> tuple[str, ...]:
        return (*(() if self._below is None else self._below.path()), self.NAME)

    async def look(self) -> bool | None:
        selected, now = self._selected, self.context.session.clock.now()
        if selected is not None and selected.read is not None:
            if now < self._due:
                return None
            self._due = now + READ_EVERY_S
            return self._renew(selected, await _read(selected.read))
        if self._below is None:
            return None
        is_news = await self._below.look()
        self.has_other = self._below.has_other
        self._take()
        return is_news

    def _renew(self, selected: Selected, row: Any) -> bool:
        """Take the row as read again; return whether anything differs."""
        before, self._is_gone = (selected.row, self._is_gone), row is None
        if row is not None:
            self._selected = attrs.evolve(selected, row=row)
        return before != (row, self._is_gone)

    @on(Page.Resized)
    def paint(self) -> None:
        selected = self._selected
        if selected is None or selected.shape is None or selected.row is None:
            return
        row = selected.row if self._is_gone else evolved(selected.row, self.context.session.now)
        self._shown = field_lines(selected.shape, row, self._page.room)
        self._cursor = min(self._cursor, len(self._shown.starts) - 1)
        cursor = self._shown.starts[self._cursor]
        self._page.show(self._shown.lines, is_other=False, cursor=cursor)

    def resource(self) -> Selected | None:
        selected = self._selected
        if selected is None or selected.shape is None or selected.row is None:
            return None
        field = selected.shape.fields[self._cursor]
        value = "" if field.is_for_people else exact_value(field, selected.row)
        # The document of the row alone, where the screen below has more to copy.
        return Selected(
            id=selected.id,
            command=selected.command,
            shape=selected.shape,
            row=selected.row,
            value=value,
        )

    # --- keys

    def action_move(self, how: str) -> None:
        """Move the cursor from field to field; by half a page, scroll."""
        if how in HALVES:
            self._page.scroll_page(HALVES[how])
            return
        last = max(0, len(self._shown.starts) - 1)
        to = {"top": 0, "end": last, "down": self._cursor + 1, "up": self._cursor - 1}[how]
        self._cursor = max(0, min(to, last))
        self.paint()

    # ---

    def _take(self) -> None:
        """Take the row under the cursor of the screen below, if it is still the same."""
        found = None if self._below is None else self._below.resource()
        known = self._selected
        if known is None:
            self._selected = None if found is None or found.shape is None else found
            return
        self._is_gone = found is None or found.key != known.key
        if found is not None and not self._is_gone:
            self._selected = found

    def _head(self) -> tuple[Cell, Cell]:
        selected = self._selected
        if selected is None or selected.shape is None:
            return Cell(""), Cell("")
        if self._is_gone:
            return Cell(safe(selected.id), "bold"), Cell("not in the list any more", "warn")
        if selected.row is None:
            return Cell(safe(selected.id), "bold"), Cell("reading …", "dim")
        return Cell(safe(selected.id), "bold"), Cell(safe(selected.shape.doc.rstrip(".")), "dim")


async def _read(read: Callable[[], Awaitable[Any]]) -> Any:
    """Read a row; None: it is no longer there."""
    try:
        return await read()
    except NotFoundError:
        return None
