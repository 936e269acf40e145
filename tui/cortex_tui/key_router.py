"""Passes each key to the text field, the question, or the screen that it was typed for."""

from collections.abc import Awaitable, Callable
from typing import Any

from textual import events
from textual.widgets import Input, TextArea

from cortex_tui import internals
from cortex_tui.navigation import Navigation
from cortex_tui.session import Session


class KeyRouter:
    """Takes the keys of one app, one after the other."""

    def __init__(
        self,
        app: internals.Orderly[Any],
        session: Session,
        navigation: Navigation,
        *,
        focused: Callable[[], None],
        otherwise: Callable[[events.Key], Awaitable[None]],
    ) -> None:
        """`focused`: a key shows that the terminal has the focus. `otherwise`: Textual's way."""
        self._app, self._session, self._navigation = app, session, navigation
        self._focused, self._otherwise = focused, otherwise
        self._keys_since = float("-inf")
        """By the clock of events; keys typed before are dropped unless a text field is open."""

    def drop_typed(self) -> None:
        """Drop all keys typed so far."""
        self._keys_since = internals.event_time()

    async def press(self, event: events.Key) -> None:
        """Handle a key; returns once everything that it started is done."""
        app = self._app
        self._session.key_came_at = self._session.clock.came(internals.waited_s(event))
        await self._navigation.settle()
        if not app.app_focus:  # this terminal reports only the loss of focus
            app.app_focus = True
            self._focused()
        frame = self._navigation.frame
        if frame is not None and app.screen is frame:
            frame.take_keys()
        field = app.focused
        if isinstance(field, Input | TextArea):
            await app.write(event, field)
        elif frame is None or app.screen is not frame:
            await self._otherwise(event)
        elif frame.strip.is_asking:
            frame.strip.press(event)
        elif event.time > self._keys_since and not frame.strip.keeps(event):
            frame.pressed()
            frame.strip.pressed()
            _ = await internals.press(app, event.key)
