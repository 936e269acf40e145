"""Tokens of the HTTP API: holders, roles and last use; never the tokens themselves."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.phrases import short_id, span
from cortex.domain.token import TokenState
from cortex.store.tokens import ListedToken
from cortex.view.cells import Cell
from cortex.view.phrases import since_s
from cortex.view.resource import Field, Resource, aged, on_demand

_STYLES: Final = {
    TokenState.ACTIVE: "done",
    TokenState.DISABLED: "fail",
    TokenState.EXPIRED: "warn",
    TokenState.REVOKED: "fail",
}


def _expires(row: ListedToken) -> Cell:
    if row.expires_at is None:
        return Cell("never", "dim")
    left_s = -since_s(row, row.expires_at)
    return Cell(f"in {span(left_s)}") if left_s > 0 else Cell("over", "dim")


FIELDS: Final[Sequence[Field[ListedToken]]] = (
    Field(name="id", shown=lambda r: Cell(short_id(r.id), "dim")),
    Field(name="name", doc="its holder", least=8, style="bold"),
    Field(name="roles", shown=lambda r: Cell(", ".join(r.roles))),
    Field(
        name="tenant",
        doc="the only one whose records it reads and changes; null: all",
        shown=lambda r: Cell("all", "dim") if r.tenant is None else Cell(r.tenant),
    ),
    Field(name="state", shown=lambda r: Cell(r.state.value.lower(), _STYLES[r.state])),
    aged("last_used_at", title="used"),
    Field(
        name="expires_at",
        doc="null: never",
        title="expires",
        shown=_expires,
        is_right=True,
        is_spare=True,
    ),
    aged("created_at", title="age", is_spare=True),
    *on_demand("created_by", "revoked_at", "revoked_by"),
)

TOKENS: Final = Resource(
    name="Token",
    noun="tokens",
    doc="A token of the HTTP API, without its secret, which is not stored.",
    row=ListedToken,
    fields=FIELDS,
    empty="no tokens yet: cortex tokens create",
    unlisted=frozenset({"now"}),
)
