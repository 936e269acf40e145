"""The log of one job: the newest lines, those that come, and all of the one under the cursor."""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from cortex.domain.log_line import Level
from cortex.domain.phrases import short_id
from cortex.store.logs import LogPlace, LogRow
from cortex.view.cells import Cell
from cortex.view.resources.logs import LOGS
from cortex_tui.app_context import AppContext
from cortex_tui.model.selected import Selected
from cortex_tui.model.window import ROWS_MAX
from cortex_tui.render.log_rows import LOG_COLUMNS, page_head, page_lines
from cortex_tui.screens.listed import ListScreen

FIRST_MAX: Final = 500
PAGE_MAX: Final = 500
LEVELS: Final = (Level.DEBUG, Level.WARNING, Level.ERROR)
"""What the key for the level chooses, in turn."""


class LogsScreen(ListScreen[LogRow]):
    """Follows the newest line until the cursor leaves it."""

    NAME = "logs"
    COLUMNS = LOG_COLUMNS
    NOTHING = "no lines: its code has logged and printed nothing yet"
    NONE_CHOSEN = "no line under the cursor"
    DEFAULT_CSS = """
    LogsScreen Page { height: 12; }
    """

    def __init__(self, context: AppContext, job_id: UUID) -> None:
        super().__init__(context, key=lambda row: row.id)
        self._job_id = job_id
        self._rows: list[LogRow] = []
        """All levels, in their order."""
        self._place: LogPlace | None = None
        """How far was read; None: nothing yet."""
        self._least = LEVELS[0]
        self._follows = True

    def path(self) -> tuple[str, ...]:
        return ("jobs", short_id(self._job_id), "log")

    async def rows(self) -> Sequence[LogRow]:
        logs, place = self.context.backend.logs, self._place
        if place is None:
            more = await logs.newest(self._job_id, limit=FIRST_MAX)
        else:
            more = await logs.after(self._job_id, place=place, limit=PAGE_MAX)
            if len(more) == PAGE_MAX and self._follows:
                # Written faster than they are read: the newest are not these.
                more, self._rows = await logs.newest(self._job_id, limit=FIRST_MAX), []
        self._place = (place or LogPlace()).after(more)
        self._rows = [*self._rows, *more][-ROWS_MAX:]
        return self._chosen

    @property
    def _chosen(self) -> list[LogRow]:
        return [row for row in self._rows if row.level >= self._least]

    def cut(self, rows: Sequence[LogRow]) -> str:  # noqa: ARG002 -- older lines stand above
        return ""

    async def look(self) -> bool | None:
        is_news = await super().look()
        self._keep_up()
        return is_news

    def _keep_up(self) -> None:
        if self._follows and self._window.rows:
            self._window.move_to(len(self._window.rows) - 1)

    def action_move(self, how: str) -> None:
        super().action_move(how)
        self._follows = self._window.cursor == len(self._window.rows) - 1

    def action_follow(self) -> None:
        """Follow the newest line, or stay."""
        self._follows = not self._follows
        self._keep_up()
        self.strip.show("following" if self._follows else "not following", "dim")
        self.repaint()

    def action_level(self) -> None:
        """Show all lines, only warnings and worse, or only errors."""
        self._least = LEVELS[(LEVELS.index(self._least) + 1) % len(LEVELS)]
        self._window.refill(self._chosen)
        self._keep_up()
        self.repaint()

    def info(self) -> Cell:
        shown = "all levels" if self._least is LEVELS[0] else f"{self._least.word} and worse"
        count = len(self._window.rows)
        follows = " · following" if self._follows else ""
        return Cell(f"{count:,} {'line' if count == 1 else 'lines'} · {shown}{follows}", "dim")

    def page_head(self, row: LogRow) -> Cell:
        return page_head(row)

    def page_lines(self, row: LogRow, room: int) -> Iterable[tuple[Cell, ...]]:
        return page_lines(row, room)

    def resource(self) -> Selected | None:
        row = self._window.current
        if row is None:
            return None
        command = f"cortex logs {self._job_id}"
        return Selected(id=str(row.id), key=row.id, command=command, shape=LOGS, row=row)
