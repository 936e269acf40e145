"""What the holder of an API token may do."""

from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """A right to use routes; a token has one or more of them."""

    VIEWER = "viewer"
    """Reads."""
    APPROVER = "approver"
    """Reads, and decides approvals."""
    OPERATOR = "operator"
    """Reads, and acts on jobs, dead letters and breakers."""
    ADMIN = "admin"
    """Everything."""


IMPLIED: Final[dict[Role, frozenset[Role]]] = {
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.APPROVER: frozenset({Role.APPROVER, Role.VIEWER}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.VIEWER}),
    Role.ADMIN: frozenset(Role),
}
"""The rights that come with each role."""


def may(held: AbstractSet[Role], needed: Role) -> bool:
    """Tell whether one of these roles brings the right that is needed."""
    return any(needed in IMPLIED[role] for role in held)
