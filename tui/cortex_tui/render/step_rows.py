"""A committed step on one line."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from cortex.domain.cells import Cell
from cortex.domain.phrases import money
from cortex.domain.safe import safe
from cortex_tui.render.job_rows import NONE
from cortex_tui.render.table import Column
from cortex_tui.render.words import span

StepRow: TypeAlias = Mapping[str, Any]
"""`seq`, `key`, `kind`, `attempt`, `started_at` and `finished_at` as text, `cost_usd`."""


def _took(step: StepRow, _: datetime) -> Cell:
    began, ended = (datetime.fromisoformat(step[name]) for name in ("started_at", "finished_at"))
    return Cell(span((ended - began).total_seconds()))


def _cost(step: StepRow, _: datetime) -> Cell:
    cost = step["cost_usd"]
    return NONE if cost is None else Cell(money(Decimal(str(cost))))


STEP_COLUMNS: Final[Sequence[Column[StepRow]]] = (
    Column(title="step", width=5, cell=lambda s, _: Cell(str(s["seq"]), "bold"), is_right=True),
    Column(title="name", width=20, cell=lambda s, _: Cell(safe(s["key"])), grows=True),
    Column(title="kind", width=8, cell=lambda s, _: Cell(safe(s["kind"]), "dim")),
    Column(title="att", width=3, cell=lambda s, _: Cell(str(s["attempt"]), "dim"), is_right=True),
    Column(title="took", width=8, cell=_took, is_right=True),
    Column(title="cost", width=8, cell=_cost, is_right=True),
)
