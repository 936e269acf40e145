"""Effects: unknown outcomes first, to be resolved; the freeze; and quotas.

The parts are read in turns, one statement each. The list does not grow with settled effects: only
the newest of those appear below the unknown ones.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from rich.segment import Segment
from textual import events, on
from textual.strip import Strip
from textual.widget import Widget

from cortex.domain.phrases import short_id
from cortex.store.breakers import FreezeState
from cortex.store.effects import EffectDetail, EffectRow
from cortex.store.quotas import QuotaRow
from cortex.view.resources.effects import EFFECT
from cortex.view.resources.quotas import QUOTAS
from cortex_tui.app_context import AppContext
from cortex_tui.backend.effects import QUOTAS_MAX
from cortex_tui.model.effect_list import EffectList
from cortex_tui.model.selected import Selected
from cortex_tui.model.window import PAGE_ROWS, Window
from cortex_tui.render.effect_rows import (
    EFFECT_COLUMNS,
    QUOTA_COLUMNS,
    effect_head,
    effect_lines,
    freeze_line,
    is_unknown,
)
from cortex_tui.render.table import fit
from cortex_tui.screens import effect_decisions
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.page import Page
from cortex_tui.widgets.virtual_table import VirtualTable

EVERY_S: Final[Mapping[str, float]] = {"freeze": 2.0, "quotas": 5.0, "others": 5.0, "detail": 5.0}
"""How often each part is read; unknown effects are read whenever no other part is due."""
QUOTA_LINES_MAX: Final = 6


class EffectsScreen(Frame):
    """The list of effects; it can open with one effect first."""

    NAME = "effects"
    DEFAULT_CSS = """
    EffectsScreen Page { height: 40%; }
    """

    def __init__(self, context: AppContext, effect_id: UUID | None = None) -> None:
        super().__init__(context)
        self._list = EffectList(effect_id)
        self._effects: Window[EffectRow, UUID] = Window(key=_id_of)
        self._quotas: Window[QuotaRow, None] = Window(key=lambda row: row.name)
        self._freeze: FreezeState | None = None
        self._detail: EffectDetail | None = None
        self._read: set[str] = set()
        self._due: dict[str, float] = {}
        self._in_page: UUID | None = None
        self._table = VirtualTable(
            context, self._effects, EFFECT_COLUMNS, key=_id_of, empty=self._no_effects
        )
        self._quota_table = VirtualTable(
            context,
            self._quotas,
            QUOTA_COLUMNS,
            key=lambda row: row.name,
            empty=self._no_quotas,
        )
        self._quota_table.is_in_front = False
        self._page = Page(context, head=lambda: effect_head(self._effects.current))

    def body(self) -> Iterable[Widget]:
        return (
            Line(self.context, self._freeze_line, id="freeze"),
            self._table,
            self._page,
            self._quota_table,
        )

    def on_mount(self) -> None:
        self.set_focus(self._table)
        self._share()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if event.widget in (self._table, self._quota_table):
            self._table.is_in_front = event.widget is self._table
            self._quota_table.is_in_front = event.widget is self._quota_table
            self.paint()

    def paint(self) -> None:
        self.query_one("#freeze", Line).redraw()
        self._table.redraw()
        self._quota_table.redraw()
        self._show_current()

    def path(self) -> tuple[str, ...]:
        opened_for = self._list.opened_for
        return (self.NAME,) if opened_for is None else (self.NAME, short_id(opened_for))

    # --- polling

    async def look(self) -> bool:
        now = self.context.session.clock.now()
        part = self._next(now)
        if part in EVERY_S:
            self._due[part] = now + EVERY_S[part]
        backend = self.context.backend.effects
        is_first = part not in self._read
        self._read.add(part)
        match part:
            case "freeze":
                before, self._freeze = self._freeze, await backend.frozen()
                return before != self._freeze
            case "quotas":
                rows = await backend.quotas()
                self._quota_table.show_cut(
                    "more of them: cortex quotas ls" if len(rows) >= QUOTAS_MAX else ""
                )
                is_changed = self._quotas.refill(rows)
                self._share()
                return is_changed or is_first
            case "others":
                self._list.others = await backend.others()
            case "detail":
                return await self._look_at_one()
            case _:
                await self._look_at_unknown(goes_on=part == "below")
        return self._list.fill(self._effects) or is_first

    def _next(self, now: float) -> str:
        if "unknown" not in self._read:
            return "detail" if self._list.wants_first else "unknown"
        row = self._effects.current
        if row is not None and (self._detail is None or self._detail.id != row.id):
            return "detail"
        if self._effects.wants_below:
            return "below"
        due = (part for part in EVERY_S if self._due.get(part, float("-inf")) <= now)
        part = next(due, "unknown")
        return "unknown" if part == "detail" and row is None else part

    async def _look_at_one(self) -> bool:
        """Read the effect under the cursor in full; before the list is read, the requested one."""
        row = self._effects.current
        effect_id = self._list.opened_for if self._list.wants_first or row is None else row.id
        if effect_id is None:
            return False
        before, self._detail = self._detail, await self.context.backend.effects.show(effect_id)
        if effect_id == self._list.opened_for:
            self._list.first = self._detail
            _ = self._list.fill(self._effects)
        return before != self._detail

    async def _look_at_unknown(self, *, goes_on: bool) -> None:
        """Read a page of unknown effects: the visible one again, or the next."""
        start = self._list.start_of(self._effects.top, goes_on=goes_on)
        before = self._list.before(start)
        rows = await self.context.backend.effects.unknown(before=before, limit=PAGE_ROWS)
        is_full = self._list.take_page(rows, start)
        if is_full is not None:
            self._table.show_cut("more: cortex effects ls --status unknown" if is_full else "")

    # --- keys

    def action_move(self, how: str) -> None:
        if self._page.turns(how):
            return
        (self._table if self._table.is_in_front else self._quota_table).move(how)

    def action_other_table(self) -> None:
        self.set_focus(self._quota_table if self._table.is_in_front else self._table)

    def action_open(self) -> None:
        row = self._effect
        if row is None:
            self.strip.show(self._effects.why_none("no effect under the cursor"), "dim")
        else:
            self.context.open("job", row.job_id)

    def action_resolve(self) -> None:
        """Ask for the outcome of the effect under the cursor."""
        row = self._effect
        if row is None:
            self.strip.show(self._effects.why_none("no effect under the cursor"), "dim")
        elif not is_unknown(row):
            self.strip.show(effect_decisions.why_nothing(row), "dim")
        elif (refusal := self.context.actions.why_not()) is not None:
            self.strip.show(refusal, "warn")
        else:
            typed = self.strip.expect(effect_decisions.READING)
            asking = effect_decisions.resolve(
                self.context, self.strip, row.id, typed=typed, acted=self._due.clear
            )
            _ = self.run_worker(asking, group="dry run", exclusive=True)

    def action_freeze(self) -> None:
        """Ask whether to freeze all effects, or to unfreeze them."""
        if self._freeze is None:
            self.strip.show("reading …", "dim")
        else:
            is_frozen = bool(self._freeze.is_frozen)
            effect_decisions.freeze(
                self.context, self.strip, is_frozen=is_frozen, acted=self._due.clear
            )

    def action_limit(self) -> None:
        """Ask for a new limit of the quota under the cursor."""
        if (row := self._quota) is None:
            self.strip.show("no quota under the cursor: press tab", "dim")
        else:
            effect_decisions.set_limit(self.context, self.strip, row, acted=self._due.clear)

    def action_remove(self) -> None:
        """Ask whether to remove the quota under the cursor."""
        if (row := self._quota) is None:
            self.strip.show("no quota under the cursor: press tab", "dim")
        else:
            effect_decisions.remove_quota(self.context, self.strip, row, acted=self._due.clear)

    def resource(self) -> Selected | None:
        if (row := self._effect) is not None:
            effect_id: UUID = row.id

            async def shown() -> EffectDetail:
                return await self.context.backend.effects.show(effect_id)

            command = f"cortex effects show {effect_id}"
            return Selected(
                id=str(effect_id), command=command, shape=EFFECT, read=shown, document=shown
            )
        quota = self._quota
        return None if quota is None else Selected(id=quota.name, shape=QUOTAS, row=quota)

    # --- the effect in front

    @property
    def _effect(self) -> EffectRow | None:
        return self._effects.current if self._table.is_in_front else None

    @property
    def _quota(self) -> QuotaRow | None:
        return self._quotas.current if self._quota_table.is_in_front else None

    @on(VirtualTable.Moved)
    @on(Page.Resized)
    def _show_current(self) -> None:
        """Show the details of the effect under the cursor."""
        row, detail = self._effects.current, self._detail
        is_known = row is not None and detail is not None and detail.id == row.id
        if row is not None and not is_known:
            self.context.wake()
        shown = detail if is_known else None
        shown_id = None if row is None else row.id
        now = self.context.session.now
        lines = () if shown is None else tuple(effect_lines(shown, self._page.room, now))
        self._page.show(lines, is_other=shown_id != self._in_page)
        self._in_page = shown_id

    def _freeze_line(self, width: int) -> Strip:
        cell = freeze_line(self._freeze, self.context.session.now)
        text = fit(f"  {cell.text}", width)
        return Strip([Segment(text, self.context.palette[cell.style])])

    def _share(self) -> None:
        """Give the quotas the room that they need, within bounds."""
        wanted = 1 + max(1, len(self._quotas.rows))
        self._quota_table.styles.height = min(wanted, QUOTA_LINES_MAX)

    # --- words

    def _no_effects(self) -> str:
        is_read = {"unknown", "others"} <= self._read
        return "no job has changed anything outside yet" if is_read else "reading …"

    def _no_quotas(self) -> str:
        text = "no quota is set: cortex quotas set TOOL --limit 20 --per hour --reason TEXT"
        return text if "quotas" in self._read else "reading …"


def _id_of(row: EffectRow) -> UUID:
    found: UUID = row.id
    return found
