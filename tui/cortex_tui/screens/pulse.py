"""The first screen: what needs a person, what fails, what runs."""

from collections.abc import Iterable
from typing import Final

import attrs
from textual import on
from textual.widget import Widget

from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.crash import keep, place_of
from cortex_tui.model.pulse import Pulse, PulseCursor
from cortex_tui.render.pulse_alerts import alerts
from cortex_tui.render.pulse_page import headline, pulse_lines
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.page import Page

RECENT_EVERY_S: Final = 5.0
"""This statement reads much; the others are cheap."""
QUEUES_EVERY_S: Final = 4.0
"""The statements take turns: none runs in addition."""
_SCROLLED: Final = {"half_down": "ctrl+d", "half_up": "ctrl+u"}
_FAR: Final = 1_000
_MOVES: Final = {"down": 1, "up": -1, "top": -_FAR, "end": _FAR}


class PulseScreen(Frame):
    NAME = "pulse"

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        self._pulse = Pulse()
        self._cursor = PulseCursor()
        self._recent_at = float("-inf")
        self._queues_at = float("-inf")
        self._is_attention_next = False
        self._page = Page(context, head=self._head)
        self._reported: set[str] = set()
        """Where in the code alerts failed: a fault recurs with each repaint."""

    def body(self) -> Iterable[Widget]:
        return (self._page,)

    async def look(self) -> bool:
        """Read one part; only the first reads count as news, to keep the poller's pace calm."""
        before = attrs.evolve(self._pulse)
        is_news = await self._read()
        self.has_other |= self._pulse != before
        return is_news

    async def _read(self) -> bool:
        backend, now = self.context.backend.pulse, self.context.session.clock.now()
        pulse = self._pulse
        if pulse.figures is None:
            pulse.figures = await backend.figures()
            return True
        if pulse.attention is None:
            pulse.attention = await backend.attention()
            return True
        if now - self._recent_at >= RECENT_EVERY_S:
            self._recent_at = now
            pulse.recent = await backend.recent()
            return False
        if now - self._queues_at >= QUEUES_EVERY_S:
            self._queues_at = now
            pulse.queues = list(await self.context.backend.queues.page())
            return False
        self._is_attention_next = not self._is_attention_next
        if self._is_attention_next:
            pulse.attention = await backend.attention()
        else:
            pulse.figures = await backend.figures()
        return False

    def paint(self) -> None:
        self._pulse.head = self.context.head
        self._report()
        self._draw()

    def _report(self) -> None:
        """Write a report of alerts that failed to render, each once, and show where it is."""
        session = self.context.session
        faults = {place_of(each): each for each in alerts(self._pulse, session.now).faults}
        new = [fault for place, fault in faults.items() if place not in self._reported]
        if new:
            self._reported |= faults.keys()
            report = keep(new, folder=session.reports, at=session.now)
            self.strip.show(safe(f"✗ an alert cannot be shown: {report}"), "fail")

    def action_move(self, how: str) -> None:
        """Move the cursor between lines that open something; past the last one, scroll."""
        if how in _SCROLLED:
            self._page.scroll_page(_SCROLLED[how])
        elif self._cursor.move(_MOVES[how]):
            self._draw()
        else:
            self._page.scroll_page("up" if _MOVES[how] < 0 else "down")

    def action_open(self) -> None:
        opens = self._cursor.opens
        if opens is None:
            self.strip.show("nothing here opens", "dim")
        elif opens.screen == "approvals" and opens.id is not None:
            self.context.seek(opens.id)
        elif opens.id is not None:
            self.context.open(opens.screen, opens.id)
        else:
            self.app.call_later(self.app.run_action, f"app.show('{opens.screen}')")

    @on(Page.Resized)
    def _draw(self) -> None:
        height = self._page.size.height - 1  # its head
        lines = pulse_lines(self._pulse, self.context.session.now, self._page.room, height=height)
        self._cursor.follow(lines)
        shown = [line.cells for line in lines]
        self._page.show(shown, is_other=False, cursor=self._cursor.at)

    def _head(self) -> tuple[Cell, Cell]:
        return headline(self._pulse, self.context.session.now), Cell("")
