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
    """`/ status:retry …` at the left, the count at the right. Enter posts `Wanted`."""

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
        """The operator entered this filter; the screen accepts it with `close`, or says why not."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, context: AppContext, *, status: Callable[[], str]) -> None:
        """`status` returns the text at the right."""
        super().__init__()
        self.context = context
        self._status = status
        self.text = ""
        self._input = Input(compact=True, max_length=TEXT_MAX, select_on_focus=False)
        self._input.cursor_blink = False  # nothing blinks
        self._input.can_focus = (
            False  # otherwise it gets all keys, unseen, where the list is hidden
        )

    def compose(self) -> ComposeResult:
        yield Line(self.context, self._slash, id="slash")
        yield Line(self.context, self._draw, id="filter")
        yield self._input

    def edit(self) -> None:
        self.add_class("-editing")
        self._input.can_focus = True
        self._input.value = self.text
        self._input.cursor_position = len(self.text)
        self.screen.set_focus(self._input)

    def close(self, text: str | None = None) -> None:
        """Stop editing; a text replaces the filter."""
        if text is not None:
            self.text = text
        self.remove_class("-editing")
        self._input.can_focus = False
        self.redraw()

    def redraw(self) -> None:
        """Redraw the text at the right."""
        self.query_one("#filter", Line).redraw()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Wanted(event.value.strip()))

    def action_leave(self) -> None:
        """Stop editing and keep the former filter."""
        self.close()
        _ = self.screen.focus_next("VirtualTable")

    def _slash(self, _: int) -> Strip:
        return Strip([Segment(" / ", self.context.palette["accent"])])

    def _draw(self, width: int) -> Strip:
        palette = self.context.palette
        status = safe(self._status())
        room = max(0, width - cell_len(status) - 4)
        parts = [
            Segment(" /", palette["accent" if self.text else "dim"]),
            Segment(fit(f" {safe(self.text)}", room), palette[""]),
            Segment(f" {status} ", palette["dim"]),
        ]
        return Strip(parts).adjust_cell_length(width)
