"""Who asks for something, as handlers see it."""

from typing import Final
from uuid import UUID

import attrs

from cortex.domain.token import Role, may, of_token


@attrs.frozen(kw_only=True)
class Principal:
    """Who asks."""

    name: str
    """Of the person, as on the token: to be recorded with what they do."""
    roles: frozenset[Role]
    token_id: UUID | None = None

    @property
    def credential(self) -> str | None:
        """What shows who it is; None on public routes."""
        return None if self.token_id is None else of_token(self.token_id)

    def may(self, needed: Role) -> bool:
        """Tell whether one of the roles brings this right."""
        return may(self.roles, needed)


NOBODY: Final = Principal(name="nobody", roles=frozenset())
"""Who asks on a public route: no token is looked at there."""
