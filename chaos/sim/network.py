"""The network of one machine to Postgres, and what the seed does to its traffic."""

import asyncio
import random
from enum import Enum

from attrs import define, field, frozen


class Fate(Enum):
    """The fate of one statement."""

    ARRIVES = "arrives"
    LOST = "lost"
    """Swallowed before it arrives: nothing runs, no error is raised."""
    UNANSWERED = "unanswered"
    """It runs and a COMMIT commits; its reply is swallowed."""
    RESET = "reset"
    """The connection breaks before it runs."""
    RESET_AFTER = "reset after"
    """The connection breaks after it ran, before the reply arrived."""


@frozen(kw_only=True)
class Weather:
    """The state of the network until it changes.

    Times are in seconds, the rest are probabilities.
    """

    request_s: tuple[float, float] = (0.0002, 0.002)
    reply_s: tuple[float, float] = (0.0, 0.0)
    lost: float = 0.0
    unanswered: float = 0.0
    reset: float = 0.0
    reset_after: float = 0.0
    unheard: float = 0.0
    """A notification is lost."""
    is_cut: bool = False
    """Nothing passes either way, and no error is raised."""
    is_refused: bool = False
    """New connections are refused."""


FAIR = Weather()


@define
class Network:
    """Random generator and weather of one machine."""

    dice: random.Random
    weather: Weather = field(default=FAIR)
    travelling: int = 0
    """How many messages are in flight and will arrive."""

    async def travel(self, seconds: float) -> None:
        """Be in flight for this long."""
        self.travelling += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self.travelling -= 1

    def fate(self) -> Fate:
        """Draw the fate of a statement that is sent now."""
        weather = self.weather
        if weather.is_cut:
            return Fate.LOST
        if weather is FAIR:
            return Fate.ARRIVES
        drawn = self.dice.random()
        for chance, fate in (
            (weather.lost, Fate.LOST),
            (weather.unanswered, Fate.UNANSWERED),
            (weather.reset, Fate.RESET),
            (weather.reset_after, Fate.RESET_AFTER),
        ):
            if drawn < chance:
                return fate
            drawn -= chance
        return Fate.ARRIVES

    def request_s(self) -> float:
        """Draw the time of its request."""
        return self.dice.uniform(*self.weather.request_s)

    def reply_s(self) -> float:
        """Draw the time of its reply."""
        return self.dice.uniform(*self.weather.reply_s)

    def hint_s(self) -> float | None:
        """Draw the time of a notification; None: it is lost."""
        if self.weather.is_cut or self.dice.random() < self.weather.unheard:
            return None
        return self.dice.uniform(0.0005, 0.003)
