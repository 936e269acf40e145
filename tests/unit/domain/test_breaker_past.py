"""The strip of a breaker: bars at round times, the worst state of each."""

from datetime import UTC, datetime, timedelta

import pytest

from cortex.domain.breaker import Past, Turn, is_calm, openings
from cortex.view.breakers import strip

NOW = datetime(2026, 3, 4, 12, 2, tzinfo=UTC)


def past(
    *turns: tuple[float, str], state: str | None = None, known_s: float | None = None
) -> tuple[str, Past]:
    """A past of (minutes ago, new state) turns; closed before the first."""
    befores = ["CLOSED", *(after for _, after in turns)]
    turned = tuple(
        Turn(at=NOW - timedelta(minutes=ago), before=before, after=after)
        for before, (ago, after) in zip(befores, turns, strict=False)
    )
    known_since = None if known_s is None else NOW - timedelta(minutes=known_s)
    return state or befores[-1], Past(turns=turned, known_since=known_since)


@pytest.mark.parametrize(
    "given, bars",
    [
        (past(), "▁▁▁▁▁▁▁▁▁▁▁▁"),
        (past(state="OPEN"), "▇▇▇▇▇▇▇▇▇▇▇▇"),
        (past((1, "OPEN")), "▁▁▁▁▁▁▁▁▁▁▁▇"),
        (past((2, "OPEN")), "▁▁▁▁▁▁▁▁▁▁▁▇"),
        (past((2.5, "OPEN")), "▁▁▁▁▁▁▁▁▁▁▇▇"),
        (past((40, "OPEN"), (30, "HALF_OPEN"), (20, "CLOSED")), "▁▁▁▇▇▇▄▄▁▁▁▁"),
        (past((21, "OPEN"), (20, "HALF_OPEN"), (19, "CLOSED")), "▁▁▁▁▁▁▁▇▁▁▁▁"),
        (past((7, "OPEN"), (5, "CLOSED"), known_s=31), "······▁▁▁▁▇▁"),
        (past((1, "AJAR")), "▁▁▁▁▁▁▁▁▁▁▁▁"),
        (past((20, "AJAR")), "▁▁▁▁▁▁▁▁····"),
        (past((20, "OPEN"), (19, "CLOSED"), state="OPEN"), "▁▁▁▁▁▁▁▇▁▁▁▇"),
    ],
)
def test_each_bar_is_the_worst_of_five_minutes(given: tuple[str, Past], bars: str) -> None:
    shown = strip(*given, NOW)
    assert (len(shown), shown) == (12, bars)


def test_bars_stand_still_until_the_next_one_begins() -> None:
    given = past((21, "OPEN"), (19, "CLOSED"))
    first = strip(*given, NOW)
    assert strip(*given, NOW + timedelta(minutes=2, seconds=59)) == first
    assert strip(*given, NOW + timedelta(minutes=3)) == first[1:] + "▁"


def test_a_probe_that_failed_is_no_new_outage() -> None:
    given = past((40, "OPEN"), (30, "HALF_OPEN"), (29, "OPEN"), (20, "CLOSED"), (1, "OPEN"))
    assert openings(given[1]) == 2
    assert [is_calm(*each) for each in (given, past(), past(state="OPEN"))] == [False, True, False]
