"""Looks at the database again and again: one statement at a time, at most four a second.

Owns: the pace. Reads: what the screen in front asks for, and once a second the head of the screen,
unless it came along: a statement for it alone would come between a change and its look.
On failure: the link says so; what is shown stays, and it is tried again after a moment.
On stop: `run` is cancelled; a statement that is on its way is cut off.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from cortex.domain.errors import CortexError, OutcomeUnknownError, SchemaError, UnavailableError
from cortex.domain.poll_rate import PollRate
from cortex_tui.clock import Clock
from cortex_tui.link import Link

HEAD_EVERY_S: Final = 1.0
WHYS_EVERY_S: Final = 5.0
"""What keeps the waiting jobs in sight from running is read again after so long."""
QUIET_S: Final = 0.5
"""Between statements while nothing changes: one a second for the head, one for the screen."""
UNWATCHED_S: Final = 1.0
"""Between looks while the terminal is not in front."""

Look = Callable[[], Awaitable[bool | None]]
"""One statement; whether it brought news, None if there was none to ask. Raises `CortexError`s."""


class Poller:
    """Runs beside the app. `wake` makes it look soon."""

    def __init__(
        self,
        clock: Clock,
        link: Link,
        *,
        head: Look,
        screen: Look,
        told: Callable[[CortexError | None, bool], None],
    ) -> None:
        """`told` is called after each look.

        With the error that the link is not to blame for, if there was one, and whether something
        is to be seen that was not seen before.
        """
        self._clock, self._link = clock, link
        self._head, self._screen, self._told = head, screen, told
        self._pace = PollRate(quiet_gap_s=QUIET_S)
        self._wanted = asyncio.Event()
        self._head_at = float("-inf")
        self._was_head = False
        self.is_watched = True
        """The terminal is in front."""

    def wake(self) -> None:
        """Look as soon as the pace allows it: something happened, or is asked for."""
        self._wanted.set()

    def has_head(self) -> None:
        """Know that the head of the screen is of now."""
        self._head_at = self._clock.now()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._look()
            await self._rest()

    async def _look(self) -> None:
        began = self._clock.now()
        is_wanted = self._wanted.is_set()
        # Never twice in a row: the screen has its turn, however slow the pace.
        is_head = began - self._head_at >= HEAD_EVERY_S and not self._was_head
        if not is_head:  # else what is wanted comes next
            self._wanted.clear()
        self._was_head = is_head
        if is_head:
            self._head_at = began
        refused: CortexError | None = None
        found: bool | None = None
        had_trouble = self._link.is_stale(began)
        try:
            found = await (self._head if is_head else self._screen)()
        except (UnavailableError, OutcomeUnknownError, SchemaError) as error:
            self._link.failed(error)
        except CortexError as error:
            refused = error
        if found is not None:
            now = self._clock.now()
            self._link.answered(now, took_s=now - began)
        self._pace.looked(began, found=bool(found) or is_wanted)
        had_trouble |= self._link.error is not None
        self._told(refused, bool(found) or had_trouble or refused is not None)

    async def _rest(self) -> None:
        """Wait until a look is due, or sooner if it is wanted."""
        now = self._clock.now()
        if self._link.again_in_s:
            await self._clock.wait(asyncio.Event(), until=now + self._link.again_in_s)
            return
        if not self.is_watched:
            await self._clock.wait(asyncio.Event(), until=now + UNWATCHED_S)
            return
        await self._clock.wait(self._wanted, until=self._pace.due)
        await self._clock.wait(asyncio.Event(), until=self._pace.soonest)
