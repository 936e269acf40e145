"""The last quarter of an hour as sparklines: rates, waits, costs."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Final

from cortex.domain.phrases import NOTHING, money
from cortex.store.pulse import Bucket, Recent
from cortex.view.cells import Cell
from cortex_tui.model.pulse import Pulse
from cortex_tui.render.sparks import spark
from cortex_tui.render.table import fit
from cortex_tui.render.words import countdown, span

LABEL: Final = 14
"""Cells of the label at the left of a line."""
LINES_MAX: Final = 9
RATE_SPAN_MIN_S: Final = 5.0
"""A bucket that has just begun is too short for a rate."""
_HOUR_S: Final = 3_600.0
_FIGURE: Final = 10
_EACH_MAX: Final = 3


def spark_lines(pulse: Pulse, width: int) -> Iterator[tuple[Cell, ...]]:
    """Yield a head, then one line per figure, the most telling first."""
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
        known = [each_one for each_one in values if each_one is not None]
        last, most = values[-1], max(known, default=None)
        return (
            Cell(fit(label, LABEL)),
            Cell(spark(values, each=each), style),
            Cell(fit(NOTHING if last is None else shown(last), _FIGURE, right=True)),
            Cell(fit(NOTHING if most is None else shown(most), _FIGURE, right=True), "dim"),
        )

    yield line("started", "run", lambda b: _rate(b, b.started), _per_s)
    yield line("failed", "fail", lambda b: _rate(b, b.failed), _per_s)
    yield line("done", "done", lambda b: _rate(b, b.done), _per_s)
    yield line("wait p50", "retry", lambda b: b.wait_p50_s if b.is_known else None, span)
    yield line("cost an hour", "accent", _cost_rate, lambda usd: money(Decimal(str(usd))))
    yield (Cell(fit("spent", LABEL)), *_spent(recent))
    yield line("wait p95", "retry", lambda b: b.wait_p95_s if b.is_known else None, span)
    yield line("model p50", "run", lambda b: b.model_p50_s if b.is_priced else None, span)


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
