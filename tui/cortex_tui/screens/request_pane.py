"""The request in front, in full; in its place its arguments, while the operator edits them."""

from collections.abc import Callable

from textual import on
from textual.containers import Vertical
from textual.widget import Widget

from cortex.domain.errors import CortexError
from cortex_tui.app_context import AppContext
from cortex_tui.model.approvals_state import ApprovalsState, Subject
from cortex_tui.model.editing import edit_of, text_of
from cortex_tui.render import approval_front
from cortex_tui.screens.frame import Frame
from cortex_tui.widgets.json_editor import JsonEditor
from cortex_tui.widgets.page import Page


class RequestPane(Vertical):
    """Draws the state; an accepted edit goes into it."""

    DEFAULT_CSS = """
    RequestPane.-editing Page { display: none; }
    RequestPane.-editing JsonEditor { display: block; }
    """

    def __init__(
        self,
        context: AppContext,
        state: ApprovalsState,
        frame: Frame,
        *,
        focus: Widget,
        approve: Callable[[], None],
    ) -> None:
        """`focus` gets the focus after an edit. `approve` is called when an edit is shown."""
        self.page = Page(context, head=lambda: approval_front.head(state, context.session.now))
        self._editor = JsonEditor(context)
        super().__init__(self.page, self._editor)
        self._state, self._frame, self._focus, self._approve = state, frame, focus, approve
        self._is_ascii = context.session.is_ascii

    @property
    def is_editing(self) -> bool:
        """Whether the arguments are open in the editor."""
        return self.has_class("-editing")

    def lay_out(self, *, is_other: bool) -> None:
        """Make the lines of the page anew; `is_other`: start at the first one."""
        lines = approval_front.lines(self._state, self.page.room, is_ascii=self._is_ascii)
        self.page.show(lines, is_other=is_other or self._state.subject is None)

    def edit(self, subject: Subject) -> None:
        """Open the arguments in the editor."""
        self.add_class("-editing")
        self._editor.edit(text_of(subject))
        self._frame.repaint()

    def stop_editing(self) -> None:
        """Close the editor, if it is open; the text is lost."""
        if self.is_editing:
            self.remove_class("-editing")
            self._frame.set_focus(self._focus)
            self._frame.repaint()

    @on(JsonEditor.Left)
    def _discard(self) -> None:
        self.stop_editing()
        self._frame.strip.show("the arguments stay as they are", "dim")

    @on(JsonEditor.Taken)
    def _accept(self, event: JsonEditor.Taken) -> None:
        state = self._state
        if state.subject is None:
            return
        try:
            edit = edit_of(state.subject, event.text)
        except CortexError as error:
            self._editor.refuse(error.message)
            return
        self.stop_editing()
        state.edit, state.is_to_approve = edit, edit is not None
        self.lay_out(is_other=True)
        if edit is None:
            self._frame.strip.show("nothing was changed", "dim")

    @on(Page.Resized)
    def _resized(self) -> None:
        if self.page.size.width == 0:  # it is hidden
            return
        self.lay_out(is_other=False)
        if self._state.is_to_approve:
            self._state.is_to_approve = False
            self._approve()
