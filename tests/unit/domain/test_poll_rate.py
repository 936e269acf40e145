"""How often an actor polls: at once, then not too often, then seldom."""

from itertools import pairwise

from cortex.domain.poll_rate import PollRate

GAP_S = 0.25


def looks(pace: PollRate, *, until: float, is_news: bool) -> list[float]:
    """When a loop would look that always has a reason, or never."""
    now = 0.0
    instants: list[float] = []
    while True:
        now = max(now, pace.soonest if is_news else pace.due)
        if now >= until:
            return instants
        instants.append(now)
        pace.polled(now, found=is_news)


def test_first_polls_are_immediate_then_limited() -> None:
    instants = looks(PollRate(gap_s=GAP_S, burst=3), until=10, is_news=True)
    assert instants[:4] == [0, 0, 0, GAP_S]
    assert len(instants) <= 10 / GAP_S + 2


def test_quiet_polls_become_rarer() -> None:
    instants = looks(PollRate(gap_s=GAP_S, quiet_gap_s=1.0), until=10, is_news=False)
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (GAP_S * 1.5, 1.0)


def test_news_after_quiet_allows_an_immediate_poll() -> None:
    pace = PollRate(gap_s=GAP_S, burst=3)
    for instant in looks(pace, until=5, is_news=False):
        assert instant < 5
    assert pace.soonest < 5


def test_news_brings_the_next_poll_forward() -> None:
    pace = PollRate(gap_s=GAP_S, quiet_gap_s=1.0)
    for now in range(10):
        pace.polled(float(now), found=False)
    assert pace.due == 10.0
    pace.polled(10.0, found=True)
    assert pace.due == 10.0 + GAP_S
