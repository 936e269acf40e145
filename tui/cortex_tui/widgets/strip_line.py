"""The line above the footer: outcomes, news, and the question before an action.

Otherwise it shows why the database does not answer, if it does not.

It is always there, so that nothing moves when text appears. While it asks, it holds the focus, and
the app gives it every key, so that no key reaches the screen. Keys typed before the question opened
are written into it, but cannot confirm it. A question longer than the line takes more lines, and is
withdrawn where it cannot be shown whole. After a withdrawal the line shows the reason and still
takes every key until esc, so that an answer being typed does not run commands.
"""

from collections.abc import Callable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, TextArea

from cortex.domain.safe import safe
from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.internals import event_time, focused
from cortex_tui.model.notice import BRIEF_S, Notice
from cortex_tui.model.question import CANCEL, Choice, Closed, KeyAnswer, Prompt, TakesKeys
from cortex_tui.render.question_lines import closed_lines, question_lines, question_strip
from cortex_tui.render.table import fit
from cortex_tui.render.words import failed
from cortex_tui.widgets.drawn import Drawn

NO_ROOM: Final = "the question has no room here: nothing done"
NOT_SEEN: Final = "it was not in sight any more: nothing was done"
KEPT_MAX: Final = 500
"""Keys; nobody types longer reasons ahead."""


class StripLine(Drawn, can_focus=True):
    """One line, more for long questions; `info` stands at its right while no question is open."""

    def __init__(
        self,
        context: AppContext,
        *,
        info: Callable[[], Cell],
        freed: Callable[[], None] = lambda: None,
    ) -> None:
        """`freed` is called when keys reach the screen again after a withdrawn question."""
        super().__init__(context)
        self._info, self._freed = info, freed
        self._notice = Notice()
        self._question: Prompt | None = None
        self._answered: Callable[[bool], None] | None = None
        self._asked_at = self._kept_until = float("-inf")
        """By the clock of events."""
        self._height = 1
        """Lines, while a question is open."""
        self._width = 0
        self._before: Widget | None = None
        self._kept: list[events.Key] = []

    @property
    def is_asking(self) -> bool:
        """Whether a question is open, or was withdrawn and not acknowledged."""
        return self._question is not None

    @property
    def may_ask(self) -> bool:
        """Whether a delayed question may open: the screen is in front and no text field is open.

        Otherwise the text being typed would answer it.
        """
        is_writing = isinstance(focused(self.screen), Input | TextArea)
        return self.screen.is_current and not self.is_asking and not is_writing

    @property
    def is_seen(self) -> bool:
        """Whether there is room for the screen."""
        return not self.screen.has_class("-small")

    def show(self, text: str, style: str = "", *, is_outcome: bool = False) -> None:
        """Show one line of safe text until it is replaced or was seen.

        `is_outcome`: the outcome of an action; lines in the styles of success and failure always
        are.
        """
        now = self.context.session.clock.now()
        self._notice.show(Cell(text, style), now, is_outcome=is_outcome)
        self.refresh()

    def mention(self, text: str, style: str) -> None:
        """Show a less important line, but not in place of an outcome that was not seen yet."""
        if self._notice.may_be_replaced(self.context.session.clock.now()):
            self.show(text, style)

    def pressed(self) -> None:
        """Drop a line that was seen, because a key came while no question is open."""
        if self._notice.is_over_by_key(self.context.session.clock.now()):
            self.show("")

    def redraw(self) -> None:
        notice, now = self._notice, self.context.session.clock.now()
        if not notice.is_outcome and notice.is_over(now, after_s=BRIEF_S):
            self.show("")
        super().redraw()

    def drop(self, text: str) -> None:
        """Drop this line, unless another one has replaced it."""
        if self._notice.cell.text == text:
            self.show("")

    def expect(self, text: str) -> Sequence[events.Key]:
        """Say that a question is being prepared; return the list that collects keys typed ahead."""
        self.show(text, "dim")
        self._kept, self._kept_until = [], event_time()
        return self._kept

    def keeps(self, event: events.Key) -> bool:
        """Keep a key that was typed together with the one whose question is being prepared."""
        is_ours = event.time <= self._kept_until
        if is_ours and len(self._kept) < KEPT_MAX:
            self._kept.append(event)
        return is_ours

    def ask(
        self,
        question: Prompt,
        answered: Callable[[bool], None],
        *,
        typed: Sequence[events.Key] = (),
    ) -> None:
        """Ask; calls `answered` once with the answer, unless the question cannot be seen.

        `typed`: the return value of `expect`.
        """
        self._open(question, answered)
        self._notice.clear()
        if not self.is_seen:
            self.withdraw(NOT_SEEN)
        self._make_room()
        for event in typed:
            self.press(event)

    def withdraw(self, why: str) -> None:
        """Decline the question and say why; what is typed next is no command."""
        question, answered = self._question, self._answered
        if question is None or isinstance(question, Closed):
            return
        self._question, self._answered, self._height = Closed(why), None, 1
        self._make_room()
        self.refresh()
        _answer(answered, is_agreed=False)
        self.show(why, "warn")

    def leave(self) -> str:
        """Decline because the screen was left; return a message about that."""
        question = self._question
        self._end(is_agreed=False)
        if question is None or isinstance(question, Closed):
            return NOT_SEEN if question is None else question.text
        return f"{question.text}: {NOT_SEEN}"

    def take_over(self, left: TakesKeys) -> None:
        """Take over the keys of a strip whose screen was left while it asked."""
        why = left.leave()
        if not self.is_asking:
            self._open(Closed(why), None)
            self._make_room()
            self.show(why, "warn")

    def _open(self, question: Prompt, answered: Callable[[bool], None] | None) -> None:
        self._question, self._answered = question, answered
        self._height = 1
        self._asked_at = event_time()
        self._before = focused(self.screen)
        self.context.asking = self
        self.screen.set_focus(self)
        self.refresh()

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002 -- Textual's
        return self.is_asking

    def press(self, event: events.Key) -> None:
        """Take a key for an open question; keys typed before it opened cannot confirm."""
        question, key, character = self._question, event.key, event.character
        if question is None:
            return
        is_ahead = event.time <= self._asked_at
        if is_ahead and key != CANCEL and question.may_agree(character):
            return
        match question.press(key, character):
            case KeyAnswer.YES:
                self._end(is_agreed=True)
            case KeyAnswer.NO:
                self._end(is_agreed=False)
            case KeyAnswer.NONE:
                self._make_room()
                self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._width:
            self._width, self._height = event.size.width, 1
        self._make_room()

    def _make_room(self) -> None:
        """Take the lines that the question needs; withdraw it if they do not fit."""
        if self._question is None:
            return
        lines = self._laid_out(self._question, self.size.width or self.screen.size.width)
        if lines is None:
            self.withdraw(NO_ROOM)
        else:
            self._height = max(self._height, len(lines))  # keep the height while the operator types
            self.styles.height = self._height

    def _laid_out(self, question: Prompt, width: int) -> Sequence[tuple[str, str]] | None:
        how, room = safe(question.how()), max(1, width - 2)
        if isinstance(question, Closed):
            return closed_lines(question.text, how, room)  # nobody confirms it: it may be cut
        mark = ":" if isinstance(question, Choice) else "?"
        return question_lines(question.text, how, room, mark=mark)

    def on_blur(self) -> None:
        if self.is_asking:
            self.screen.set_focus(self)

    def _end(self, *, is_agreed: bool) -> None:
        question, answered, before = self._question, self._answered, self._before
        self._question = self._answered = self._before = None
        if self.context.asking is self:
            self.context.asking = None
        self.styles.height = 1
        if before is not None and before.is_attached:
            self.screen.set_focus(before)
        self.refresh()
        _answer(answered, is_agreed=is_agreed)
        if isinstance(question, Closed):
            self._freed()

    def draw(self, y: int, width: int) -> Strip:
        palette = self.context.palette
        if self._question is not None:
            lines = self._laid_out(self._question, width) or ()
            return question_strip(lines, y, palette, width)
        if y > 0:
            return Strip.blank(width)  # a question that was just answered
        info = self._info()
        notice = self._notice
        has_room = cell_len(notice.cell.text) + cell_len(info.text) + 3 <= width
        if notice.cell.text and not has_room and not notice.is_under_way:
            info = Cell("")  # it returns in a moment; the message is read first
        error = self.context.session.link.error
        stale = Cell("") if error is None else Cell(failed(error, with_hint=True), "warn")
        cell = notice.cell if notice.cell.text else stale
        room = max(0, width - cell_len(info.text) - 3)
        parts = [
            Segment(" "),
            Segment(fit(cell.text, room), palette[cell.style]),
            Segment(" "),
            Segment(info.text, palette[info.style]),
        ]
        return Strip(parts).adjust_cell_length(width)


def _answer(answered: Callable[[bool], None] | None, *, is_agreed: bool) -> None:
    if answered is not None:
        answered(is_agreed)
