"""When no fault was active and pods had free slots: only then is lateness judged."""

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import Self

from attrs import frozen

from chaos.checkers.timeline import Timeline


@frozen
class Calm:
    """The parts of a run in which work that can run should run."""

    _unrest: tuple[tuple[float, float], ...]
    """The parts between them, in order, without overlaps."""

    @classmethod
    def of(cls, timeline: Timeline) -> Self:
        return cls(tuple(_joined([*timeline.unrest(), *_crowded(timeline)])))

    def longest_s(self, from_s: float, to_s: float) -> float:
        """The longest part of this time without a fault or a shortage of slots."""
        gaps = ((max(from_s, one[1]), min(to_s, after[0])) for one, after in pairwise(self._unrest))
        return max((end_s - begin_s for begin_s, end_s in gaps), default=0.0)


def _crowded(timeline: Timeline) -> Iterator[tuple[float, float]]:
    """When the pods had no free slots, or no sample shows whether they had."""
    yield -inf, -inf
    for before, after in pairwise(timeline.samples):
        if any(one.value["locked"] >= one.value["slots"] for one in (before, after)):
            yield before.at_s, after.at_s
    yield (timeline.samples[-1].at_s if timeline.samples else -inf), inf


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same spans in order, without overlaps."""
    joined: list[tuple[float, float]] = []
    for from_s, to_s in sorted(spans):
        if joined and from_s <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], to_s))
        else:
            joined.append((from_s, to_s))
    return joined
