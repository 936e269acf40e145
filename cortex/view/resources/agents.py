"""Agents and their newest versions."""

from typing import Final

from cortex.domain.safe import safe
from cortex.store import agents
from cortex.store.spec_versions import SpecVersion
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field, NamedResource
from cortex.view.spec_versions import columns_of

FIELDS: Final = columns_of(
    "agent",
    Field(name="model", value=lambda r: r.spec.get("model"), kind=str | None, least=12),
    Field(
        name="tools",
        value=lambda r: r.spec.get("tools"),
        kind=list[str] | None,
        shown=lambda r: Cell(safe(", ".join(r.spec.get("tools", ()))) or NOTHING),
        least=12,
    ),
)

AGENTS: Final = NamedResource(
    name="Agent",
    noun="agents",
    doc="The newest version of an agent.",
    row=SpecVersion,
    fields=FIELDS,
    empty="no agents yet: cortex agents apply FILE",
    page=agents.page,
    page_rows=200,
    unlisted=frozenset({"now"}),
)
