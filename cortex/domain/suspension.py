"""Several wishes to wait as one."""

from collections.abc import Sequence

from cortex.domain.errors import Suspended


def together(wishes: Sequence[Suspended]) -> Suspended:
    """Return the wish that waits longest, with all that any of them asks of people.

    What concurrent calls need decided is asked at once, not one after the other.
    """
    wish = max(wishes, key=_patience)
    if len(wishes) > 1:
        wish.requests = tuple(request for each in wishes for request in each.requests)
        wish.awaited = tuple(awaited for each in wishes for awaited in each.awaited)
        wish.unknown = tuple(unknown for each in wishes for unknown in each.unknown)
    return wish


def _patience(wish: Suspended) -> float:
    """Order wishes to wait: a person's decision takes longest."""
    return float("inf") if wish.delay_s is None else wish.delay_s
