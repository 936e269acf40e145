"""What happened to a circuit breaker lately: its states over the last hour, as a strip."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from cortex.domain.breaker import BreakerState

BAR_S: Final = 300.0
BARS: Final = 12
"""An hour."""
PAST_S: Final = BAR_S * BARS
ERRORS_MAX: Final = 3
"""As many as open the breaker of a model or a tool."""
UNKNOWN: Final = "·"
_HEIGHTS: Final = {BreakerState.CLOSED: "▁", BreakerState.HALF_OPEN: "▄", BreakerState.OPEN: "▇"}

Past = Mapping[str, Any]
"""A breaker's `state` now, its `turns` of the last hour, the oldest first, each with `at`, `before`
and `after`, and `known_since`: turns before that instant are not known; None: all are."""


def strip(past: Past, now: datetime) -> str:
    """Return a bar for each `BAR_S` seconds, the newest last: the worst state that it saw.

    Bars begin at round times, so that they stand still. One that is not wholly known is `·`.
    """
    passed_s = now.timestamp() % BAR_S
    last = now - timedelta(seconds=passed_s)
    begins = [last - timedelta(seconds=BAR_S * ago) for ago in range(BARS - 1, -1, -1)]
    ends = [*begins[1:], None]
    turns: Sequence[Mapping[str, Any]] = past["turns"]
    states = [turns[0]["before"] if turns else past["state"], *(turn["after"] for turn in turns)]
    instants = [None, *(turn["at"] for turn in turns), None]
    spans = list(zip(pairwise(instants), states, strict=True))
    known = past["known_since"]
    bars = []
    for begin, end in zip(begins, ends, strict=True):
        seen = [
            state
            for (since, until), state in spans
            if (until is None or until > begin) and (end is None or since is None or since < end)
        ]
        if end is None:
            seen.append(past["state"])  # it may have been read after the turns
        bars.append(UNKNOWN if known is not None and begin < known else _worst(seen))
    return "".join(bars)


def openings(past: Past) -> int:
    """Return how many outages began, as far as is known: a probe that failed is none."""
    turned = ((turn["before"], turn["after"]) for turn in past["turns"])
    return sum(turn == (BreakerState.CLOSED, BreakerState.OPEN) for turn in turned)


def is_calm(past: Past) -> bool:
    """It was closed all the hour, as far as is known."""
    return past["state"] == BreakerState.CLOSED and not past["turns"]


def _worst(seen: Sequence[str]) -> str:
    """Return the bar of the worst state; of one that newer pods may know, that of unknown."""
    known = [state for state in _HEIGHTS if state in seen]
    return max((_HEIGHTS[state] for state in known), default=UNKNOWN)
