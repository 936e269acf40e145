"""A page of metrics as a scraper reads it."""

from collections.abc import Mapping

from attrs import frozen
from prometheus_client.parser import text_string_to_metric_families

from cortex.runtime.metrics.metrics_catalogue import METRICS

_LABELS = {metric.name.removesuffix("_total"): metric.labels for metric in METRICS}


@frozen
class Scrape:
    """Values by name and labels, in the order declared: `page["cortex_jobs", "PENDING"]`."""

    values: Mapping[tuple[str, ...], float]
    kinds: Mapping[str, str]
    """Type by name of the family, as it is asked for: a counter's ends in `_total`."""

    def __getitem__(self, key: str | tuple[str, ...]) -> float:
        return self.values[(key,) if isinstance(key, str) else key]

    def get(self, *key: str) -> float:
        """The value; 0 for what was never counted."""
        return self.values.get(key, 0)

    def sum(self, name: str) -> float:
        """All values of one name added up."""
        return sum(value for (each, *_), value in self.values.items() if each == name)


def read(text: bytes) -> Scrape:
    """Parse a page as Prometheus does; fails for a series that is there twice."""
    values: dict[tuple[str, ...], float] = {}
    kinds: dict[str, str] = {}
    for family in text_string_to_metric_families(text.decode()):
        suffix = "_total" if family.type == "counter" else ""
        assert family.documentation, family.name
        kinds[family.name.removesuffix("_total") + suffix] = family.type
        for sample in family.samples:
            order = [*_LABELS.get(family.name, ()), *sample.labels]
            key = (sample.name, *(sample.labels[each] for each in dict.fromkeys(order)))
            assert key not in values, key
            values[key] = sample.value
    return Scrape(values, kinds)
