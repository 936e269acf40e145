"""The rows of the inbox: their order, the tabs, the marks, and which rows keep their places.

The order is frozen while rows are marked or a question is open: new rows are only counted, ended
ones stay in place. Otherwise the row under the cursor stays until the cursor leaves it.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.store.approvals import InboxRow
from cortex_tui.model.window import Window

ROWS_MAX: Final = 300
"""Further requests are shown once these are decided."""


class Tab(StrEnum):
    """A part of the inbox."""

    MINE = "mine"
    """Requests that this operator may decide."""
    ALL = "all"
    DECIDED = "decided"


def is_mine(row: InboxRow) -> bool:
    """Whether this operator may decide it."""
    return not (row.is_own or row.has_agreed)


class Inbox:
    """Updated by polls; `window` holds the visible rows."""

    def __init__(self, *, deciding: Callable[[], Collection[UUID]] = frozenset) -> None:
        """`deciding` returns the requests decided here and not sent yet."""
        self._deciding = deciding
        self.window: Window[InboxRow, None] = Window(key=lambda row: row.id)
        self.tab = Tab.MINE
        self.marked: set[UUID] = set()
        self.is_asking = False
        """A question is open."""
        self.new_count = 0
        """Waiting requests that are hidden while the order is frozen."""
        self.is_read = False
        self._rows: dict[UUID, InboxRow] = {}
        self._sought: UUID | None = None
        """The request that the cursor moves to once it is read."""

    @property
    def is_frozen(self) -> bool:
        """Whether rows keep their places."""
        return self.is_asking or bool(self.marked)

    @property
    def is_seeking(self) -> bool:
        """Whether the cursor is about to move to another request."""
        return self._sought is not None

    @property
    def focused(self) -> UUID | None:
        row = self.window.current
        return None if row is None else row.id

    def row(self, approval_id: UUID) -> InboxRow | None:
        return self._rows.get(approval_id)

    @property
    def held(self) -> Sequence[UUID]:
        """Requests that stay listed whatever their state, so that polls reread them by id."""
        if self.tab is Tab.DECIDED:
            return ()
        shown = [row.id for row in self.window.rows] if self.is_frozen else [self.focused]
        return [each for each in (*shown, self._sought) if each is not None]

    @property
    def is_cut(self) -> bool:
        """Whether there are more requests than were read."""
        return len(self._rows) >= ROWS_MAX

    def count(self, tab: Tab) -> int:
        """Return the number of waiting requests on a tab."""
        return sum(tab is Tab.ALL or is_mine(row) for row in self._waiting())

    def to_tab(self, tab: Tab) -> None:
        """Change the tab; its rows are empty until they are read. Keeps a pending `seek`."""
        self.tab, self._sought = tab, None
        self.marked.clear()
        self.is_read = False
        self.window.replace((), above=None, below=None)

    def take(self, rows: Iterable[InboxRow]) -> bool:
        """Take the rows of a poll; return whether they changed anything."""
        by_id = {row.id: row for row in rows}
        is_news = by_id != self._rows or not self.is_read
        self._rows = by_id
        self.is_read = True
        self.marked &= set(by_id)
        self.arrange()
        self._go_to_sought()
        return is_news

    def seek(self, approval_id: UUID | None) -> None:
        """Move the cursor to a request once it is read; None: cancel that."""
        self._sought = approval_id
        self._go_to_sought()

    def give_up(self, read: Collection[UUID]) -> bool:
        """Cancel the seek if its request was read and no longer waits; return whether it did."""
        is_vain = self._sought in read
        if is_vain:
            self._sought = None
        return is_vain

    def _go_to_sought(self) -> None:
        ids = [row.id for row in self.window.rows]
        if self._sought in ids:
            self.window.move_to(ids.index(self._sought))
            self._sought = None

    def arrange(self) -> None:
        """Sort the rows, as far as they may move."""
        if self.tab is Tab.DECIDED:
            self._put(list(self._rows.values()))
            return
        wanted = [row for row in self._waiting() if self.tab is Tab.ALL or is_mine(row)]
        shown = {row.id for row in self.window.rows}
        if self.is_frozen:
            self.new_count = sum(row.id not in shown for row in wanted)
            self._put([self._rows.get(row.id, row) for row in self.window.rows])
            return
        self.new_count = 0
        focused, at = self.focused, self.window.cursor
        if focused in self._rows and all(row.id != focused for row in wanted):
            wanted.insert(min(at or 0, len(wanted)), self._rows[focused])
        self._put(wanted)

    def leave(self, approval_ids: Sequence[UUID], now: datetime) -> None:
        """Move to the next decidable request after these, else to one before."""
        rows = self.window.rows
        at = self.window.cursor
        if at is None:
            return
        for index in (*range(at + 1, len(rows)), *range(at)):
            row = rows[index]
            if row.id not in approval_ids and self._is_next(row, now):
                self.window.move_to(index)
                return

    def go_first(self, now: datetime) -> None:
        """Move to the most urgent decidable request."""
        for index, row in enumerate(self.window.rows):
            if self._is_next(row, now):
                self.window.move_to(index)
                return

    def _is_next(self, row: InboxRow, now: datetime) -> bool:
        return (
            row.id not in self._deciding()
            and row.status_at(now) is ApprovalStatus.PENDING
            and is_mine(row)
        )

    def _waiting(self) -> list[InboxRow]:
        rows = (row for row in self._rows.values() if row.status == ApprovalStatus.PENDING)
        return sorted(rows, key=_urgency)

    def _put(self, rows: list[InboxRow]) -> None:
        """Show these rows; the cursor stays on its row."""
        window = self.window
        is_first = not window.rows
        window.rows = rows
        if is_first:
            window.move_to(0)
        window.resize(window.height)


def _urgency(row: InboxRow) -> tuple[int, datetime, UUID]:
    return -row.risk.rank, row.expires_at, row.id
