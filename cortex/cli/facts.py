"""`cortex facts`: recorded failures, costs and changes."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import click

from cortex.cli.options import ROW_NUMBER, Command, Options, Span
from cortex.cli.screen.output import Output
from cortex.cli.target import session
from cortex.domain.phrases import (
    NOTHING,
    SPAN_MAX_S,
    date_time,
    money,
    rfc3339,
    short_id,
    span,
    tokens,
)
from cortex.domain.safe import safe
from cortex.store import facts as store
from cortex.store import jobs
from cortex.store.facts import ListedFact
from cortex.view.cells import Cell
from cortex.view.resource import Field, on_demand

LIMIT_MAX: Final = 1000
_STYLES: Final = {"error": "fail", "cost": "dim", "lifecycle": "run"}


@click.command(cls=Command)
@click.option("--job", metavar="ID", help="Only facts of this job.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(store.TYPES),
    metavar="TYPE",
    help="error, cost or lifecycle.",
)
@click.option(
    "--source", metavar="NAME", help="Only this source: llm:NAME, tool:NAME, budget:NAME …"
)
@click.option(
    "--since",
    "since_s",
    type=Span(above_zero=True),
    metavar="SPAN",
    help="How far back: 12h, 1d … [everything].",
)
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, metavar="N"
)
@click.option("--before", type=ROW_NUMBER, metavar="ID", help="Only older facts: the next page.")
@click.pass_obj
def facts(
    options: Options,
    *,
    job: str | None,
    types: tuple[str, ...],
    source: str | None,
    since_s: float | None,
    limit: int,
    before: int | None,
) -> None:
    """List facts, the newest first: failures, costs, and changes with person and reason."""
    output = Output(options)
    output.chosen(COLUMNS)
    with session(options) as call:
        rows = call(
            store.page,
            types=types or store.TYPES,
            since_s=SPAN_MAX_S if since_s is None else since_s,
            source=source,
            job_id=call(jobs.find, job) if job else None,
            before=before,
            limit=limit,
        )
    is_filtered = any((job, types, source, since_s, before))
    output.listing(
        "facts", COLUMNS, rows, empty="no fact matches" if is_filtered else ("nothing is recorded")
    )
    if len(rows) == limit and output.terminal.is_tty:
        output.say(f"older ones: --before {rows[-1].id}", "dim")


def fact_text(fact: ListedFact) -> str:
    """Describe a fact in one line: the change and its reason, the failure, or the cost."""
    data: dict[str, Any] = fact.data
    match fact.type:
        case "lifecycle":
            return change_text(data)
        case "cost":
            used = tokens(data["usage"]) if data.get("usage") else ""
            parts = [data.get("outcome"), used, "estimated" if data.get("estimated") else ""]
            return " · ".join(str(part) for part in parts if part)
        case _:
            return " · ".join(str(data[k]) for k in ("class", "message") if data.get(k))


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


def _at(row: ListedFact) -> Cell:
    return Cell(date_time(row.at), "dim")


def _job(row: ListedFact) -> Cell:
    return Cell(short_id(row.job_id), "bold") if row.job_id else Cell(NOTHING, "dim")


def _text(text: str | None) -> Cell:
    return Cell(safe(text)) if text else Cell(NOTHING, "dim")


def _amount(row: ListedFact) -> Cell:
    amount: Decimal | None = row.amount
    return Cell(NOTHING, "dim") if amount is None else Cell(money(amount))


COLUMNS: Final[Sequence[Field[ListedFact]]] = (
    Field(name="id", shown=lambda r: Cell(str(r.id), "dim"), is_spare=True),
    Field(name="at", value=lambda r: rfc3339(r.at), shown=_at),
    Field(name="type", shown=lambda r: Cell(r.type, _STYLES[r.type]), is_spare=True),
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
    Field(name="amount", shown=_amount, is_right=True, is_spare=True),
    *on_demand("currency", "tenant", "attempt", "agent", "agent_id", "agent_version"),
    *on_demand("pod", "pod_id", "trace_id"),
    # An error and the cost of the same call share it.
    Field(
        name="call_id",
        value=lambda r: r.call_id or r.data.get("call_id"),
        is_default=False,
    ),
    *on_demand("resolves", "is_resolved"),
    *on_demand("resolved_by", "data"),
)
