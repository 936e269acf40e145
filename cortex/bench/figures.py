"""Figures of several runs: their middle, and how people see them."""

from collections.abc import Sequence
from statistics import median

from cortex.view.phrases import NOTHING


def middle(values: Sequence[float | None]) -> float | None:
    """Return the median, a whole one of whole numbers; None if a run has no such figure."""
    present = [value for value in values if value is not None]
    if len(present) < len(values):
        return None
    is_whole = all(isinstance(value, int) for value in present)
    return int(median(present)) if is_whole else round(median(present), 3)


def shown(figure: float | None) -> str:
    """Return the text of a figure for people."""
    return NOTHING if figure is None else f"{figure:,}"
