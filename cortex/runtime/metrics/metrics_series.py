"""Counts and histograms as plain numbers; converted to Prometheus families on a scrape.

The counters of prometheus-client take a lock and look up their labels at each step: microseconds,
where a job has 50 in all. Here it is an addition in a dict. All of it lives on the trio thread.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from cortex.runtime.metrics.metrics_catalogue import OTHER, Metric

SERIES_MAX: Final = 500
"""Label values per metric; the rest is counted as `other`, so that memory is bounded."""

Labels = tuple[str, ...]


class Counts:
    """One counter by the values of its labels."""

    def __init__(self, metric: Metric, known: Iterable[Labels] = ()) -> None:
        """Labels in `known` are 0 from the start, so that their rise to 1 is visible."""
        self.metric = metric
        self._values: dict[Labels, float] = dict.fromkeys(known, 0)
        if not metric.labels:
            self._values[()] = 0

    def add(self, labels: Labels, count: float = 1) -> None:
        try:
            self._values[labels] += count
        except KeyError:
            key = _admitted(self.metric, labels, len(self._values))
            self._values[key] = self._values.get(key, 0) + count

    def family(self) -> CounterMetricFamily:
        family = CounterMetricFamily(self.metric.name, self.metric.help, labels=self.metric.labels)
        for labels, value in self._values.items():
            family.add_metric(labels, value)
        return family


class Histograms:
    """One histogram by the values of its labels."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._histograms: dict[Labels, _Histogram] = {}
        if not metric.labels:
            self._histograms[()] = _Histogram(metric.buckets)

    def add(self, labels: Labels, value: float) -> None:
        histogram = self._histograms.get(labels)
        if histogram is None:
            key = _admitted(self.metric, labels, len(self._histograms))
            histogram = self._histograms.setdefault(key, _Histogram(self.metric.buckets))
        histogram.counts[bisect_left(histogram.bounds, value)] += 1
        histogram.sum += value

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            self.metric.name, self.metric.help, labels=self.metric.labels
        )
        bounds = [*map(floatToGoString, self.metric.buckets), "+Inf"]
        for labels, histogram in self._histograms.items():
            buckets = list(zip(bounds, accumulate(histogram.counts), strict=True))
            family.add_metric(labels, buckets, histogram.sum)
        return family


class _Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0


def _admitted(metric: Metric, labels: Labels, series_count: int) -> Labels:
    """Return the labels, or `other` for all of them when there are too many already."""
    return labels if series_count < SERIES_MAX else (OTHER,) * len(metric.labels)
