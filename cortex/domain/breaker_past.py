"""What happened to a circuit breaker lately: its states over the last hour, as a strip."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

import attrs

from cortex.domain.breaker import BreakerState

BAR_S: Final = 300.0
BARS: Final = 12
"""An hour."""
PAST_S: Final = BAR_S * BARS
ERRORS_MAX: Final = 3
"""As many as open the breaker of a model or a tool."""
UNKNOWN: Final = "·"
_HEIGHTS: Final = {BreakerState.CLOSED: "▁", BreakerState.HALF_OPEN: "▄", BreakerState.OPEN: "▇"}


@attrs.frozen(kw_only=True)
class Turn:
    """A change of a breaker's state."""

    at: datetime
    before: str
    after: str


@attrs.frozen(kw_only=True)
class CountedError:
    """An error that counts for a breaker."""

    at: datetime
    code: str
    message: str


@attrs.frozen(kw_only=True)
class Past:
    """What happened to a breaker in the last hour."""

    turns: tuple[Turn, ...] = ()
    """The oldest first."""
    known_since: datetime | None = None
    """Turns before that instant are not known; None: all are."""
    errors: tuple[CountedError, ...] = ()
    """The newest first."""


def strip(state: str, past: Past, now: datetime) -> str:
    """Return a bar for each `BAR_S` seconds, the newest last: the worst state that it saw.

    `state`: as it is now. Bars begin at round times, so that they stand still. One that is not
    wholly known is `·`.
    """
    passed_s = now.timestamp() % BAR_S
    last = now - timedelta(seconds=passed_s)
    begins = [last - timedelta(seconds=BAR_S * ago) for ago in range(BARS - 1, -1, -1)]
    ends = [*begins[1:], None]
    turns = past.turns
    states = [turns[0].before if turns else state, *(turn.after for turn in turns)]
    instants = [None, *(turn.at for turn in turns), None]
    spans = list(zip(pairwise(instants), states, strict=True))
    known = past.known_since
    bars = []
    for begin, end in zip(begins, ends, strict=True):
        seen = [
            each
            for (since, until), each in spans
            if (until is None or until > begin) and (end is None or since is None or since < end)
        ]
        if end is None:
            seen.append(state)  # it may have been read after the turns
        bars.append(UNKNOWN if known is not None and begin < known else _worst(seen))
    return "".join(bars)


def openings(past: Past) -> int:
    """Return how many outages began, as far as is known: a probe that failed is none."""
    turned = ((turn.before, turn.after) for turn in past.turns)
    return sum(turn == (BreakerState.CLOSED, BreakerState.OPEN) for turn in turned)


def is_calm(state: str, past: Past) -> bool:
    """It was closed all the hour, as far as is known."""
    return state == BreakerState.CLOSED and not past.turns


def _worst(seen: Sequence[str]) -> str:
    """Return the bar of the worst state; of one that newer pods may know, that of unknown."""
    known = [state for state in _HEIGHTS if state in seen]
    return max((_HEIGHTS[state] for state in known), default=UNKNOWN)
