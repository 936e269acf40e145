"""The caller of a request."""

from typing import Final
from uuid import UUID

import attrs

from cortex.domain.people import Identity, OsUser, labelled
from cortex.domain.token import Role, may, of_token, of_user


@attrs.frozen(kw_only=True)
class Principal:
    """An authenticated caller."""

    name: str
    """The person's name on the token, recorded with what they do."""
    roles: frozenset[Role]
    token_id: UUID | None = None
    tenant: str | None = None
    """The only tenant whose records the caller reads and changes; None: all."""
    digest: bytes | None = attrs.field(default=None, repr=False)
    """SHA-256 of what they showed: a token, or the cookie of a session."""
    user: OsUser | None = None
    """Who uses the database login of this process, without a token."""
    via: str | None = None
    """What they act through, if not the API itself: recorded beside the name."""

    @property
    def credential(self) -> str | None:
        """The credential id; None on public routes."""
        if self.user is not None:
            return of_user(self.user.uid)
        return None if self.token_id is None else of_token(self.token_id)

    @property
    def identity(self) -> Identity:
        """Who acts, and the proof. Raises `AssertionError` on public routes."""
        if self.credential is None:
            raise AssertionError("nobody acts on a public route")
        return Identity(
            name=self.name,
            credential=self.credential,
            digest=self.digest,
            user=self.user,
            label=self.via,
        )

    def through(self, via: str) -> "Principal":
        """Return the caller as one who acts through something: an assistant."""
        return attrs.evolve(self, name=labelled(self.name, via), via=via)

    def may(self, needed: Role) -> bool:
        """Whether one of the roles includes this right."""
        return may(self.roles, needed)


NOBODY: Final = Principal(name="nobody", roles=frozenset())
"""The caller on public routes, where no token is checked."""
