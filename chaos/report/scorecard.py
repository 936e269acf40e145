"""The scorecard: what a run was, what happened to it, and whether that was right."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from chaos.checkers.verdict import Result, Verdict
from chaos.report.figures import SAFE, Figures, measure
from chaos.run import Outcome

COLUMNS: Final = 100
_MARKS = {Result.VALID: "ok", Result.INVALID: "BROKEN", Result.UNKNOWN: "?"}


def scorecard(outcome: Outcome) -> str:
    """The whole scorecard, for a terminal."""
    figures = rows(outcome)
    width = max(len(name) for name, _ in figures)
    lines = [line for name, value in figures for line in _wrapped(f"{name:<{width}}", value)]
    verdicts = [line for verdict in outcome.verdicts for line in _verdict_lines(verdict)]
    ending = [] if outcome.stuck is None else ["", f"  STUCK: {outcome.stuck}"]
    return "\n".join(["", *lines, "", *verdicts, *ending, "", sentence(outcome)]) + "\n"


def _wrapped(name: str, value: str) -> list[str]:
    """Lines of a figure; further ones are aligned with its value."""
    return textwrap.wrap(
        value,
        COLUMNS,
        initial_indent=f"  {name}  ",
        subsequent_indent=" " * (len(name) + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


def rows(outcome: Outcome) -> list[tuple[str, str]]:
    """Its figures by name; those that belong to the one above begin with blanks."""
    figures = measure(outcome.evidence, outcome.verdicts)
    return [*_rows(figures), ("took", f"{outcome.took_s:.1f} s")]


def _rows(figures: Figures) -> Iterator[tuple[str, str]]:
    yield "jobs", _counted(figures.jobs)
    if figures.failed:
        yield "  failed by", _counted(figures.failed)
    yield "effects", _counted(figures.effects)
    yield "faults", _counted(figures.faults)
    yield "  in windows that matter", _counted(figures.windows, total=figures.in_windows)
    if figures.missed:
        yield "  found no target", _counted(figures.missed)
    yield "lost", str(figures.lost)
    safe = sum(count for kind, count in figures.doubled.items() if kind in SAFE)
    yield "doubled", f"{safe}, and {figures.doubled['unsafe']} of unsafe tools"
    yield "stale writes", "?" if figures.stale_writes is None else str(figures.stale_writes)
    yield "quiet takeovers", _spread(figures.takeovers_s)
    yield "  while more was broken", _spread(figures.hindered_s)
    yield "model calls", f"{figures.model_calls}, paid twice {figures.paid_twice}"
    yield "messages", f"{figures.messages}, sent again {figures.sent_again}"
    if figures.instants:
        yield "instants of schedules", _counted(figures.instants)
    yield "drains", _spread(figures.drains_s)
    yield "at rest after", "never" if figures.rest_s is None else f"{figures.rest_s:.1f} s"


def _counted(counts: Counter[str], *, total: int | None = None) -> str:
    parts = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    number = counts.total() if total is None else total
    return f"{number}  ({parts})" if parts else str(number)


def _spread(durations_s: Sequence[float]) -> str:
    """Of sorted durations."""
    count = len(durations_s)
    if not count:
        return "0"
    p50, p99 = durations_s[count // 2], durations_s[min(count - 1, int(0.99 * count))]
    return f"{count}  (p50 {p50:.2f} s, p99 {p99:.2f} s, worst {durations_s[-1]:.2f} s)"


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    mark = _MARKS[verdict.result]
    yield f"  {verdict.invariant:<4} {mark:<7} {verdict.checked:>7}  {verdict.claim}"
    for why in verdict.why:
        yield f"{'':24}{why}"


def sentence(outcome: Outcome) -> str:
    """A summary in one sentence."""
    broken = [v.invariant for v in outcome.verdicts if v.result is Result.INVALID]
    if outcome.stuck is not None:
        return "the cluster did not come to rest"
    return f"broken: {', '.join(broken)}" if broken else "no rule was broken"
