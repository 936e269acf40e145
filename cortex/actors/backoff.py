"""Backoff of a loop while the database is unavailable: logs the first failure, then pauses longer.

All loops of all pods meet the same outage and its end, so nearly all of each pause is random. The
pod reports the trouble and its duration once for all loops: see `database_watch`. A database that
lacks disk, memory or connections is tried seldom.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeVar

import trio

from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError, UnavailableError

OUTAGE: Final = Backoff(base_s=0.1, cap_s=5.0)
SHORTAGE: Final = Backoff(base_s=1.0, cap_s=15.0)
"""A full disk is not emptied in seconds; once it is, no loop waits longer than this."""
LEAST: Final = 0.1
"""The part of each pause that is not random."""

T = TypeVar("T")


class BackoffLogger(Protocol):
    """The part of a logger that a backoff uses."""

    def warning(self, event: str, **context: object) -> object: ...
    def debug(self, event: str, **context: object) -> object: ...


class LoopBackoff:
    """Counts one loop's consecutive failures and returns how long to pause after each."""

    def __init__(self, *, rng: random.Random, backoff: Backoff = OUTAGE) -> None:
        self._rng = rng
        self._usual = backoff
        self._in_shortage = Backoff(
            base_s=max(backoff.base_s, SHORTAGE.base_s), cap_s=max(backoff.cap_s, SHORTAGE.cap_s)
        )
        self._failures = 0

    def succeeded(self) -> None:
        """The next failure is the first one again."""
        self._failures = 0

    def failed(
        self, log: BackoffLogger, event: str, error: CortexError, **context: object
    ) -> float:
        """Log a failure, the first one as a warning; return for how many seconds to pause."""
        write = log.debug if self._failures else log.warning
        write(event, error=error.message, **context)
        self._failures += 1
        backoff = self._in_shortage if is_shortage(error) else self._usual
        return backoff.pause_s(self._failures, rng=self._rng, least=LEAST)

    @asynccontextmanager
    async def pause_if_unavailable(
        self, log: BackoffLogger, event: str
    ) -> AsyncGenerator[None, None]:
        """Around one try: absorb `UnavailableError`, log it, and pause before going on."""
        try:
            yield
        except UnavailableError as error:
            await trio.sleep(self.failed(log, event, error))
        else:
            self.succeeded()


def is_shortage(error: CortexError) -> bool:
    """Return whether the database lacks disk, memory or connections."""
    return (
        isinstance(error, UnavailableError)
        and error.trouble is not None
        and error.trouble.is_shortage
    )


async def retry_while_unavailable(
    call: Callable[[], Awaitable[T]], *, log: BackoffLogger, event: str, rng: random.Random
) -> T:
    """Call until the database answers: an outage costs a job time, but no attempt.

    Raises what `call` raises, except `UnavailableError`.
    """
    backoff = LoopBackoff(rng=rng)
    while True:
        async with backoff.pause_if_unavailable(log, event):
            return await call()


async def retry_while_locked(
    call: Callable[[], Awaitable[T]], *, log: BackoffLogger, event: str, rng: random.Random
) -> T:
    """Call until no other session holds a row that the call needs.

    The server ends a transaction that idles, so this is no wait for ever. Raises what else `call`
    raises, `UnavailableError` included.
    """
    backoff = LoopBackoff(rng=rng)
    while True:
        try:
            return await call()
        except UnavailableError as error:
            if not error.is_locked:
                raise
            await trio.sleep(backoff.failed(log, event, error))
