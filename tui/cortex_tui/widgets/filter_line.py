"""The filter above a list: shown as text, edited in place."""

from collections.abc import Callable

from rich.cells import cell_len
from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input

from cortex.domain.job_filter import TEXT_MAX
from cortex.domain.safe import safe
from cortex_tui.app_context import AppContext
from cortex_tui.render.table import fit
from cortex_tui.widgets.lines import Line


class FilterLine(Horizontal):
    """`/ status:retry …` left, how many there are right. Enter asks for it with `Wanted`."""

    DEFAULT_CSS = """
    FilterLine { height: 1; width: 1fr; }
    FilterLine Input {
        display: none; height: 1; width: 1fr; border: none; padding: 0; background: $surface;
    }
    FilterLine Input:focus { border: none; }
    FilterLine.-editing Input { display: block; }
    FilterLine.-editing #filter { display: none; }
    FilterLine #slash { display: none; width: 3; }
    FilterLine.-editing #slash { display: block; }
    """

    BINDINGS = [Binding("escape", "leave", show=False)]  # while it is edited

    class Wanted(Message):
        """Somebody asks for this filter; accept it by `close`, or tell why not."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, desk: AppContext, *, told: Callable[[], str]) -> None:
        """`told` says what stands at the right."""
        super().__init__()
        self._desk = desk
        self._told = told
        self.text = ""
        self._input = Input(compact=True, max_length=TEXT_MAX, select_on_focus=False)
        self._input.cursor_blink = False  # nothing blinks
        self._input.can_focus = False  # else it gets all keys, unseen, where the list is hidden

    def compose(self) -> ComposeResult:
        yield Line(self._desk, self._slash, id="slash")
        yield Line(self._desk, self._draw, id="filter")
        yield self._input

    def edit(self) -> None:
        """Let the filter be written."""
        self.add_class("-editing")
        self._input.can_focus = True
        self._input.value = self.text
        self._input.cursor_position = len(self.text)
        self.screen.set_focus(self._input)

    def close(self, text: str | None = None) -> None:
        """Stop editing; with a text that is the filter from now on."""
        if text is not None:
            self.text = text
        self.remove_class("-editing")
        self._input.can_focus = False
        self.redraw()

    def redraw(self) -> None:
        """Draw what is told at the right anew."""
        self.query_one("#filter", Line).redraw()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Wanted(event.value.strip()))

    def action_leave(self) -> None:
        """Leave the filter as it was."""
        self.close()
        _ = self.screen.focus_next("VirtualTable")

    def _slash(self, _: int) -> Strip:
        return Strip([Segment(" / ", self._desk.palette["accent"])])

    def _draw(self, width: int) -> Strip:
        palette = self._desk.palette
        told = safe(self._told())
        room = max(0, width - cell_len(told) - 4)
        parts = [
            Segment(" /", palette["accent" if self.text else "dim"]),
            Segment(fit(f" {safe(self.text)}", room), palette[""]),
            Segment(f" {told} ", palette["dim"]),
        ]
        return Strip(parts).adjust_cell_length(width)
