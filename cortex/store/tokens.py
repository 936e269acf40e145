"""API tokens and sessions: created, looked up by digest, revoked.

The secrets themselves never reach the database.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.errors import ConflictError, NotFoundError, UsageError
from cortex.domain.names import check_name, skeleton
from cortex.domain.people import Identity
from cortex.domain.phrases import utc_time
from cortex.domain.token import Role, TokenState, digest_of_token
from cortex.postgres.database import Database, Record
from cortex.store.rows import row_of, rows_of

PAGE_MAX: Final = 1000
ID_DIGITS_MIN: Final = 4
"""Digits of the end of an id: fewer would match accidentally."""


@attrs.frozen(kw_only=True)
class Holder:
    """The holder of a token, and the roles."""

    token_id: UUID
    name: str
    roles: frozenset[Role]
    tenant: str | None = None
    """The only tenant whose records it may read and change; None: all."""
    is_revoked: bool = False
    is_expired: bool = False

    @property
    def is_good(self) -> bool:
        """The token is valid."""
        return not (self.is_revoked or self.is_expired)


@attrs.frozen(kw_only=True)
class Token:
    """A token without its secret, which is not stored."""

    id: UUID
    name: str
    roles: tuple[Role, ...]
    tenant: str | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None
    now: datetime = attrs.field(eq=False)


@attrs.frozen(kw_only=True)
class ListedToken(Token):
    state: TokenState


@attrs.frozen(kw_only=True)
class Revoked:
    """A token that was revoked."""

    id: UUID
    name: str
    revoked_by: str
    revoked_at: datetime


async def create(
    db: Database,
    *,
    token_id: UUID,
    name: str,
    digest: bytes,
    roles: Iterable[Role],
    expires_s: float | None,
    by: Identity,
    reason: str = "",
    tenant: str | None = None,
) -> Token:
    """Create a token for the person of a name, who is made if there is none; return its row.

    Raises `ConflictError` when the id is taken, `UsageError` for a name that no person may have,
    `RejectedError` for one that can be confused with another person's, and `ForbiddenError`.
    """
    check_name(name)
    ordered = [role.value for role in Role if role in set(roles)]
    row = await db.fetch_one(
        "tokens.create",
        token_id,
        name,
        skeleton(name),
        digest,
        ordered,
        expires_s,
        by.document(),
        reason,
        tenant,
    )
    if row is None:
        raise ConflictError(f"token {token_id} exists already")
    return row_of(Token, row)


async def revoke(db: Database, token_id: UUID, *, by: Identity, reason: str) -> Revoked:
    """Revoke a token and end its sessions; return who revoked it when.

    Raises `NotFoundError`, and `ConflictError` when it was revoked before.
    """
    row = await db.fetch_one("tokens.revoke", token_id, by.document(), reason)
    if row is None:
        raise NotFoundError(f"token {token_id} does not exist", hint="list them: cortex tokens ls")
    if row["was_revoked"]:
        raise ConflictError(
            f"token {token_id} of {row['name']} was revoked by {row['revoked_by']} "
            f"at {utc_time(row['revoked_at'])}"
        )
    return row_of(Revoked, row)


async def used(db: Database, digest: bytes) -> Holder | None:
    """Return the holder of the token with this digest, and note its use; None if there is none."""
    return _holder(await db.fetch_one("tokens.used", digest))


async def identity(db: Database, token: str, *, label: str | None = None) -> Identity | None:
    """Return who holds a token, and note its use; None if it is not valid."""
    digest = digest_of_token(token.strip())
    holder = None if digest is None else await used(db, digest)
    if digest is None or holder is None or not holder.is_good:
        return None
    return Identity.signed_in(holder.name, token_id=holder.token_id, digest=digest, label=label)


async def valid(db: Database, token_ids: Sequence[UUID]) -> frozenset[UUID]:
    """Return those of these tokens that are valid now."""
    return frozenset(row["id"] for row in await db.fetch("tokens.valid", list(token_ids)))


async def exist(db: Database) -> bool:
    """Return whether any token is valid."""
    row = await db.fetch_one("tokens.exist")
    return bool(row and row["exist"])


async def page(
    db: Database, *, name: str | None = None, with_ended: bool = False, limit: int = PAGE_MAX
) -> list[ListedToken]:
    """Return tokens, newest first."""
    return rows_of(ListedToken, await db.fetch("tokens.list", name, with_ended, limit))


async def find(db: Database, named: str) -> UUID:
    """Return the token with an id, with the end of one, or of a person who has only one.

    A person's valid tokens take precedence over invalid ones. Raises `NotFoundError`, and
    `UsageError` for an ambiguous name.
    """
    rows = await page(db, with_ended=True)
    end = named.removeprefix("…").replace("-", "").lower()
    if len(end) >= ID_DIGITS_MIN and (by_id := [r for r in rows if r.id.hex.endswith(end)]):
        matches = by_id
    else:
        matches = await page(db, name=named) or await page(db, name=named, with_ended=True)
    if not matches:
        raise NotFoundError(f"token {named!r} does not exist", hint="list them: cortex tokens ls")
    if len(matches) > 1:
        ids = ", ".join(f"…{row.id.hex[-6:]}" for row in matches[:5])
        raise UsageError(f"{named!r} could be {len(matches)} tokens", hint=f"name one of: {ids}")
    return matches[0].id


async def sign_in(
    db: Database, *, cookie_digest: bytes | None, token_digest: bytes | None, lasts_s: float
) -> bool:
    """Start a session for the holder of a token; False for an invalid token."""
    return bool(await db.fetch("tokens.sign_in", cookie_digest, token_digest, lasts_s))


async def of_session(db: Database, cookie_digest: bytes) -> Holder | None:
    """Return who signed in with this cookie; None when the session is over."""
    return _holder(await db.fetch_one("tokens.of_session", cookie_digest))


async def sign_out(db: Database, cookie_digest: bytes) -> None:
    """End a session; repeating it changes nothing."""
    await db.fetch("tokens.sign_out", cookie_digest)


def _holder(row: Record | None) -> Holder | None:
    if row is None:
        return None
    return Holder(
        token_id=row["id"],
        name=row["name"],
        roles=frozenset(map(Role, row["roles"])),
        tenant=row["tenant"],
        is_revoked=row.get("is_revoked", False),
        is_expired=row.get("is_expired", False),
    )
