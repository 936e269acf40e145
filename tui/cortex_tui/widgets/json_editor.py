"""A field for editing JSON, in the place of the page that shows it."""

from typing import Final

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea

from cortex.domain.safe import safe
from cortex_tui.app_context import AppContext
from cortex_tui.render.approval_page import wrapped
from cortex_tui.widgets.drawn import Drawn

TAKE: Final = ("ctrl+s", "ctrl+d")
LEAVE: Final = "escape"
WRONG_LINES_MAX: Final = 8
KEYS: Final = (
    ("ctrl+s", "review changes"),
    ("esc", "discard changes"),
    ("f7", "select all"),
)
"""The footer of the editor."""


class _Area(TextArea):
    """Passes the keys of the editor on to the editor."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key in (*TAKE, LEAVE):
            event.prevent_default()


class _Heading(Drawn):
    """The editor's heading; below it the error in the text, while there is one."""

    WHAT = "Editing a copy: nothing is decided yet"

    def __init__(self, context: AppContext) -> None:
        super().__init__(context)
        self._wrong = ""

    def show_error(self, wrong: str) -> None:
        """Show an error; "" clears it."""
        self._wrong = wrong
        self._make_room(self.size.width)

    def on_resize(self, event: events.Resize) -> None:
        self._make_room(event.size.width)

    def _make_room(self, width: int) -> None:
        self.styles.height = 1 + len(self._lines(width))
        self.refresh()

    def _lines(self, width: int) -> list[str]:
        if not self._wrong or not width:
            return []
        return wrapped(f"✗ {safe(self._wrong)}", max(1, width - 2))[:WRONG_LINES_MAX]

    def draw(self, y: int, width: int) -> Strip:
        lines = [self.WHAT, *self._lines(width)]
        line = lines[y] if y < len(lines) else ""
        return Strip([Segment(f" {line}", self.context.palette["fail" if y else "accent"])])


class JsonEditor(Vertical):
    """Hidden until `edit`."""

    DEFAULT_CSS = """
    JsonEditor { display: none; height: 1fr; }
    JsonEditor _Area { height: 1fr; border: none; padding: 0; }
    JsonEditor _Area:focus { border: none; }
    """

    class Taken(Message):
        """The operator accepted the text."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """The operator cancelled the edit."""

    def __init__(self, context: AppContext) -> None:
        super().__init__()
        self._heading = _Heading(context)
        self._area = _Area(tab_behavior="indent", show_line_numbers=False)
        self._area.cursor_blink = False  # nothing blinks

    def compose(self) -> ComposeResult:
        yield self._heading
        yield self._area

    def edit(self, text: str) -> None:
        """Start editing a text without invisible characters."""
        self._heading.show_error("")
        self._area.load_text(text)
        self.screen.set_focus(self._area)

    def refuse(self, why: str) -> None:
        """Show why the text is invalid; the text stays."""
        self._heading.show_error(why)

    def on_key(self, event: events.Key) -> None:
        if event.key in TAKE:
            self.post_message(self.Taken(self._area.text))
        elif event.key == LEAVE:
            self.post_message(self.Left())
        else:
            return
        event.stop()
        event.prevent_default()
