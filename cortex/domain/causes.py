"""Looking into errors that somebody else made: members of groups, causes, attributes.

All of it is bounded, since a job's error may be of any size and its causes may be a circle.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

MEMBERS_MAX: Final = 1_000
"""So many members of an exception group are looked at, whatever their depth."""
CAUSES_MAX: Final = 50
"""So many errors are looked at on the way down to what began it all."""


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors inside a group in their order; of one that is no group, itself."""
    waiting: list[BaseException] = [error]
    found: list[BaseException] = []
    while waiting and len(found) < MEMBERS_MAX:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting += reversed(each.exceptions)
        else:
            found.append(each)
    return found


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then what it was raised from, members of groups included."""
    return islice(_chain(error), CAUSES_MAX)


def cause_of(error: BaseException) -> BaseException | None:
    """Return what an error was raised from; some libraries cut the chain, but keep it in args."""
    if error.__cause__ is not None:
        return error.__cause__
    return next((each for each in error.args[:1] if isinstance(each, BaseException)), None)


def attribute(owner: Any, name: str) -> Any:
    """Return an attribute, None if it cannot be had: a property of a strange error may raise."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 -- whatever it is, it is no fact about the error
        return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    following: BaseException | None = error
    while following is not None:
        yield following
        if isinstance(following, BaseExceptionGroup):
            for member in following.exceptions:
                yield from _chain(member)
        following = cause_of(following)
