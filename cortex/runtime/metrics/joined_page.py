"""One metrics page for the workers of a pod: sums, so that a scrape sees one pod.

Owns: the counters and histograms of workers that have died, and the last page of each that lives.
Invariants: no counter of the joined page ever falls while the pod lives. What a worker counted
between its last page and its death is missing, as it is when a pod of one process dies.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from cortex.runtime.metrics import metrics_catalogue as catalogue

SUMMED: Final = frozenset(
    {
        catalogue.SLOTS.name,
        catalogue.RUNNING.name,
        catalogue.THREADS_LEFT.name,
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_open_fds",
    }
)
"""Gauges of a worker itself."""
WORST: Final = frozenset({catalogue.BREAKER_STATE.name, catalogue.DATABASE_TROUBLE.name})
"""Gauges of what each worker observes. All others are of the whole system, or the same in each."""
GROWING: Final = frozenset({"counter", "histogram"})


@attrs.define
class _Family:
    """The series of one metric."""

    head: list[str]
    """Its HELP and TYPE lines."""
    name: str
    kind: str
    values: dict[str, float] = attrs.field(factory=dict)
    """By series, as on the page: `name{labels}`."""

    def add(self, other: "_Family") -> None:
        """Add the series of another worker."""
        for series, value in other.values.items():
            own = self.values.get(series)
            if own is None:
                self.values[series] = value
            elif self.kind in GROWING or self.name in SUMMED:
                self.values[series] = own + value
            elif self.name in WORST:
                self.values[series] = max(own, value)


class JoinedPage:
    """The pages of a pod's workers, by their numbers."""

    def __init__(self) -> None:
        self._pages: dict[int, str] = {}
        self._ended: dict[str, _Family] = {}

    def take(self, worker: int, page: str) -> None:
        self._pages[worker] = page

    def end(self, worker: int) -> None:
        """Keep what a worker that has died had counted."""
        page = self._pages.pop(worker, "")
        _add(self._ended, (each for each in _families(page) if each.kind in GROWING))

    def text(self) -> str:
        """Return the page of the pod. The figures of the whole system are its first worker's."""
        joined: dict[str, _Family] = {}
        for _, page in sorted(self._pages.items()):
            _add(joined, _families(page))
        _add(joined, self._ended.values())
        return "".join(map(_shown, joined.values()))


def _add(joined: dict[str, _Family], families: Iterable[_Family]) -> None:
    for family in families:
        own = joined.get(family.name)
        if own is None:
            own = joined[family.name] = attrs.evolve(family, values={})
        own.add(family)


def _families(page: str) -> Iterator[_Family]:
    """Yield the metrics of a page of our own: HELP, TYPE, then lines of `series value`."""
    head: list[str] = []
    family: _Family | None = None
    for line in page.splitlines():
        if line.startswith("# HELP "):
            if family is not None:
                yield family
            head = [line]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            family = _Family([*head, line], name, kind)
        elif family is not None:
            series, _, value = line.rpartition(" ")
            family.values[series] = float(value)
    if family is not None:
        yield family


def _shown(family: _Family) -> str:
    values = (f"{series} {value!r}" for series, value in family.values.items())
    return "\n".join([*family.head, *values, ""])
