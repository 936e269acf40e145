"""Calls whose reply was lost: they are repeated where that is safe."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from cortex.domain.errors import OutcomeUnknownError

T = TypeVar("T")
TRIES_MAX: Final = 3


async def repeat_if_lost(call: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
    """Make a call, repeat it when its reply is lost; return its result and whether it repeated.

    Doing it twice must be the same as once. Raises what the call raises, `OutcomeUnknownError` when
    `TRIES_MAX` replies were lost.
    """
    for lost_count in range(TRIES_MAX):
        try:
            return await call(), lost_count > 0
        except OutcomeUnknownError:
            if lost_count == TRIES_MAX - 1:
                raise
    raise AssertionError("the last try returns or raises")
