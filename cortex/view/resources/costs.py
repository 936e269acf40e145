"""Costs: tokens and money of model calls, by group."""

from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.store.facts import CostGroup, CostRow
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, count, money
from cortex.view.resource import Field, Resource, on_demand


def _name(row: CostRow, by: str) -> Cell:
    if row.is_total:
        return Cell("total", "dim")
    if by == CostGroup.JOB:
        return Cell(short_id(UUID(row.name)) if row.name else NOTHING, "bold")
    return Cell(safe(row.name or "") or NOTHING, "bold")


def _tokens(name: str, **more: Any) -> Field[CostRow]:
    """Return the field of a number of tokens or calls."""

    def shown(row: CostRow) -> Cell:
        number = getattr(row, name)
        return Cell(count(number), "" if number else "dim")

    return Field(name=name, shown=shown, is_right=True, **more)


def _money(usd: Decimal | None, *, calls: int, unpriced: int) -> Cell:
    if not calls:
        return Cell(NOTHING, "dim")
    if unpriced == calls:
        return Cell("unknown", "warn")
    return Cell(f"{money(usd)} + ?", "warn") if unpriced else Cell(money(usd))


def _cost(row: CostRow) -> Cell:
    return _money(row.cost_usd, calls=row.calls, unpriced=row.unpriced_calls)


def _again(row: CostRow) -> Cell:
    calls, unpriced = row.again_calls, row.again_unpriced_calls
    return _money(row.again_usd, calls=calls, unpriced=unpriced)


def _hit(row: CostRow) -> float | None:
    is_used = row.cache_read_tokens or row.cache_write_tokens
    prompt = row.input_tokens + row.cache_read_tokens + row.cache_write_tokens
    return row.cache_read_tokens / prompt if is_used else None


def _saved(row: CostRow) -> Cell:
    saved_usd = row.cache_saved_usd
    return Cell(NOTHING, "dim") if saved_usd is None else Cell(money(saved_usd))


def columns(by: str) -> tuple[Field[CostRow], ...]:
    """Return the fields; people see the group as the title of its name."""
    return (
        Field(
            name="name",
            doc='of the agent, model, tenant or job, or the UTC day; "": of none',
            value=lambda r: "total" if r.is_total else r.name,
            title=by,
            shown=lambda r: _name(r, by),
            least=12,
        ),
        _tokens("calls"),
        _tokens("input_tokens", title="in"),
        _tokens("output_tokens", title="out"),
        _tokens("cache_read_tokens", title="cached", is_spare=True),
        _tokens("cache_write_tokens", title="written", is_spare=True),
        Field(
            name="cache_hit",
            doc="share of the prompts that was read from the provider's cache",
            title="hit",
            value=_hit,
            kind=float | None,
            shown=lambda r: Cell(NOTHING, "dim") if _hit(r) is None else Cell(f"{_hit(r):.0%}"),
            is_right=True,
            is_spare=True,
        ),
        Field(
            name="cache_saved_usd",
            doc="what the cache saved; negative: it cost more than it saved",
            title="saved",
            shown=_saved,
            is_right=True,
            is_spare=True,
        ),
        Field(
            name="cost_usd",
            doc="null where no price is known",
            title="cost",
            shown=_cost,
            is_right=True,
        ),
        _tokens(
            "again_tokens",
            doc="of calls whose response was not stored, so that they were paid again",
            title="paid again",
        ),
        Field(name="again_usd", title="of the cost", shown=_again, is_right=True),
        *on_demand(
            unpriced_calls="calls that the cost leaves out: their price is not known",
            estimated_calls="calls that were lost, or whose server counted no tokens",
            again_calls="",
            again_unpriced_calls="",
        ),
    )


COSTS: Final = Resource(
    name="Cost",
    noun="costs",
    doc="The model calls of one group.",
    row=CostRow,
    fields=columns("group"),
    unlisted=frozenset({"is_total"}),
)
