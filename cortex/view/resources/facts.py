"""Facts: recorded failures, costs and changes."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from cortex.domain.phrases import short_id, span
from cortex.domain.safe import safe
from cortex.store.facts import FactType, ListedFact
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, money, tokens
from cortex.view.resource import Field, Resource, on_demand

_STYLES: Final = {FactType.ERROR: "fail", FactType.COST: "dim", FactType.LIFECYCLE: "run"}


def fact_text(fact: ListedFact) -> str:
    """Describe a fact in one line: the change and its reason, the failure, or the cost."""
    data: dict[str, Any] = fact.data
    match fact.type:
        case FactType.LIFECYCLE:
            return change_text(data)
        case FactType.COST:
            used = tokens(data["usage"]) if data.get("usage") else ""
            parts = [data.get("outcome"), used, "estimated" if data.get("estimated") else ""]
            return " · ".join(str(part) for part in parts if part)
        case FactType.ERROR:
            names = ("class", "message", "resolution")
            return " · ".join(str(data[name]) for name in names if data.get(name))


def change_text(data: dict[str, Any]) -> str:
    """Describe a change: person, value before and after, reason."""
    words = [f"by {data['by']}"] if data.get("by") else []
    if data.get("before") is not None or data.get("after") is not None:
        before, after = (_value(data.get(name)) for name in ("before", "after"))
        words.append(f"{before} → {after}")
    words += [f"{name} {data[name]}" for name in _NAMED if data.get(name)]
    head = " · ".join(words)
    reason = data.get("reason") or data.get("error") or ""
    return f"{head}: {reason}" if head and reason else head or str(reason)


_NAMED: Final = ("choice", "retried_as")


def _value(value: object) -> str:
    if isinstance(value, dict):
        parts = [_part(name, each) for name, each in sorted(value.items()) if each is not None]
        return ", ".join(parts) or "none"
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _part(name: str, value: Any) -> str:
    """Describe one field of a value, such as a period of the retention."""
    if name.endswith("_s"):
        return f"{name.removesuffix('_s')} {span(value).removesuffix(' 0h')}"
    return f"{name} {_value(value)}"


def _job(row: ListedFact) -> Cell:
    return Cell(short_id(row.job_id), "bold") if row.job_id else Cell(NOTHING, "dim")


def _text(text: str | None) -> Cell:
    return Cell(safe(text)) if text else Cell(NOTHING, "dim")


def _amount(row: ListedFact) -> Cell:
    return Cell(NOTHING, "dim") if row.amount is None else Cell(money(row.amount))


FIELDS: Final[Sequence[Field[ListedFact]]] = (
    Field(name="id", style="dim", is_spare=True),
    Field(name="at", style="dim"),
    Field(name="type", shown=lambda r: Cell(r.type.value, _STYLES[r.type]), is_spare=True),
    Field(name="subtype", title="what", shown=lambda r: _text(r.subtype), least=10),
    Field(name="source", shown=lambda r: _text(r.source), least=10),
    Field(name="job_id", title="job", shown=_job),
    Field(name="step", shown=lambda r: _text(r.step), least=8, is_spare=True),
    Field(
        name="remark",
        title="who / why",
        value=fact_text,
        shown=lambda r: Cell(safe(fact_text(r))),
        least=16,
        is_for_people=True,
    ),
    Field(
        name="amount",
        doc="amount of a cost, in US dollars",
        shown=_amount,
        is_right=True,
        is_spare=True,
    ),
    *on_demand("currency", "tenant", "attempt", "agent", "agent_id", "agent_version"),
    *on_demand("pod", "pod_id", "trace_id"),
    Field(
        name="call_id",
        doc="the call: its error and its cost share it",
        value=lambda r: r.call_id or r.data.get("call_id"),
        kind=UUID | None,
        is_default=False,
    ),
    *on_demand(
        resolves="the error fact that this one resolves",
        is_resolved="whether an error is resolved",
        resolved_by="the fact that resolved it",
        data="what else is known: by whom and why, the message, the usage",
    ),
)

FACTS: Final = Resource(
    name="Fact",
    noun="facts",
    doc="A recorded event; it never changes.",
    row=ListedFact,
    fields=FIELDS,
    empty="nothing is recorded",
    unlisted=frozenset({"now"}),
)
