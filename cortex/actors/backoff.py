"""How one loop sits an outage out: it tells the first failure, then pauses ever longer, by chance.

All loops of all pods meet the same outage and its end. What is wrong, and for how long, the pod
tells once for all of them: see `database_watch`. A database that lacks something is asked seldom.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

import trio

from cortex.domain.errors import CortexError, UnavailableError

FIRST_S: Final = 0.1
MOST_S: Final = 5.0
SHORTAGE_FIRST_S: Final = 1.0
SHORTAGE_MOST_S: Final = 15.0
"""A full disk is not emptied in seconds; once it is, nobody waits longer than this."""
LEAST: Final = 0.1
"""Part of each pause that is not left to chance."""

T = TypeVar("T")


class Log(Protocol):
    """What is used of a logger."""

    def warning(self, event: str, **context: object) -> object: ...
    def debug(self, event: str, **context: object) -> object: ...


class Outage:
    """One loop's failures in a row."""

    def __init__(
        self, *, rng: random.Random, first_s: float = FIRST_S, most_s: float = MOST_S
    ) -> None:
        """The longest pause is `first_s` at first, then doubles up to `most_s`."""
        self._rng = rng
        self._first_s = first_s
        self._most_s = most_s
        self._count = 0

    @property
    def is_on(self) -> bool:
        """The last try has failed."""
        return self._count > 0

    def over(self) -> None:
        """A try has succeeded."""
        self._count = 0

    def failed(self, log: Log, told: str, error: CortexError, **context: object) -> float:
        """A try has failed: return for how many seconds to pause."""
        tell = log.debug if self.is_on else log.warning
        tell(told, error=error.message, **context)
        first_s, most_s = self._first_s, self._most_s
        if is_shortage(error):
            first_s, most_s = max(first_s, SHORTAGE_FIRST_S), max(most_s, SHORTAGE_MOST_S)
        longest_s = min(most_s, first_s * 2.0 ** min(self._count, 32))
        self._count += 1
        return longest_s * self._rng.uniform(LEAST, 1.0)

    @asynccontextmanager
    async def sat_out(self, log: Log, told: str) -> AsyncGenerator[None, None]:
        """Around one try: when the database does not serve it, tell, pause, and go on after it."""
        try:
            yield
        except UnavailableError as error:
            await trio.sleep(self.failed(log, told, error))
        else:
            self.over()


def is_shortage(error: CortexError) -> bool:
    """Tell whether the database lacks disk, memory or connections."""
    return (
        isinstance(error, UnavailableError)
        and error.trouble is not None
        and error.trouble.is_shortage
    )


async def until_answered(
    call: Callable[[], Awaitable[T]], *, log: Log, told: str, rng: random.Random
) -> T:
    """Ask until there is an answer: an outage costs a job time, but no attempt.

    Raises what `call` raises, but for `UnavailableError`.
    """
    outage = Outage(rng=rng)
    while True:
        async with outage.sat_out(log, told):
            return await call()
