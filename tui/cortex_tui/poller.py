"""Polls the database: one statement at a time, at most four a second.

Owns: the pace. Reads: what the front screen asks for, and once a second the head of the screen,
unless it came with that: a separate statement would delay the poll that shows a change.
On failure: the link shows it; the screen keeps its content, and the poller retries after a pause.
On stop: `run` is cancelled, and with it a statement in flight.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from cortex.domain.errors import CortexError, OutcomeUnknownError, SchemaError, UnavailableError
from cortex.domain.poll_rate import PollRate
from cortex_tui.clock import Clock
from cortex_tui.link import Link

HEAD_EVERY_S: Final = 1.0
QUIET_S: Final = 0.5
"""Between statements while nothing changes: one a second each for the head and the screen."""
UNWATCHED_S: Final = 1.0
"""Between polls while the terminal is in the background."""

Look = Callable[[], Awaitable[bool | None]]
"""One statement; returns whether it brought news, None if it ran none. Raises `CortexError`s."""


class Poller:
    """Runs alongside the app. `wake` makes it poll soon."""

    def __init__(
        self,
        clock: Clock,
        link: Link,
        *,
        head: Look,
        screen: Look,
        polled: Callable[[CortexError | None, bool], None],
    ) -> None:
        """`polled` is called after each poll.

        Its arguments: an error that is not the link's, if there was one, and whether anything
        visible changed.
        """
        self._clock, self._link = clock, link
        self._head, self._screen, self._polled = head, screen, polled
        self._pace = PollRate(quiet_gap_s=QUIET_S)
        self._wanted = asyncio.Event()
        self._head_at = float("-inf")
        self._was_head = False
        self.is_watched = True
        """The terminal is in front."""

    def wake(self) -> None:
        """Poll as soon as the pace allows, because of an event or a request."""
        self._wanted.set()

    def has_head(self) -> None:
        """Note that the head of the screen is up to date."""
        self._head_at = self._clock.now()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self._look()
            await self._rest()

    async def _look(self) -> None:
        began = self._clock.now()
        is_wanted = self._wanted.is_set()
        # Never the head twice in a row: the screen gets its turn, however slow the pace.
        is_head = began - self._head_at >= HEAD_EVERY_S and not self._was_head
        if not is_head:  # otherwise the wanted poll comes next
            self._wanted.clear()
        self._was_head = is_head
        if is_head:
            self._head_at = began
        refused: CortexError | None = None
        is_news: bool | None = None
        had_trouble = self._link.is_stale(began)
        try:
            is_news = await (self._head if is_head else self._screen)()
        except (UnavailableError, OutcomeUnknownError, SchemaError) as error:
            self._link.failed(error)
        except CortexError as error:
            refused = error
        if is_news is not None:
            now = self._clock.now()
            self._link.answered(now, took_s=now - began)
        self._pace.polled(began, found=bool(is_news) or is_wanted)
        had_trouble |= self._link.error is not None
        self._polled(refused, bool(is_news) or had_trouble or refused is not None)

    async def _rest(self) -> None:
        """Wait until a poll is due, or `wake`."""
        now = self._clock.now()
        if self._link.again_in_s:
            await self._clock.wait(asyncio.Event(), until=now + self._link.again_in_s)
            return
        if not self.is_watched:
            await self._clock.wait(asyncio.Event(), until=now + UNWATCHED_S)
            return
        await self._clock.wait(self._wanted, until=self._pace.due)
        await self._clock.wait(asyncio.Event(), until=self._pace.soonest)
