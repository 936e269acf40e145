"""The way of one machine to Postgres, and what the seed does to what travels on it."""

import asyncio
import random
from enum import Enum

from attrs import define, field, frozen


class Fate(Enum):
    """What becomes of one statement."""

    ARRIVES = "arrives"
    LOST = "lost"
    """Swallowed on the way there: nothing is run, nobody is told."""
    UNANSWERED = "unanswered"
    """Run, a COMMIT is a commit; its reply is swallowed."""
    RESET = "reset"
    """The connection breaks before it is run."""
    RESET_AFTER = "reset after"
    """The connection breaks after it was run, before the reply came."""


@frozen(kw_only=True)
class Weather:
    """How the way is, until it changes. Times are in seconds, the rest are chances."""

    request_s: tuple[float, float] = (0.0002, 0.002)
    reply_s: tuple[float, float] = (0.0, 0.0)
    lost: float = 0.0
    unanswered: float = 0.0
    reset: float = 0.0
    reset_after: float = 0.0
    unheard: float = 0.0
    """A notification is lost."""
    is_cut: bool = False
    """Nothing passes either way, and nobody is told."""
    is_refused: bool = False
    """No new connection is let in."""


FAIR = Weather()


@define
class Network:
    """Dice and weather of one machine."""

    dice: random.Random
    weather: Weather = field(default=FAIR)
    travelling: int = 0
    """How much is on its way and will arrive."""

    async def travel(self, seconds: float) -> None:
        """Be on the way for so long."""
        self.travelling += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self.travelling -= 1

    def fate(self) -> Fate:
        """Draw what becomes of a statement that is sent now."""
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
        """Draw how long it travels there."""
        return self.dice.uniform(*self.weather.request_s)

    def reply_s(self) -> float:
        """Draw how long its reply travels."""
        return self.dice.uniform(*self.weather.reply_s)

    def hint_s(self) -> float | None:
        """Draw how long a notification travels; None: it is lost."""
        if self.weather.is_cut or self.dice.random() < self.weather.unheard:
            return None
        return self.dice.uniform(0.0005, 0.003)
