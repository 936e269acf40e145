"""Keeps the front screen up to date: polls, the title and the bell, and a redraw each second."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import attrs
from textual.app import App

from cortex.domain.errors import CortexError
from cortex.store.screen_head import Head
from cortex_tui import internals
from cortex_tui.app_context import AppContext
from cortex_tui.desktop import Notify
from cortex_tui.model.news import News, headline
from cortex_tui.navigation import Navigation
from cortex_tui.poller import Poller
from cortex_tui.render.words import failed
from cortex_tui.terminal import Terminal

TICK_S: Final = 1.0
"""Countdowns and ages are redrawn each second."""
TITLE: Final = "cortex"


class Refresher:
    """Runs alongside the app from `start` on; `poller` reads for it."""

    def __init__(
        self,
        app: App[Any],
        context: AppContext,
        navigation: Navigation,
        *,
        tick: Callable[[], None],
    ) -> None:
        """`tick` is called each second, before the redraw."""
        self._app, self._context, self._navigation, self._tick = app, context, navigation, tick
        self._news = News()
        self._is_turn_of_news = False
        session = context.session
        self.poller = Poller(
            session.clock,
            session.link,
            head=self.read_head,
            screen=self._read_screen,
            polled=self._polled,
        )

    def start(self) -> None:
        """Poll and redraw until the app ends."""
        self._entitle(TITLE)
        for work in (self.poller.run(), self._ticking()):
            self._app.run_worker(work, exit_on_error=True)

    def resume(self) -> None:
        """Redraw everything, because the terminal showed something else meanwhile."""
        session = self._context.session
        session.link.resumed(session.clock.now())
        if (frame := self._navigation.frame) is not None:
            frame.watched()
        self._app.refresh(layout=True)

    def focus(self) -> None:
        """Poll at the full pace again, because the terminal came to the front."""
        self.poller.is_watched = True
        self.poller.wake()
        if (frame := self._navigation.frame) is not None:
            frame.watched()

    def blur(self) -> None:
        """Poll less often while the terminal is in the background."""
        self.poller.is_watched = False
        self._news.forget()
        self._is_turn_of_news = False  # what comes before the first reading calls nobody

    def repaint(self) -> None:
        """Redraw what changes by itself on the front screen."""
        frame = self._navigation.frame
        if frame is not None and frame.is_mounted:
            frame.repaint()

    async def read_head(self) -> bool:
        """Read the head of the screen; return whether it shows anything different."""
        return self.take_head(await self._context.backend.head())

    def take_head(self, head: Head) -> bool:
        """Store the new head; return whether it shows anything different."""
        context, session = self._context, self._context.session
        self.poller.has_head()
        session.set_time(head.now)
        before, context.head = context.head, head
        if before is None or before.waits != head.waits:
            self._entitle(f"({head.waits}) {TITLE}" if head.waits else TITLE)
        mono = session.clock.now()
        if context.bell.rings(head.approvals, head.first_expiry, at=head.now, now=mono):
            self._app.bell()
        return before is None or attrs.evolve(before, now=head.now) != head

    async def _read_screen(self) -> bool | None:
        self._is_turn_of_news = not self._is_turn_of_news
        if self._is_turn_of_news and self._wants_news:
            return await self._read_news()
        frame = self._navigation.frame
        return None if frame is None else await frame.look()

    @property
    def _wants_news(self) -> bool:
        session = self._context.session
        return session.notify is not Notify.OFF and not self.poller.is_watched

    async def _read_news(self) -> bool:
        """Read what needs a person, and call the operator if some of it is new."""
        attention = await self._context.backend.pulse.attention()
        head, session = self._context.head, self._context.session
        items = self._news.take(attention, request_count=0 if head is None else head.approvals)
        is_wanted = self._wants_news and not self._context.bell.is_muted(session.clock.now())
        if not items or not is_wanted:
            return False
        driver, is_shown = internals.driver(self._app), False
        if session.notify is Notify.OSC and isinstance(driver, Terminal):
            is_shown = driver.notify(headline(items))
        if not is_shown and not all(item.is_request for item in items):
            self._app.bell()
        return False

    def _polled(self, error: CortexError | None, is_news: bool) -> None:  # noqa: FBT001 -- the poller's
        frame = self._navigation.frame
        if error is not None and frame is not None:
            frame.strip.show(f"✗ {failed(error)}", "fail")
        if is_news or (frame is not None and frame.has_other):
            self.repaint()

    def _entitle(self, title: str) -> None:
        """Set the window title; Textual does not pass it on."""
        self._app.title = title
        driver = internals.driver(self._app)
        if isinstance(driver, Terminal):
            driver.entitle(title)

    async def _ticking(self) -> None:
        clock = self._context.session.clock
        while True:
            await clock.wait(asyncio.Event(), until=clock.now() + TICK_S)
            self._tick()
            self.repaint()
