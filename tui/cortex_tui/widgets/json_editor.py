"""A field in which people edit JSON; it takes the place of what is edited."""

from typing import Final

from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea

from cortex_tui.desk import Desk
from cortex_tui.widgets.lines import Line

TAKE: Final = ("ctrl+s", "ctrl+d")
LEAVE: Final = "escape"
KEYS: Final = (
    ("ctrl+s", "takes them, then asks"),
    ("esc", "leaves them as they are"),
    ("f7", "selects all"),
)
"""What the footer says of the editor."""


class _Area(TextArea):
    """Leaves the keys of the editor to the editor."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key in (*TAKE, LEAVE):
            event.prevent_default()


class JsonEditor(Vertical):
    """Hidden until `edit`."""

    DEFAULT_CSS = """
    JsonEditor { display: none; height: 1fr; }
    JsonEditor _Area { height: 1fr; border: none; padding: 0; }
    JsonEditor _Area:focus { border: none; }
    """

    class Taken(Message):
        """This is how it shall be."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """Nothing shall change."""

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self._area = _Area(tab_behavior="indent", show_line_numbers=False)
        self._area.cursor_blink = False  # nothing blinks

    def compose(self) -> ComposeResult:
        yield Line(self._desk, self._told)
        yield self._area

    def edit(self, text: str) -> None:
        """Let a text be edited; it holds no character that nobody sees."""
        self._area.load_text(text)
        self.screen.set_focus(self._area)

    def on_key(self, event: events.Key) -> None:
        if event.key in TAKE:
            self.post_message(self.Taken(self._area.text))
        elif event.key == LEAVE:
            self.post_message(self.Left())
        else:
            return
        event.stop()
        event.prevent_default()

    def _told(self, width: int) -> Strip:  # noqa: ARG002 -- it is short
        told = " edit the arguments: to take them decides nothing yet"
        return Strip([Segment(told, self._desk.palette["accent"])])
