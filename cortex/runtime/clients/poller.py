"""The turns of an actor that looks at the database for whoever waits: none while nobody does."""

from typing import Final

import trio

from cortex.domain.poll_rate import PollRate

GATHER_S: Final = 0.01
"""From the first reason to look to the look, for others that come at the same time."""


class Poller:
    """When one actor looks: soon after a reason, else when its pace says so."""

    def __init__(self) -> None:
        self.pace = PollRate()
        self._somebody = trio.Event()
        self._reason = trio.Event()

    def wanted(self) -> None:
        """Somebody has come, and is to be looked for soon."""
        self._somebody.set()
        self._reason.set()

    def unwanted(self) -> None:
        """The last one has gone."""
        self._somebody = trio.Event()

    def hint(self) -> None:
        """There may be news."""
        self._reason.set()

    async def turn(self) -> None:
        """Wait until it is time to look; by then all may have gone."""
        await self._somebody.wait()
        with trio.move_on_at(max(self.pace.due, trio.current_time() + GATHER_S)):
            await self._reason.wait()
            await trio.sleep(GATHER_S)
            await trio.sleep_until(self.pace.soonest)

    def began(self) -> bool:
        """A look begins: take the reason, and tell whether there was one."""
        is_news, self._reason = self._reason.is_set(), trio.Event()
        return is_news

    def ended(self, began_at: float, *, found: bool) -> None:
        """A look that began at this instant of trio's clock is over; `found`: there was news."""
        self.pace.looked(began_at, found=found)
