"""The results of the shots: a table by points, the failures, and the same as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from attrs import asdict

from chaos.points.exhaust import WAYS, Result
from cortex.crash_points import BETWEEN, POINTS

MISSED_SHARE: Final = 4
"""Of the points between transactions at most one in so many may be missed."""
_HEAD = ("point", *WAYS, "pair", "with")


def table(results: Sequence[Result]) -> str:
    """One line per point, then the failures, then a summary."""
    rows = [_HEAD, *_rows(results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    lines = [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
    wrong = [f"  {each.name}: {why}" for each in results for why in each.problems]
    parts = [lines, ["", "wrong:", *wrong] if wrong else [], ["", sentence(results)]]
    return "\n".join(line.rstrip() for part in parts for line in part) + "\n"


def document(results: Sequence[Result]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "schema_version": 1,
        "is_good": is_good(results),
        "trials": [asdict(each) for each in results],
    }


def is_good(results: Sequence[Result]) -> bool:
    """Whether nothing went wrong, and most points between transactions were passed."""
    between = [each for each in results if each.point and each.point.startswith(BETWEEN)]
    missed = sum(not each.is_passed for each in between)
    return not any(each.problems for each in results) and MISSED_SHARE * missed <= len(between)


def sentence(results: Sequence[Result]) -> str:
    """A summary in one sentence."""
    shots = [each for each in results if each.how is not None]
    wrong = sum(bool(each.problems) for each in results)
    missed = sum(not each.is_passed for each in results)
    passed = f"; {missed} not passed again" if missed else ""
    tried = f"{len(shots)} times at {len({each.point for each in shots})} points"
    verdict = f"{wrong} went wrong" if wrong else "nothing was lost, doubled or stuck"
    return f"ended or stopped {tried}{passed}: {verdict}"


def _rows(results: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    between = {each.point for each in results if each.point and each.point.startswith(BETWEEN)}
    for point in [*(name for name in POINTS if name != BETWEEN), *sorted(between)]:
        own = [each for each in results if each.point == point and each.how is not None]
        singles = [each for each in own if not each.is_pair]
        cells = [_cell([each for each in singles if each.how == how]) for how in WAYS]
        cells.append(_cell([each for each in own if each.is_pair]))
        names = dict.fromkeys(each.program.partition(", ")[0] for each in own)
        yield point, *cells, ", ".join(names)


def _cell(results: Sequence[Result]) -> str:
    if not any(each.is_passed for each in results):
        return "-"
    good = sum(not each.problems for each in results)
    return f"{good} ok" if good == len(results) else f"{good} of {len(results)} ok"
