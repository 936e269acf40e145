"""Bars of a measurement: the target, the measured value, and whether it is met."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from cortex.view.cells import Cell, Row
from cortex.view.resource import Field

LOAD_LEAST: Final = 0.9
"""Minimum share of the load that a bar is for; below it the result means nothing."""


@attrs.frozen
class Bar:
    """One bar. Exactly one of `below` and `most` is given.

    Counts with `most` are compared as whole numbers: some transactions are the database's own.
    """

    name: str
    measured: float
    unit: str
    """s, %, MiB; "" for a count."""
    below: float | None = attrs.field(default=None, kw_only=True)
    most: float | None = attrs.field(default=None, kw_only=True)
    under: str = attrs.field(kw_only=True)
    """The conditions of the measurement, in words."""
    of: float = attrs.field(default=1.0, kw_only=True)
    """Share of the intended load that was reached: a slow machine may reach less."""

    @property
    def is_ok(self) -> bool:
        """Whether the bar is met, under the load that it is for."""
        if self.of < LOAD_LEAST:
            return False
        if self.below is not None:
            return self.measured < self.below
        return self.most is None or round(self.measured) <= self.most

    @property
    def row(self) -> Mapping[str, Any]:
        """Return the bar as a row of the table and of the JSON document."""
        return {
            "bar": self.name,
            "wanted": self.below if self.most is None else self.most,
            "measured": round(self.measured, 4),
            "unit": self.unit,
            "ok": self.is_ok,
            "under": self.under if self.of >= LOAD_LEAST else f"too little: {self.under}",
            "is_below": self.below is not None,
        }


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which the given share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _wanted(row: Row) -> Cell:
    return Cell(f"{'<' if row['is_below'] else '≤'} {_summary(row['wanted'], row['unit'])}", "dim")


def _summary(value: float, unit: str) -> str:
    match unit:
        case "s" if value < 1:
            return f"{1000 * value:.0f} ms"
        case "s":
            return f"{value:.2f} s"
        case "%":
            return f"{value:.1f} %"
        case "":
            return f"{value:.1f}"
        case _:
            return f"{value:.0f} {unit}"


COLUMNS: Final[Sequence[Field[Row]]] = (
    Field(name="bar"),
    Field(name="wanted", shown=_wanted, is_right=True),
    Field(
        name="measured",
        shown=lambda row: Cell(_summary(row["measured"], row["unit"])),
        is_right=True,
    ),
    Field(
        name="ok",
        title="",
        shown=lambda row: Cell("✓ ok", "done") if row["ok"] else Cell("✗ over", "fail"),
    ),
    Field(name="under", title="under", shown=lambda row: Cell(row["under"], "dim"), least=12),
    Field(name="unit", is_default=False),
)
