"""The last quarter of an hour as sparklines: rates, waits, costs."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from cortex.store.pulse import Bucket, Recent
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, money
from cortex_tui.model.pulse import Pulse
from cortex_tui.render.sparks import spark
from cortex_tui.render.table import fit
from cortex_tui.render.words import countdown, span

LABEL: Final = 14
"""Cells of the label at the left of a line."""
STARTED: Final = "started"
DONE: Final = "done"
FAILED: Final = "failed"
WAIT_P50: Final = "wait p50"
WAIT_P95: Final = "wait p95"
MODEL_P50: Final = "model p50"
COST: Final = "cost an hour"
SPENT: Final = "spent"
PRIORITY: Final = (STARTED, FAILED, DONE, WAIT_P50, COST, SPENT, WAIT_P95, MODEL_P50)
"""Which figures stay where not all fit: the most useful first."""
LINES_MAX: Final = 1 + len(PRIORITY)
RATE_SPAN_MIN_S: Final = 5.0
"""A bucket that has just begun is too short for a rate."""
_HOUR_S: Final = 3_600.0
_FIGURE: Final = 10
_EACH_MAX: Final = 3


def lines_wanted(pulse: Pulse) -> int:
    return 1 if pulse.recent is None else LINES_MAX


def spark_lines(pulse: Pulse, width: int, *, lines_max: int) -> Iterator[tuple[Cell, ...]]:
    """Yield a head, then one line per figure that fits, always in the same order."""
    if pulse.recent is None:
        yield (Cell("last 15 min   reading …", "dim"),)
        return
    recent = pulse.recent
    buckets = recent.buckets
    each = max(1, min(_EACH_MAX, (width - LABEL - 3 * _FIGURE) // len(buckets)))
    title = f"{fit('last 15 min', LABEL)}{' ' * (each * len(buckets))}"
    heads = "".join(fit(word, _FIGURE, right=True) for word in ("now", "most"))
    yield (Cell(f"{title}{heads}", "dim"),)

    def line(
        label: str,
        style: str,
        value: Callable[[Bucket], float | None],
        shown: Callable[[float], str],
    ) -> tuple[Cell, ...]:
        values = [value(bucket) for bucket in buckets]
        measured = [each_one for each_one in values if each_one is not None]
        last, most = values[-1], max(measured, default=None)
        return (
            Cell(fit(label, LABEL)),
            Cell(spark(values, each=each), style),
            Cell(fit(NOTHING if last is None else shown(last), _FIGURE, right=True)),
            Cell(fit(NOTHING if most is None else shown(most), _FIGURE, right=True), "dim"),
        )

    lines = {
        STARTED: line(STARTED, "run", lambda b: _rate(b, b.started), _per_s),
        DONE: line(DONE, "done", lambda b: _rate(b, b.done), _per_s),
        FAILED: line(FAILED, "fail", lambda b: _rate(b, b.failed), _per_s),
        WAIT_P50: line(WAIT_P50, "retry", lambda b: b.wait_p50_s if b.is_known else None, span),
        WAIT_P95: line(WAIT_P95, "retry", lambda b: b.wait_p95_s if b.is_known else None, span),
        MODEL_P50: line(MODEL_P50, "run", lambda b: b.model_p50_s if b.is_priced else None, span),
        COST: line(COST, "accent", _cost_rate, lambda usd: money(Decimal(str(usd)))),
        SPENT: (Cell(fit(SPENT, LABEL)), *_spent(recent)),
    }
    kept = PRIORITY[: max(0, lines_max - 1)]
    yield from (cells for label, cells in lines.items() if label in kept)


def _rate(bucket: Bucket, count: int) -> float | None:
    return count / max(bucket.span_s, RATE_SPAN_MIN_S) if bucket.is_known else None


def _cost_rate(bucket: Bucket) -> float | None:
    if not bucket.is_priced:
        return None
    return float(bucket.usd) / max(bucket.span_s, RATE_SPAN_MIN_S) * _HOUR_S


def _per_s(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 or not rate else f"{rate:.2g}/s"  # noqa: PLR2004 -- two digits


def _spent(recent: Recent) -> tuple[Cell, ...]:
    calls = f"{recent.calls:,} {'call' if recent.calls == 1 else 'calls'}"
    since = "hour" if recent.spent_s >= _HOUR_S else countdown(recent.spent_s)
    return Cell(money(recent.spent_usd)), Cell(f" in the last {since} · {calls}", "dim")
