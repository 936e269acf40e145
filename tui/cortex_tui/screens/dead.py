"""Dead letters by error, and the letters of one error: to retry or to discard."""

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar
from uuid import UUID

import attrs
from textual import on
from textual.containers import Horizontal
from textual.widget import Widget

from cortex.domain.bulk import BulkVerb
from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup, DeadLetterHead
from cortex.domain.errors import CortexError
from cortex.domain.job import BULK
from cortex.domain.job_filter import term
from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex.view.resources.dead_letters import ERRORS, LETTERS
from cortex_tui.app_context import AppContext
from cortex_tui.backend.dead import ERRORS_MAX, LOOKED_MAX
from cortex_tui.model import steady
from cortex_tui.model.selected import Selected
from cortex_tui.model.window import Window
from cortex_tui.render.dead_letter_rows import ERROR_COLUMNS, LETTER_COLUMNS, error_words
from cortex_tui.render.dead_letter_side import side_head, side_lines
from cortex_tui.render.table import Column
from cortex_tui.render.words import failed
from cortex_tui.screens import dead_asking, job_actions
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.jobs_bulk import COUNTING
from cortex_tui.screens.payload_pane import PayloadPane
from cortex_tui.widgets.json_editor import KEYS as EDITOR_KEYS
from cortex_tui.widgets.json_editor import JsonEditor
from cortex_tui.widgets.page import Page
from cortex_tui.widgets.side import About, Side
from cortex_tui.widgets.virtual_table import VirtualTable

Row = TypeVar("Row", bound=DeadLetterHead)

LOOK_EVERY_S: Final = 2.0
"""A poll reads some thousand entries of an index."""


LETTERS_MAX: Final = 500
NEWEST_MAX: Final = 8
"""Letters beside the list of errors."""
REST_S: Final = 0.3
"""The cursor rests this long before they are read, so that passing it by costs nothing."""


class _DeadLetters(Frame, Generic[Row]):
    """A list that is read whole; new rows are counted until the operator asks for them."""

    KEY: str
    COLUMNS: Sequence[Column[Row]]

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        self._window: Window[Row, None] = Window(key=self._key)
        self._is_read = False
        self._is_fresh = False
        """All new rows are shown at the next poll."""
        self._new_count = 0
        self._looked_at = float("-inf")
        self._table = VirtualTable(
            context, self._window, self.COLUMNS, key=self._key, empty=self._nothing
        )

    def _key(self, row: Row) -> str | UUID:
        found: str | UUID = getattr(row, self.KEY)
        return found

    def body(self) -> Iterable[Widget]:
        return (self._table,)

    def on_mount(self) -> None:
        self.set_focus(self._table)

    def paint(self) -> None:
        self._table.redraw()

    def info(self) -> Cell:
        return (
            Cell(f"▲ {self._new_count} new   . shows ", "accent") if self._new_count else Cell("")
        )

    async def rows(self) -> Sequence[Row]:
        raise NotImplementedError

    def cut(self, rows: Sequence[Row]) -> str:
        """Return where to find the letters that were not read; "" if there are none."""
        raise NotImplementedError

    async def look(self) -> bool | None:
        now = self.context.session.clock.now()
        if self.strip.is_asking or (now - self._looked_at < LOOK_EVERY_S and not self._is_fresh):
            return None
        self._looked_at = now
        rows = await self.rows()
        if self.strip.is_asking:
            return False  # the order is frozen while a question is open
        is_first, self._is_read = not self._is_read, True
        self._table.show_cut(self.cut(rows))
        if self._is_fresh:
            self._is_fresh, self._new_count = False, 0
            self._window.renew(rows, below=None)
            return True
        known, was_free = self._new_count, self._window.is_free
        is_changed, self._new_count = steady.take(self._window, rows, key=self._key)
        if rows and self._window.is_free and not was_free:
            self.strip.mention("what stood here is not among the newest any more", "warn")
        return is_changed or is_first or self._new_count != known

    def action_move(self, how: str) -> None:
        self._table.move(how)

    def action_fresh(self) -> None:
        self._is_fresh = True
        self.context.wake()

    def action_retry(self) -> None:
        self._ask(BulkVerb.RETRY)

    def action_discard(self) -> None:
        self._ask(BulkVerb.DISCARD)

    def _ask(self, verb: BulkVerb) -> None:
        row = self._window.current
        if row is None:
            self.strip.show(self._window.why_none("no dead letter under the cursor"), "warn")
        elif (refusal := self.context.actions.why_not()) is not None:
            self.strip.show(refusal, "warn")
        else:
            self.ask(verb, row)

    def ask(self, verb: BulkVerb, row: Row) -> None:
        """Ask to confirm an operation on the row of the cursor."""
        raise NotImplementedError

    def _nothing(self) -> str:
        return (
            "no dead letters: nothing failed that waits for you" if self._is_read else "reading …"
        )


class DeadScreen(_DeadLetters[DeadLetterGroup]):
    """One row per error, and the newest letters of the one under the cursor."""

    NAME = "dead"
    KEY = "fingerprint"
    COLUMNS = ERROR_COLUMNS

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        self._side = Side(context, about=self._about)
        self._moved_at = float("-inf")
        self._newest: Sequence[DeadLetter] = ()
        self._newest_of: tuple[object, ...] = ()
        """The version of the error that they belong to."""

    def body(self) -> Iterable[Widget]:
        return (Horizontal(*super().body(), self._side, id="aside"),)

    def paint(self) -> None:
        super().paint()
        self._side.follow()

    async def look(self) -> bool | None:
        row = self._window.current
        if row is not None and self._wants_newest(row):
            return await self._look_at_newest(row)
        return await super().look()

    async def rows(self) -> Sequence[DeadLetterGroup]:
        return await self.context.backend.dead.errors()

    def _wants_newest(self, row: DeadLetterGroup) -> bool:
        """Whether to read the newest letters of the error under the cursor for the side pane."""
        is_resting = self.context.session.clock.now() - self._moved_at >= REST_S
        return self._side.is_seen_now and is_resting and _version(row) != self._newest_of

    async def _look_at_newest(self, row: DeadLetterGroup) -> bool:
        self._newest_of = _version(row)  # also if this fails, so that the list keeps its turn
        found = await self.context.backend.dead.letters(row.fingerprint, limit=NEWEST_MAX)
        self._newest = found.letters
        return True

    def cut(self, rows: Sequence[DeadLetterGroup]) -> str:
        if len(rows) < ERRORS_MAX and all(row.is_all for row in rows):
            return ""
        return f"of the newest {LOOKED_MAX:,} letters; older ones: cortex dead ls"

    def resource(self) -> Selected | None:
        row = self._window.current
        if row is None:
            return None
        command = command_of(row)
        return Selected(id=row.fingerprint, command=command, shape=ERRORS, row=row)

    def action_open(self) -> None:
        if (row := self._window.current) is None:
            self.strip.show(self._window.why_none(self._nothing()), "dim")
        else:
            self.context.open("letters", row)

    def action_bulk(self) -> None:
        """Open the jobs that carry bulk operations out."""
        self.context.open("jobs", term("type", BULK))

    def ask(self, verb: BulkVerb, row: DeadLetterGroup) -> None:
        typed = self.strip.expect(COUNTING)
        work = dead_asking.ask_group(self.context, self.strip, verb, row, typed=typed)
        _ = self.run_worker(work, group="dry run", exclusive=True)

    @on(VirtualTable.Moved)
    def _moved(self) -> None:
        self._moved_at = self.context.session.clock.now()
        self._side.follow()

    def _about(self, width: int) -> About | None:
        """Return what was read about the error under the cursor."""
        row = self._window.current
        if row is None:
            return None
        is_theirs = self._newest_of[:1] == _version(row)[:1]
        newest, now = self._newest if is_theirs else (), self.context.session.now
        lines = tuple(side_lines(row, newest, now, width))
        return About(key=row.fingerprint, title=side_head(row), lines=lines)


def command_of(row: DeadLetterGroup) -> str:
    """Return the command that lists all letters of an error."""
    return f"cortex dead ls --each --fingerprint {safe(row.fingerprint[:8])}"


def _version(row: DeadLetterGroup) -> tuple[object, ...]:
    """Return a value that differs when an error has other letters."""
    return row.fingerprint, row.count, row.last_at


class DeadLettersScreen(_DeadLetters[DeadLetter]):
    """The dead letters of one error."""

    NAME = "letters"
    KEY = "job_id"
    COLUMNS = LETTER_COLUMNS

    def __init__(self, context: AppContext, error: DeadLetterGroup) -> None:
        self._error = error
        self._is_all = True
        """All letters were read."""
        super().__init__(context)
        self._pane = PayloadPane(context, self, focus=lambda: self._table)

    def body(self) -> Iterable[Widget]:
        return (*super().body(), self._pane)

    def writing(self) -> Sequence[tuple[str, str]]:
        return EDITOR_KEYS if self._pane.is_editing else ()

    def on_screen_suspend(self) -> None:
        self._pane.close()

    async def look(self) -> bool | None:
        # The cursor stays on the letter whose payload is edited.
        return None if self._pane.letter is not None else await super().look()

    def path(self) -> tuple[str, ...]:
        return ("dead", safe(error_words(self._error)))

    async def rows(self) -> Sequence[DeadLetter]:
        found = await self.context.backend.dead.letters(self._error.fingerprint, limit=LETTERS_MAX)
        self._is_all = found.is_all
        return found.letters

    def cut(self, rows: Sequence[DeadLetter]) -> str:
        if len(rows) < LETTERS_MAX and self._is_all:
            return ""
        return f"older ones: {self._command}"

    @property
    def _command(self) -> str:
        return command_of(self._error)

    def _nothing(self) -> str:
        if not self._is_read:
            return "reading …"
        return f"none waits among the newest {LOOKED_MAX:,}; older ones: {self._command}"

    def resource(self) -> Selected | None:
        row = self._window.current
        if row is None:
            return None
        selected = job_actions.selected_step(self.context, row.job_id, None)
        return attrs.evolve(selected, shape=LETTERS, row=row, read=None)

    def action_open(self) -> None:
        if (row := self._window.current) is None:
            self.strip.show(self._window.why_none(self._nothing()), "dim")
        else:
            self.context.open("job", row.job_id)

    def ask(self, verb: BulkVerb, row: DeadLetter) -> None:
        dead_asking.ask_one(self.context, self.strip, verb, row)

    def action_edit(self) -> None:
        """Open the payload of the letter under the cursor in the editor."""
        row = self._window.current
        if row is None:
            self.strip.show(self._window.why_none("no dead letter under the cursor"), "warn")
        elif (refusal := self.context.actions.why_not()) is not None:
            self.strip.show(refusal, "warn")
        else:
            _ = self.run_worker(self._edit(row), group="payload", exclusive=True)

    async def _edit(self, row: DeadLetter) -> None:
        try:
            payload = await self.context.backend.dead.payload(row.job_id)
        except CortexError as error:
            self.strip.show(f"✗ {failed(error)}", "fail")
            return
        if self.strip.may_ask:  # otherwise the operator has gone on
            self._pane.edit(row, payload)

    @on(JsonEditor.Left)
    def _discard_edit(self) -> None:
        self._pane.close()
        self.strip.show("the payload stays as it is", "dim")

    @on(JsonEditor.Taken)
    def _take_edit(self, event: JsonEditor.Taken) -> None:
        letter = self._pane.letter
        if letter is not None:
            work = self._compare(letter, event.text)
            _ = self.run_worker(work, group="payload", exclusive=True)

    async def _compare(self, letter: DeadLetter, text: str) -> None:
        """Check the edited payload, show what differs, and ask."""
        try:
            edit = await self.context.backend.dead.edited(letter, text)
        except CortexError as error:
            self._pane.editor.refuse(failed(error))
            return
        if self.is_current and self._pane.letter is letter:
            self._pane.compare(edit)
            dead_asking.ask_edited(
                self.context, self.strip, letter, edit, answered=self._pane.close
            )

    @on(Page.Resized)
    def _resized(self) -> None:
        self._pane.lay_out(is_other=False)
