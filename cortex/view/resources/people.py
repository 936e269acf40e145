"""People: who acts, and what proves it."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.safe import safe
from cortex.store import people
from cortex.store.people import Person
from cortex.view.cells import Cell
from cortex.view.resource import Field, NamedResource, aged, on_demand


def _credentials(row: Person) -> Cell:
    tokens = "1 token" if row.tokens == 1 else f"{row.tokens} tokens" if row.tokens else ""
    shown = ", ".join(each for each in (*row.credentials, tokens) if each)
    return Cell(safe(shown)) if shown else Cell("none", "dim")


def _state(row: Person) -> Cell:
    return Cell("active", "done") if row.disabled_at is None else Cell("disabled", "fail")


FIELDS: Final[Sequence[Field[Person]]] = (
    Field(name="name", doc="recorded with all that they do", least=8, style="bold"),
    Field(
        name="credentials",
        doc="os:UID, an operating-system user on every host; db:LOGIN, a database login",
        shown=_credentials,
        least=10,
    ),
    Field(name="tokens", doc="how many are valid", is_default=False),
    Field(
        name="state",
        doc="active or disabled",
        kind=str,
        value=lambda r: "active" if r.disabled_at is None else "disabled",
        shown=_state,
    ),
    aged("created_at", title="age"),
    *on_demand("id", "created_by", "disabled_at", "disabled_by"),
)

PEOPLE: Final = NamedResource(
    name="Person",
    noun="people",
    doc="A person or a program, who counts once in a decision.",
    row=Person,
    fields=FIELDS,
    page=people.page,
    empty="no people yet: cortex people add",
    unlisted=frozenset({"now"}),
)
