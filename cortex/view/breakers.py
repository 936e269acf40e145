"""The last hour of a breaker, as bars."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from cortex.domain.breaker import PAST_S, BreakerState, Past

BARS: Final = 12
BAR_S: Final = PAST_S / BARS
UNKNOWN: Final = "·"
_HEIGHTS: Final = {BreakerState.CLOSED: "▁", BreakerState.HALF_OPEN: "▄", BreakerState.OPEN: "▇"}


def strip(state: str, past: Past, now: datetime) -> str:
    """Return a bar for each `BAR_S` seconds, the newest last: the worst state in it.

    `state`: the present one. Bars begin at round times, so that they stand still. A partly unknown
    one is `·`.
    """
    passed_s = now.timestamp() % BAR_S
    last = now - timedelta(seconds=passed_s)
    begins = [last - timedelta(seconds=BAR_S * ago) for ago in range(BARS - 1, -1, -1)]
    ends = [*begins[1:], None]
    turns = past.turns
    states = [turns[0].before if turns else state, *(turn.after for turn in turns)]
    instants = [None, *(turn.at for turn in turns), None]
    spans = list(zip(pairwise(instants), states, strict=True))
    known_from = past.known_since
    bars = []
    for begin, end in zip(begins, ends, strict=True):
        states = [
            each
            for (since, until), each in spans
            if (until is None or until > begin) and (end is None or since is None or since < end)
        ]
        if end is None:
            states.append(state)  # it may have been read after the turns
        bars.append(UNKNOWN if known_from is not None and begin < known_from else _worst(states))
    return "".join(bars)


def _worst(states: Sequence[str]) -> str:
    """Return the bar of the worst state; of states from newer pods, the bar of unknown."""
    ranked = [state for state in _HEIGHTS if state in states]
    return max((_HEIGHTS[state] for state in ranked), default=UNKNOWN)
