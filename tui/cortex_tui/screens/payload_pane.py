"""The payload of a failed job while the operator edits it, then what differs, above the question.

It stands in the place of the list of dead letters; nothing is retried before the question.
"""

from collections.abc import Callable
from typing import Final

from textual.containers import Vertical
from textual.widget import Widget

from cortex.domain.dead_letter import DeadLetter, PayloadEdit
from cortex.view.arguments import visible_json
from cortex.view.cells import Cell
from cortex_tui.app_context import AppContext
from cortex_tui.render.approval_page import diff
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.json_editor import JsonEditor
from cortex_tui.widgets.page import Page

TITLE: Final = "the payload of the failed job, and yours"


class PayloadPane(Vertical):
    """Hidden until `edit`."""

    DEFAULT_CSS = """
    PayloadPane { display: none; height: 1fr; }
    PayloadPane.-editing, PayloadPane.-differing { display: block; }
    PayloadPane.-editing Page { display: none; }
    PayloadPane.-editing JsonEditor { display: block; }
    """

    def __init__(self, context: AppContext, frame: Frame, *, focus: Callable[[], Widget]) -> None:
        """`focus` returns the widget that is hidden meanwhile, and then gets the focus."""
        self.page = Page(context, head=lambda: (Cell(TITLE, "bold"), Cell("")))
        self.editor = JsonEditor(context)
        super().__init__(self.page, self.editor)
        self._frame, self._focus = frame, focus
        self._edit: PayloadEdit | None = None
        self.letter: DeadLetter | None = None
        """The one whose payload is edited."""

    @property
    def is_editing(self) -> bool:
        """Whether the payload is open in the editor."""
        return self.has_class("-editing")

    def edit(self, letter: DeadLetter, payload: object) -> None:
        """Open a payload in the editor."""
        self.letter = letter
        self._focus().display = False
        self.add_class("-editing")
        self.editor.edit(visible_json(payload))
        self._frame.repaint()

    def compare(self, edit: PayloadEdit) -> None:
        """Show what differs in place of the editor."""
        self._edit = edit
        self.remove_class("-editing")
        self.add_class("-differing")
        self._frame.set_focus(None)
        self.lay_out(is_other=True)
        self._frame.repaint()

    def lay_out(self, *, is_other: bool) -> None:
        """Make the lines anew for the width; `is_other`: start at the first one."""
        if self._edit is not None:
            self.page.show(tuple(diff(self._edit.changes, self.page.room)), is_other=is_other)

    def close(self) -> None:
        """Show the list again; the text is lost."""
        if self.letter is None:
            return
        self.letter = self._edit = None
        self.remove_class("-editing", "-differing")
        table = self._focus()
        table.display = True
        self._frame.set_focus(table)
        self._frame.repaint()
