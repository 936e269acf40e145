"""Everything that relies on Textual's internals; the version of Textual is pinned for it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from rich.console import RenderableType
from textual import _time, events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingsMap
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.driver import Driver
from textual.keys import _character_to_key
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

Result = TypeVar("Result")

FAULTS_MAX: Final = 10
"""One fault causes others while everything closes."""
TAKEN_S: Final = 1.0
"""The longest wait for a key at each widget that it passes."""


Parser = XTermParser
"""Turns a terminal's input into events."""


class Palette(CommandPalette):
    """Textual's command palette; ignores a second Enter while it closes, which would crash it."""

    _is_closing = False
    left: Callable[[], object] = staticmethod(lambda: None)
    """Called when it is about to close, before the chosen command runs."""

    def on_mount(self) -> None:
        for field in self.query(Input):  # there is none when the palette closes at once
            field.cursor_blink = False  # nothing blinks

    def dismiss(self, result: None = None) -> AwaitComplete:
        if self._is_closing:
            return AwaitComplete()
        self._is_closing = True
        self.left()
        return super().dismiss(result)

    async def _dispatch_message(self, message: Message) -> None:
        if not (self._is_closing and isinstance(message, Input.Submitted)):
            await super()._dispatch_message(message)


class Quiet(App[Result]):
    """Keeps the error that ended it; Textual would print it with the values of all variables."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.faults: list[Exception] = []
        """The first faults, in order."""

    def _handle_exception(self, error: Exception) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(error)
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()

    def panic(self, *renderables: RenderableType) -> None:  # noqa: ARG002 -- what Textual would print
        self._close_messages_no_wait()


class Orderly(Quiet[Result]):
    """Completes the work of each key typed into a field before the next key.

    In Textual a letter overtakes the editing key before it: that key returns to the app behind all
    letters typed meanwhile. Messages that a field sends to its screen, as on enter, are not
    awaited: text pasted behind enter still goes into the field.
    """

    _written: events.Key | None = None
    _is_back = False

    async def write(self, event: events.Key, field: Widget) -> None:
        """Pass a key to the focused field, and run its binding if the field ignores it."""
        if await self._check_bindings(event.key, priority=True):
            return
        self._written, self._is_back = event, False
        try:
            field._forward_event(event)  # noqa: SLF001
            for node in field.ancestors_with_self:
                if node is self or not await _has_taken(node):
                    break
        finally:
            self._written = None
        if self._is_back:
            await self._check_bindings(event.key)

    def post_message(self, message: Message) -> bool:
        if message is not self._written:
            return super().post_message(message)
        self._is_back = True  # no widget on the way handled it
        return True


async def _has_taken(node: DOMNode) -> bool:
    """Wait until a widget has handled its queued messages; return whether it has."""
    done = asyncio.Event()
    if not node.call_later(done.set):
        return False
    try:
        async with asyncio.timeout(TAKEN_S):
            await done.wait()
    except TimeoutError:
        return False
    return True


def bind(node: DOMNode, bindings: list[Binding]) -> None:
    """Add bindings to one screen that take precedence over those of its class."""
    ours = BindingsMap(bindings)
    node._bindings = BindingsMap.from_keys(  # noqa: SLF001
        {**node._bindings.key_to_bindings, **ours.key_to_bindings}  # noqa: SLF001
    )


def key_of(text: str) -> str:
    """Return the name under which Textual binds a key: for a character, the character's name."""
    return _character_to_key(text) if len(text) == 1 else text


def event_time() -> float:
    """Return the time by the clock that stamps events, such as the arrival of a key."""
    return _time.get_time()


def waited_s(event: Message) -> float:
    """Return how long an event waited before it was handled."""
    return max(0.0, event_time() - event.time)


async def press(app: App[Any], key: str) -> bool:
    """Press a key on the front screen; return whether it does anything."""
    for has_priority in (True, False):
        if await app._check_bindings(key, has_priority):  # noqa: SLF001
            return True
    return False


def driver(app: App[Any]) -> Driver | None:
    """Return the driver of the app's terminal; None before there is one."""
    return app._driver  # noqa: SLF001


def screens(app: App[Any]) -> Sequence[Screen[Any]]:
    """Return the shown screens, the front one last; none before the app has one."""
    has_one = app.is_running and app._screen_stacks.get(app.DEFAULT_MODE)  # noqa: SLF001
    return app.screen_stack if has_one else ()


def focused(screen: Screen[Any]) -> Widget | None:
    """Return the focused widget, or the one that regains focus with the terminal."""
    return screen.focused or screen.app._last_focused_on_app_blur  # noqa: SLF001


def focus_line(screen: Screen[Any]) -> None:
    """Focus the input of a palette that just opened, before Textual does."""
    if isinstance(screen, Palette):
        screen.set_focus(screen.query_one(Input))


def forget_no_color(app: App[Any]) -> None:
    """Undo Textual's handling of NO_COLOR, which still paints grey RGB; see `palette`.

    Also remove its filter for ANSI colours, a fifth of the cost of painting: the palettes use RGB
    colours only, or leave all colours to the terminal.
    """
    app.no_color = False
    app._filters = []  # noqa: SLF001
