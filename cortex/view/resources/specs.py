"""Agents and flows, and their newest versions."""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, Final

from cortex.domain.safe import safe
from cortex.store import specs
from cortex.store.specs import SpecKind, SpecVersion
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING, age, money, since_s
from cortex.view.resource import Field, NamedResource


def _applied(row: SpecVersion) -> Cell:
    return Cell(safe(f"{age(since_s(row, row.applied_at))} by {row.applied_by}"))


def _resource(
    kind: SpecKind, *own: Field[SpecVersion], page: Callable[..., Any]
) -> NamedResource[SpecVersion]:
    """Return the resource of one kind: the fields of both, around its own."""
    return NamedResource(
        name=kind.title(),
        noun=kind.plural,
        doc=f"The newest version of {'an' if kind is SpecKind.AGENT else 'a'} {kind}.",
        row=SpecVersion,
        fields=(
            Field(name="name", title=kind, least=10, style="bold"),
            Field(name="version", shown=lambda r: Cell(f"v{r.version}")),
            *own,
            Field(name="applied_at", title="applied", shown=_applied),
            Field(
                name="description",
                value=lambda r: r.spec.get("description") or None,
                kind=str | None,
                least=12,
            ),
            Field(name="applied_by", is_default=False),
            Field(name="spec", doc="its specification", is_default=False),
        ),
        empty=f"no {kind.plural} yet: cortex {kind.plural} apply FILE",
        page=page,
        page_rows=200,
        unlisted=frozenset(
            {"now"} | ({"cache_hit", "cache_saved_usd"} if kind is SpecKind.FLOW else set())
        ),
    )


AGENTS: Final = _resource(
    SpecKind.AGENT,
    Field(name="model", value=lambda r: r.spec.get("model"), kind=str | None, least=12),
    Field(
        name="cache_hit",
        doc="share of its latest prompts that was read from the provider's cache",
        title="cache",
        shown=lambda r: Cell(NOTHING, "dim") if r.cache_hit is None else Cell(f"{r.cache_hit:.0%}"),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="cache_saved_usd",
        doc="what the cache saved in these calls",
        title="saved",
        shown=lambda r: (
            Cell(NOTHING, "dim") if r.cache_saved_usd is None else Cell(money(r.cache_saved_usd))
        ),
        is_right=True,
        is_spare=True,
    ),
    Field(
        name="tools",
        value=lambda r: r.spec.get("tools"),
        kind=list[str] | None,
        shown=lambda r: Cell(safe(", ".join(r.spec.get("tools", ()))) or NOTHING),
        least=12,
    ),
    page=specs.agents_with_caching,
)

FLOWS: Final = _resource(
    SpecKind.FLOW,
    Field(
        name="steps", doc="number of steps", kind=int, value=lambda r: len(r.spec.get("steps", ()))
    ),
    page=update_wrapper(partial(specs.page, kind=SpecKind.FLOW), specs.page),
)
