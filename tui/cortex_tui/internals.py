"""What we use of Textual that it does not promise: all of it here, and its version is pinned."""

from typing import Any

from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingsMap
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.message import Message
from textual.widgets import Input


class Palette(CommandPalette):
    """Textual's command palette; a second Enter while it closes would close it twice and crash."""

    _is_closing = False

    def dismiss(self, result: None = None) -> AwaitComplete:
        if self._is_closing:
            return AwaitComplete()
        self._is_closing = True
        return super().dismiss(result)

    async def _dispatch_message(self, message: Message) -> None:
        if not (self._is_closing and isinstance(message, Input.Submitted)):
            await super()._dispatch_message(message)


def bind(node: DOMNode, bindings: list[Binding]) -> None:
    """Give one screen the bindings of its own, before those of its class."""
    ours = BindingsMap(bindings)
    node._bindings = BindingsMap.from_keys(  # noqa: SLF001
        {**node._bindings.key_to_bindings, **ours.key_to_bindings}  # noqa: SLF001
    )


def forget_no_color(app: App[Any]) -> None:
    """Undo what Textual does about NO_COLOR: it would still paint grey RGB; see `palette`.

    And its filter for ANSI colours, a fifth of what painting costs: there is nothing to filter, as
    our palettes name RGB colours, or leave all to the terminal.
    """
    app.no_color = False
    app._filters = []  # noqa: SLF001
