"""Flows and their newest versions."""

from typing import Final

from cortex.store import flows
from cortex.store.spec_versions import SpecVersion
from cortex.view.resource import Field, NamedResource
from cortex.view.spec_versions import columns_of

FIELDS: Final = columns_of(
    "flow",
    Field(
        name="steps", doc="number of steps", kind=int, value=lambda r: len(r.spec.get("steps", ()))
    ),
)

FLOWS: Final = NamedResource(
    name="Flow",
    noun="flows",
    doc="The newest version of a flow.",
    row=SpecVersion,
    fields=FIELDS,
    empty="no flows yet: cortex flows apply FILE",
    page=flows.page,
    page_rows=200,
    unlisted=frozenset({"now"}),
)
