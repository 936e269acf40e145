"""The circuit breakers: failures, waiting jobs, and overrides.

The history of the last hour is a separate query that alternates with the list.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from cortex.domain.breaker import Past
from cortex.domain.safe import safe
from cortex.store.breakers import BreakerRow
from cortex.view.cells import Cell
from cortex.view.resources.breakers import BREAKERS
from cortex.view.verbs import CLOSE_BREAKER, OPEN_BREAKER
from cortex_tui.actions import Action
from cortex_tui.app_context import AppContext
from cortex_tui.backend.breakers import SHOWN_MAX
from cortex_tui.model.breaker_override import ForceQuestion, OverrideQuestion
from cortex_tui.model.selected import Selected
from cortex_tui.render.breaker_rows import (
    BREAKER_COLUMNS,
    is_closed,
    order_of,
    page_head,
    page_lines,
)
from cortex_tui.screens.listed import ListScreen
from cortex_tui.screens.reasoned import change, put

MORE: Final = "more of them: cortex breakers ls --limit 10000"
PAST_EVERY_S: Final = 5.0
PAST_SOON_S: Final = 1.0
"""After a change of the list, whose former state is history by then."""


class BreakersScreen(ListScreen[BreakerRow]):
    NAME = "breakers"
    COLUMNS = BREAKER_COLUMNS
    NOTHING = "no breaker is open; no recent failures"
    NONE_CHOSEN = "no breaker under the cursor"
    DEFAULT_CSS = """
    BreakersScreen Page { height: 10; }
    """

    def __init__(self, context: AppContext) -> None:
        super().__init__(context, key=lambda row: row.name)
        self._past: Mapping[str, Past] = {}
        self._past_at = float("-inf")
        """When the history was read."""
        self._past_due = float("-inf")

    async def look(self) -> bool | None:
        now = self.context.session.clock.now()
        if self._window.rows and now >= self._past_due:
            self._past_at, self._past_due = now, now + PAST_EVERY_S
            names = [row.name for row in self._window.rows]
            self._past = await self.context.backend.breakers.past(names)
            return self._window.refill([self._with_past(row) for row in self._window.rows])
        is_changed = await super().look()
        if is_changed:
            self._past_due = min(self._past_due, self._past_at + PAST_SOON_S)
        return is_changed

    async def rows(self) -> Sequence[BreakerRow]:
        rows = sorted(await self.context.backend.breakers.page(), key=order_of)
        return [self._with_past(row) for row in rows]

    def cut(self, rows: Sequence[BreakerRow]) -> str:
        return MORE if len(rows) >= SHOWN_MAX else ""

    def page_head(self, row: BreakerRow) -> Cell:
        return page_head(row)

    def page_lines(self, row: BreakerRow, room: int) -> Iterable[tuple[Cell, ...]]:
        return page_lines(row, self.context.session.now, room)

    def _with_past(self, row: BreakerRow) -> BreakerRow:
        return attrs.evolve(row, past=self._past.get(row.name))

    def resource(self) -> Selected | None:
        row = self._window.current
        return None if row is None else Selected(id=row.name, shape=BREAKERS, row=row)

    # --- keys

    def action_force(self) -> None:
        """Ask whether to hold a breaker open or, if it is not closed, whether to close it."""
        row = self.current()
        if row is None:
            return
        name: str = row.name
        hold_text = safe(f"open {name}: jobs wait")
        if is_closed(row):
            held = OverrideQuestion(hold_text)
            put(self.context, self.strip, held, lambda: self._hold(name, held))
            return
        asked = ForceQuestion(
            safe(f"close {name}: jobs call it again at once"), hold_text=hold_text
        )

        def act() -> Action:
            hold = asked.hold
            return self._close(name, asked.reason) if hold is None else self._hold(name, hold)

        put(self.context, self.strip, asked, act)

    def _hold(self, name: str, question: OverrideQuestion) -> Action:
        """Return the action that holds a breaker open, for the time and reason given."""
        for_s = question.for_s
        return change(
            self.context,
            OPEN_BREAKER,
            question.text,
            name=name,
            work=partial(self.context.backend.breakers.hold_open, name, for_s=for_s),
            reason=question.reason,
            options=() if for_s is None else ("--for", question.typed),
        )

    def _close(self, name: str, reason: str) -> Action:
        work = partial(self.context.backend.breakers.close, name)
        text = f"close {name}"
        return change(self.context, CLOSE_BREAKER, text, name=name, work=work, reason=reason)
