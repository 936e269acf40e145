"""Who calls a tool: the holder of a token, or the database login of a process on this machine."""

from typing import Final

import attrs

from cortex.domain.errors import ForbiddenError
from cortex.domain.people import OsUser
from cortex.domain.token import Role
from cortex.http.framework.auth import Authenticator
from cortex.http.framework.principal import Principal
from cortex.postgres.bridge import Port

VIA: Final = "mcp"
"""Recorded beside the person's name, and as the channel of decisions."""
LOGIN_ROLES: Final = frozenset({Role.OPERATOR})
"""What a command may do with the same login, but for decisions, which need a person's token."""


def of_login(user: OsUser) -> Principal:
    """Return the caller without a token: the user of the operating system, as for commands."""
    return Principal(name=user.name, roles=LOGIN_ROLES, user=user)


class Callers(Authenticator):
    """Identifies the callers of tools, and keeps them to one tenant if there is one."""

    def __init__(self, port: Port, *, login: Principal | None, tenant: str | None) -> None:
        """`login`: every caller without a token; None: a token is required."""
        super().__init__(port)
        self._login = login
        self._tenant = tenant

    async def by_token(
        self, authorization: str | None, *, address: str, is_read_only: bool
    ) -> Principal:
        """Return the caller with this header, as `Authenticator.by_token` does.

        Also raises `ForbiddenError` for a token of another tenant.
        """
        if authorization is None and self._login is not None:
            found = self._login
        else:
            found = await super().by_token(
                authorization, address=address, is_read_only=is_read_only
            )
        return self._kept(found).through(VIA)

    def _kept(self, principal: Principal) -> Principal:
        if self._tenant is None or principal.tenant == self._tenant:
            return principal
        if principal.tenant is not None:
            raise ForbiddenError(
                f"{principal.name}'s token is of tenant {principal.tenant}, not {self._tenant}",
                hint=f"start `cortex mcp` without --tenant, or with --tenant {principal.tenant}",
            )
        return attrs.evolve(principal, tenant=self._tenant)
