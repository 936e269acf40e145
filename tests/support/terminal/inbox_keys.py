"""Keys in the inbox, each after the silence that it needs to count."""

from typing import Final

from tests.support.terminal.tui import Seat

QUIET_S: Final = 0.5
"""A little more than the silence."""


async def enter(seat: Seat) -> None:
    """Go to the inbox, and let everything be read and the silence pass."""
    await seat.press("A")
    await seat.pass_time(2)


async def keys(seat: Seat, *each: str) -> None:
    """Press keys with a silence before each of them."""
    for key in each:
        await seat.pass_time(QUIET_S)
        await seat.press(key)
