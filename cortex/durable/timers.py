"""Durable timers: a job waits for an instant of the database's clock and holds nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Final, Protocol

import orjson
import trio

from cortex.domain.control_flow import Suspended
from cortex.domain.errors import UsageError
from cortex.domain.limits import number_of
from cortex.domain.policy import DELAY_MAX_S
from cortex.domain.waiting import SLEEP
from cortex.durable.codec import StepInput, input_of

SHORT_S: Final = 5.0
"""A shorter rest stays in memory: that costs less than to leave the pod and come back."""


def length_of(name: str, **counts: float | None) -> timedelta:
    """Return the length of a timer of so many `seconds`, `minutes`, `hours` and `days`.

    Raises `UsageError` unless it is from 0 to ten years, and if none of them is given.
    """
    if all(count is None for count in counts.values()):
        raise UsageError(
            f"timer {name!r} has no length", hint=f"such as ctx.sleep({name!r}, minutes=5)"
        )
    length_s = 0.0
    for unit, count in counts.items():
        if count is None:
            continue
        number = number_of(count)
        if number is None:
            raise UsageError(f"timer {name!r}: {unit} is {count!r:.60}, not a number")
        length_s += number * _UNITS_S[unit]
    if not 0 <= length_s <= DELAY_MAX_S:
        raise UsageError(f"timer {name!r}: {length_s:g} s is not from 0 to {DELAY_MAX_S:.0f} s")
    return timedelta(seconds=length_s)


_UNITS_S: Final = {"seconds": 1.0, "minutes": 60.0, "hours": 3_600.0, "days": 86_400.0}


def timer_input(length: timedelta) -> StepInput:
    """Return the input of a timer's step: any length is the same input, once it has begun."""
    return StepInput(_ANY_LENGTH.digest, orjson.dumps({"seconds": length.total_seconds()}))


_ANY_LENGTH: Final = input_of({"seconds": "any"}, what="length of a timer")


_is_outside: Final[ContextVar[bool]] = ContextVar("waits outside", default=False)


@contextmanager
def waits_outside() -> Iterator[None]:
    """Let the job leave its pod even for a short rest: it waits for other things, too."""
    token = _is_outside.set(True)
    try:
        yield
    finally:
        _is_outside.reset(token)


class DatabaseClock(Protocol):
    """Reads the clock that all pods share; given by the pod."""

    async def now(self) -> datetime: ...


async def sleep_until(
    instant: datetime, *, name: str, clock: DatabaseClock, short_s: float = SHORT_S
) -> None:
    """Return once the instant has passed. Raises `Suspended` if that takes over `short_s` seconds.

    `name` is the reason that people see. Raises `UsageError` for what is no instant with a time
    zone, and for one that is more than ten years ahead.
    """
    if not isinstance(instant, datetime):
        raise UsageError(f"timer {name!r}: {instant!r:.60} is not a datetime")
    if instant.tzinfo is None:
        raise UsageError(f"timer {name!r}: {instant.isoformat()} has no time zone")
    left_s = (instant - await clock.now()).total_seconds()
    if left_s > DELAY_MAX_S:
        raise UsageError(f"timer {name!r}: {instant.isoformat()} is more than ten years ahead")
    if left_s > (0.0 if _is_outside.get() else short_s):
        raise Suspended(SLEEP, name, delay_s=left_s)
    if left_s > 0:
        await trio.sleep(left_s)
