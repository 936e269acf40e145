"""Decides when an actor polls the database for waiting clients; idle without clients."""

from typing import Final

import trio

from cortex.domain.poll_rate import PollRate

GATHER_S: Final = 0.01
"""From the first reason to the poll, to gather others that come at the same time."""


class Poller:
    """When one actor polls: soon after a reason, otherwise at its rate."""

    def __init__(self) -> None:
        self.pace = PollRate()
        self._somebody = trio.Event()
        self._reason = trio.Event()

    def wanted(self) -> None:
        """A client has come: poll soon for it."""
        self._somebody.set()
        self._reason.set()

    def unwanted(self) -> None:
        self._somebody = trio.Event()

    def hint(self) -> None:
        self._reason.set()

    async def turn(self) -> None:
        """Wait until the next poll is due; by then all clients may have gone."""
        await self._somebody.wait()
        with trio.move_on_at(max(self.pace.due, trio.current_time() + GATHER_S)):
            await self._reason.wait()
            await trio.sleep(GATHER_S)
            await trio.sleep_until(self.pace.soonest)

    def began(self) -> bool:
        """Begin a poll: take the reason for it, and return whether there was one."""
        is_news, self._reason = self._reason.is_set(), trio.Event()
        return is_news

    def ended(self, began_at: float, *, found: bool) -> None:
        """A poll that began at this instant of trio's clock is over; `found`: there was news."""
        self.pace.polled(began_at, found=found)
