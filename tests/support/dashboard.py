"""Generates packaging/grafana/cortex.json: `python -m tests.support.generate dashboard`.

Each metric of the catalogue has one panel, which asks for it as its kind demands: the rate of a
counter, quantiles of a histogram; of a gauge the sum over pods if it is of a pod itself, else the
largest.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from cortex.runtime.metrics.joined_page import SUMMED
from cortex.runtime.metrics.metrics_catalogue import BREAKER_STATE, METRICS, Metric

FILE: Final = Path(__file__).parent.parent.parent / "packaging" / "grafana" / "cortex.json"
GROUPS: Final = {
    "Jobs": (
        *("claims", "jobs", "job", "suspensions", "recovery", "errors", "attempt_errors"),
        *("retries", "retry", "dead_letters"),
    ),
    "Queue": (
        "queue_wait",
        "due",
        "oldest_due",
        "stranded",
        "schedules_missed",
        "waiting_jobs",
        "pauses",
        "slots",
        "running",
    ),
    "Steps, models and cost": ("step", "llm", "tool", "effects"),
    "Breakers": ("breaker",),
    "Approvals": ("approval", "approvals"),
    "Runners": ("runner",),
    "Outbox": ("outbox",),
    "Pods": ("log_lines", "commit", "database", "loop_lag", "threads", "http", "build"),
}
"""By row: how the names of its metrics begin, after `cortex_`."""
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
WIDTH: Final = 8
HEIGHT: Final = 8
ACROSS: Final = 24
"""Grafana's grid."""
STATES: Final = {"0": "closed", "1": "half-open", "2": "open"}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": "cortex",
        "title": "Cortex",
        "description": "Generated from the metric catalogue: see docs/guides/monitoring.md.",
        "tags": ["cortex"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": [{"id": number, **each} for number, each in enumerate(_panels(), 1)],
    }


def group_of(metric: Metric) -> str:
    """Return the row that has the longest beginning of its name. Raises `LookupError`."""
    name = metric.name.removeprefix("cortex_")
    found = [
        (len(start), group)
        for group, starts in GROUPS.items()
        for start in starts
        if re.match(rf"{start}(_|$)", name)
    ]
    if not found:
        raise LookupError(f"no row of the dashboard has {metric.name}: name it in GROUPS")
    return max(found)[1]


def _panels() -> Iterator[dict[str, Any]]:
    top = 0
    for group in GROUPS:
        metrics = [each for each in METRICS if group_of(each) == group]
        if not metrics:
            continue
        place = {"x": 0, "y": top, "w": ACROSS, "h": 1}
        yield {"type": "row", "title": group, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        for number, metric in enumerate(metrics):
            down, across = divmod(WIDTH * number, ACROSS)
            place = {"x": across, "y": top + HEIGHT * down, "w": WIDTH, "h": HEIGHT}
            yield {**_panel(metric), "gridPos": place}
        top += HEIGHT * -(-len(metrics) * WIDTH // ACROSS)


def _panel(metric: Metric) -> dict[str, Any]:
    unit = _unit(metric)
    defaults: dict[str, Any] = {"unit": unit, "min": 0}
    if metric is BREAKER_STATE:
        words = {value: {"text": word, "index": int(value)} for value, word in STATES.items()}
        defaults |= {"max": 2, "mappings": [{"type": "value", "options": words}]}
    return {
        "type": "timeseries",
        "title": _title(metric),
        "description": f"`{metric.name}`: {metric.help}",
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": ref, "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for ref, (expr, legend) in zip("AB", _targets(metric), strict=False)
        ],
    }


def _title(metric: Metric) -> str:
    """Return the metric's name as words: `LLM tokens per second`."""
    name = metric.name.removeprefix("cortex_")
    name = re.sub(r"(_timestamp)?_seconds$|_total$|_usd_total$", "", name)
    first, *words = name.split("_")
    unit = "time" if metric.kind == "histogram" and _unit(metric) == "s" else _unit(metric)
    per = {"cps": ["per second"], "currencyUSD": ["per hour"], "time": ["time"]}.get(unit, [])
    shown = first.upper() if first in {"llm", "http"} else first.capitalize()
    return " ".join([shown, *words, *per])


def _unit(metric: Metric) -> str:
    """Return Grafana's name of the unit of what `_targets` asks for."""
    if "_usd_" in metric.name:
        return "currencyUSD"
    if metric.kind == "counter":
        return "cps"
    return "s" if metric.name.endswith("_seconds") else "short"


def _targets(metric: Metric) -> Sequence[tuple[str, str]]:
    """Return the queries of a panel, each with its legend."""
    name, labels = metric.name, metric.labels
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    rate = "rate({}[$__rate_interval])"
    if metric.kind == "histogram":
        buckets = f"{_over('sum', ('le', *labels))} ({rate.format(name + '_bucket')})"
        shares = (0.95,) if labels else (0.5, 0.95)
        return [
            (f"histogram_quantile({share}, {buckets})", f"p{100 * share:.0f} {legend}".strip())
            for share in shares
        ]
    legend = legend or _title(metric).lower()
    if metric.kind == "counter":
        per_hour = "3600 * " if _unit(metric) == "currencyUSD" else ""
        return [(f"{per_hour}{_over('sum', labels)} ({rate.format(name)})", legend)]
    if name.endswith("_info"):
        return [(f"{_over('count', labels)} ({name})", legend)]
    if name.endswith("_up"):
        return [(f"{_over('min', labels)} ({name})", legend)]
    if name.endswith("_timestamp_seconds"):
        return [(f"time() - {_over('max', labels)} ({name})", legend)]
    return [(f"{_over('sum' if name in SUMMED else 'max', labels)} ({name})", legend)]


def _over(aggregate: str, labels: Sequence[str]) -> str:
    return f"{aggregate} by ({', '.join(labels)})" if labels else aggregate


def text() -> str:
    """Return the file's content."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the dashboard."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text(), "utf-8")
