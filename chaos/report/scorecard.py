"""The scorecard: what a run was, what happened to it, and whether that was right."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from chaos.checkers.verdict import Result, Verdict
from chaos.run import Outcome

_MARKS = {Result.VALID: "ok", Result.INVALID: "BROKEN", Result.UNKNOWN: "?"}


def scorecard(outcome: Outcome) -> str:
    """The whole of it, for a terminal."""
    rows = [*_rows(outcome)]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    verdicts = [line for verdict in outcome.verdicts for line in _told(verdict)]
    ending = [] if outcome.stuck is None else ["", f"  STUCK: {outcome.stuck}"]
    return "\n".join(["", *lines, "", *verdicts, *ending, "", _sentence(outcome)]) + "\n"


def _rows(outcome: Outcome) -> Iterator[tuple[str, str]]:
    evidence = outcome.evidence
    jobs = Counter(str(row["status"]) for row in evidence.jobs)
    yield "jobs", _counted(jobs, total=len(evidence.jobs))
    effects = Counter(str(row["status"]) for row in evidence.effects)
    yield "effects", _counted(effects, total=len(evidence.effects))
    faults = [e for e in evidence.events if e.kind == "fault" and e.type == "info"]
    kinds = Counter(event.value["nemesis"] for event in faults)
    yield "faults", _counted(kinds, total=len(faults))
    hit = [event for event in faults if event.value.get("windows")]
    windows = Counter(str(window) for event in hit for window in event.value["windows"])
    yield "in windows that matter", _counted(windows, total=len(hit))
    missed = Counter(e.value["nemesis"] for e in faults if "missed" in e.value)
    if missed:
        yield "faults that missed", _counted(missed, total=missed.total())
    for verdict in outcome.verdicts:
        for name, figure in verdict.figures.items():
            yield name.replace("_", " "), _figure(figure)
    yield "took", f"{outcome.took_s:.1f} s"


def _counted(counts: Counter[str], *, total: int) -> str:
    parts = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return f"{total}  ({parts})" if parts else str(total)


def _figure(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _told(verdict: Verdict) -> Iterator[str]:
    mark = _MARKS[verdict.result]
    yield f"  {verdict.invariant:<4} {mark:<7} {verdict.seen:>7}  {verdict.claim}"
    for why in verdict.why:
        yield f"{'':24}{why}"


def _sentence(outcome: Outcome) -> str:
    broken = [v.invariant for v in outcome.verdicts if v.result is Result.INVALID]
    if outcome.stuck is not None:
        return "the cluster did not come to rest"
    return f"broken: {', '.join(broken)}" if broken else "no rule was broken"
