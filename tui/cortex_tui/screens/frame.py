"""The base of every screen: the top bar, a body, the strip, the footer, and the poll.

A screen defines `name`, `body` and, if its content changes, `look` and `paint`. Its keys come from
the table in `keys` and call its `action_…` methods.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.internals import bind
from cortex_tui.model.selected import Selected
from cortex_tui.render import bars
from cortex_tui.widgets.lines import Line
from cortex_tui.widgets.side import SIDE_MIN, THIRD_MIN
from cortex_tui.widgets.strip_line import NOT_SEEN, StripLine

CHOSEN: Final = "chosen"
WIDTH_MIN: Final = 60
HEIGHT_MIN: Final = 15


class Frame(Screen[None]):
    NAME: ClassVar[str]
    """As in `keys` and `app.SCREENS`."""
    SIDE_FROM: ClassVar[int] = SIDE_MIN
    """Cells; from here on it has a side pane, which a key hides."""
    ENABLE_COMMAND_PALETTE = True

    DEFAULT_CSS = """
    Frame { background: $background; color: $foreground; }
    Frame #small { display: none; }
    Frame Side { display: none; width: 44; border-left: vkey $border; }
    Frame.-aside Side { display: block; }
    Frame.-widely Side { width: 64; }
    Frame.-aside Side.-third { display: none; }
    Frame.-aside.-widely Side.-third { display: block; width: 48; }
    Frame #aside { height: 1fr; }
    Frame.-small > Widget { display: none; }
    Frame.-small > #small { display: block; }
    """

    def __init__(self, context: AppContext) -> None:
        super().__init__()
        self.context = context
        self.has_other = False
        """A poll brought something to paint that is not news: the polls keep their pace."""
        self.opened: tuple[str, tuple[object, ...]] | None = None
        """The name and arguments with which it was opened on top; None: a base screen."""
        self.strip = StripLine(context, info=self.info, freed=self.watched)
        bind(self, context.keys.bindings(self.NAME))

    # --- what a screen defines

    def body(self) -> Iterable[Widget]:
        """Make the widgets between the top bar and the strip."""
        raise NotImplementedError

    async def look(self) -> bool | None:
        """Run one query for the screen; return whether it brought news.

        None: no query ran, so the result says nothing about the database. Raises `CortexError`s.
        Check the result before use: the screen may want something else by the time the answer
        arrives.
        """
        return None

    def paint(self) -> None:
        """Redraw what changes by itself, with `redraw`; called each second, and after polls."""

    def pressed(self) -> None:
        """Called before a key acts, while no question is open."""
        if self.workers.cancel_group(self, CHOSEN):
            self.strip.show("a key was pressed before the question: nothing was done", "warn")

    def watched(self) -> None:
        """Called when keys come here again; the operator may still be typing for another screen."""

    def armed_at(self) -> float:
        """The clock's time from which the next key counts, if none comes before."""
        return float("-inf")

    def resource(self) -> Selected | None:
        """Return the object under the cursor; None if it has no name."""
        return None

    def path(self) -> tuple[str, ...]:
        """The place shown in the top bar."""
        return (self.NAME,)

    def writing(self) -> Sequence[tuple[str, str]]:
        """Return the keys of an open text field, with their labels; all others are disabled."""
        return ()

    def info(self) -> Cell:
        """Return the text at the right of the strip."""
        return Cell("")

    # --- what the frame provides

    def compose(self) -> ComposeResult:
        yield Line(self.context, self._top, id="top")
        yield from self.body()
        yield self.strip
        yield Line(self.context, self._bottom, id="bottom")
        yield Line(self.context, self._small, id="small")

    def choose(self, action: str) -> None:
        """Run a chosen action once keys count here, unless another key comes first."""

        async def chosen() -> None:
            clock = self.context.session.clock
            while (until := self.armed_at()) > clock.now():
                await clock.wait(asyncio.Event(), until=until)
            if self.is_current:  # from here on no key cancels it
                self.app.call_later(self.app.run_action, action, self)

        _ = self.run_worker(chosen(), group=CHOSEN, exclusive=True)

    def take_keys(self) -> None:
        """Take over the keys of an open question on a screen that is no longer in front."""
        left = self.context.asking
        if left is not None and left is not self.strip:
            self.strip.take_over(left)

    def repaint(self) -> None:
        """Redraw everything that changes by itself."""
        self.has_other = False
        for line in ("#top", "#bottom"):
            self.query_one(line, Line).redraw()
        self.strip.redraw()
        self.paint()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable all other keys while a question is open."""
        return not self.strip.is_asking and super().check_action(action, parameters)

    def on_resize(self, event: events.Resize) -> None:
        size = event.size
        self.set_class(size.width < WIDTH_MIN or size.height < HEIGHT_MIN, "-small")
        self._set_aside(size.width)
        if not self.strip.is_seen:
            self.strip.withdraw(NOT_SEEN)  # nobody may confirm what is hidden

    def _set_aside(self, width: int) -> None:
        """Show or hide the pane beside the list, on screens that have one."""
        self.set_class(width >= SIDE_MIN and not self.context.is_side_hidden, "-aside")
        self.set_class(width >= THIRD_MIN, "-widely")

    def action_side(self) -> None:
        """Hide or show the panes beside lists, which take room from the columns."""
        if self.app.size.width < self.SIDE_FROM:
            self.strip.show(f"a side pane needs {self.SIDE_FROM} columns", "dim")
            return
        self.context.is_side_hidden = not self.context.is_side_hidden
        self._set_aside(self.app.size.width)
        _ = self.call_after_refresh(self.repaint)  # the list reports which columns it omits

    def on_screen_resume(self) -> None:
        self.watched()
        self.take_keys()
        self._set_aside(self.app.size.width)  # another screen may have changed it
        self.repaint()  # it may have been muted or have lost its pod since
        self.context.arrived()
        self.context.wake()

    # ---

    def _top(self, width: int) -> Strip:
        session = self.context.session
        view = bars.TopView(
            path=(session.place, *self.path()),
            head=self.context.head,
            now=session.now,
            is_read_only=session.is_read_only,
            is_muted=self.context.bell.is_muted(session.clock.now()),
            link=bars.link_cell(session.link, session.clock.now()),
            has_lost_pod=session.pod is not None and session.pod.ended() is not None,
        )
        return bars.top_bar(view, self.context.palette, width)

    def _bottom(self, width: int) -> Strip:
        if written := self.writing():
            return bars.plain_footer(written, self.context.palette, width)
        may_act = self.context.session.why_not_act() is None
        return bars.footer(
            self.context.keys, self.NAME, self.context.palette, width, may_act=may_act
        )

    def _small(self, width: int) -> Strip:
        size = self.app.size
        text = f"{size.width} by {size.height} is too small: at least {WIDTH_MIN} by {HEIGHT_MIN}"
        return Strip([Segment(text)]).adjust_cell_length(width)
