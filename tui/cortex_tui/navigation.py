"""Which screens are shown: the base screens, those opened on top, and the history of both."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from textual.app import App
from textual.screen import Screen

from cortex_tui import internals
from cortex_tui.model.history import History, Place
from cortex_tui.screens.approvals import ApprovalsScreen
from cortex_tui.screens.frame import Frame
from cortex_tui.screens.help import HelpScreen

OPENED_MAX: Final = 20
"""Screens on top of each other; each keeps its content."""


class Navigation:
    """Shows and opens screens by name; `frame` is the one in front."""

    def __init__(self, app: App[Any], *, make: Callable[..., Frame]) -> None:
        """`make` creates the screen of a name that opens on top, with its arguments."""
        self._app, self._make = app, make
        self._history = History()
        self._left_for_inbox: Place | None = None
        """The place before a key led to the inbox: `back` returns to it."""
        self._arriving: Awaitable[object] | None = None
        """A screen that was opened and may not be mounted yet."""

    @property
    def frame(self) -> Frame | None:
        """The front screen below a palette; None before there is one."""
        frames = self._frames()
        return frames[-1] if frames else None

    async def show(self, name: str) -> None:
        """Show a base screen as it was left; if it has screens on top, close those."""
        self._left_for_inbox = None
        if name == self._app.current_mode:
            await self._close_opened()
        else:
            await self._app.switch_mode(name)

    def open(self, name: str, *about: object) -> None:
        """Open a screen on top of the current one, unless too many are open."""
        frame = self.frame
        if frame is not None and len(internals.screens(self._app)) > OPENED_MAX:
            frame.strip.show(f"{OPENED_MAX} screens are open: close one with esc", "warn")
            return
        opened = self._make(name, *about)
        opened.opened = (name, about)
        self.push(opened)

    def push(self, screen: Screen[Any]) -> None:
        """Put a screen on top; `settle` waits until it is mounted."""
        self._arriving = self._app.push_screen(screen)

    async def settle(self) -> None:
        """Wait for a screen that is being opened, so that it gets the next key."""
        arriving, self._arriving = self._arriving, None
        if arriving is not None:
            await arriving
            internals.focus_line(self._app.screen)

    async def back(self) -> None:
        """Close the top screen, or return to the place from which a key led to the inbox."""
        left, is_inbox = self._left_for_inbox, self._app.current_mode == ApprovalsScreen.NAME
        if len(self._app.screen_stack) > 1:
            await self._app.pop_screen()
        elif left is not None and is_inbox:
            self._left_for_inbox = None
            await self._go_to(left)

    async def go(self, by: int) -> bool:
        """Go back or forward in the history; return whether there is such a place."""
        place = self._history.go(by)
        if place is not None:
            await self._go_to(place)
        return place is not None

    def visit(self) -> None:
        """Record the current place in the history, except the help."""
        frame = self.frame
        if frame is not None and not isinstance(frame, HelpScreen):
            self._history.visit(self._place())

    async def go_most_urgent(self) -> None:
        """Go to the request that expires first."""
        (await self._inbox()).controller.go_first()

    def seek(self, approval_id: UUID) -> None:
        """Go to a request for approval."""

        async def go() -> None:
            (await self._inbox()).controller.go_to(approval_id)

        self._app.call_later(go)

    async def _inbox(self) -> ApprovalsScreen:
        """Show the inbox, closing the screens on top of it."""
        if not isinstance(self.frame, ApprovalsScreen):
            self._left_for_inbox = self._place()
        await self._app.switch_mode(ApprovalsScreen.NAME)
        await self._close_opened()
        inbox = self._app.screen
        if not isinstance(inbox, ApprovalsScreen):
            raise TypeError(f"{inbox!r} stands where the inbox should")
        return inbox

    async def _close_opened(self) -> None:
        while len(self._app.screen_stack) > 1:
            await self._app.pop_screen()

    async def _go_to(self, place: Place) -> None:
        await self._app.switch_mode(place.mode)
        opened = self._place().opened
        common = 0
        while common < min(len(opened), len(place.opened)) and (
            opened[common] == place.opened[common]
        ):
            common += 1
        for _ in opened[common:]:
            await self._app.pop_screen()
        for name, about in place.opened[common:]:
            self.open(name, *about)

    def _place(self) -> Place:
        opened = (frame.opened for frame in self._frames() if frame.opened is not None)
        return Place(self._app.current_mode, tuple(opened))

    def _frames(self) -> list[Frame]:
        return [each for each in internals.screens(self._app) if isinstance(each, Frame)]
