"""The people of a run: each has a token, made on first use, whose digest only chaos knows."""

from hashlib import sha256
from typing import Final
from uuid import UUID

from cortex.domain.errors import CortexError
from cortex.domain.people import Identity, OsUser
from cortex.domain.token import Role
from cortex.postgres.database import Database
from cortex.store import tokens

MAKER: Final = Identity.from_system(OsUser(uid=4_000_000_000, name="chaos", host="chaos"))
"""The administrator, who makes the tokens."""


def person(name: str) -> Identity:
    """Return the holder of a person's token, which `enrol` has made."""
    secret = sha256(f"chaos {name}".encode()).digest()
    return Identity.signed_in(name, token_id=UUID(bytes=secret[:16]), digest=secret)


async def enrol(db: Database, *names: str) -> None:
    """Make the tokens of these people; those that exist stay. Raises `CortexError`."""
    existing = {each.id for each in await tokens.page(db)}
    for name in names:
        secret = sha256(f"chaos {name}".encode()).digest()
        token_id = UUID(bytes=secret[:16])
        if token_id in existing:
            continue
        try:
            await tokens.create(
                db,
                token_id=token_id,
                name=name,
                digest=secret,
                roles=[Role.APPROVER, Role.OPERATOR],
                expires_s=None,
                by=MAKER,
            )
        except CortexError as error:
            if error.code != "conflict":
                raise
