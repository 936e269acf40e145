"""Resolves what a person names by an id, or by the end of one."""

from uuid import UUID

from cortex.domain.errors import ConflictError, NotFoundError
from cortex.postgres.database import Database
from cortex.store.tenants import Kind, owned, require_own

DIGITS = 32
DIGITS_MIN = 4
KINDS = frozenset(Kind)


async def by_name(db: Database, reference: str, *, kind: str, query: str) -> UUID:
    """Return the object with an id or the end of one; `query` finds recent ids by their end.

    Of another tenant than that of the session, none is found. Raises `NotFoundError`, or
    `ConflictError` when several recent ids have that end.
    """
    text = reference.strip().lstrip("…~").lower().replace("-", "")
    if len(text) == DIGITS:
        try:
            named = UUID(text)
        except ValueError as error:
            raise NotFoundError(f"{reference!r} is not {_a(kind)} id") from error
        if kind in KINDS:
            await require_own(db, Kind(kind), [named])
        return named
    if len(text) < DIGITS_MIN or not set(text) <= set("0123456789abcdef"):
        raise NotFoundError(
            f"{reference!r} is not {_a(kind)} id",
            hint=f"give the id or at least its last {DIGITS_MIN} digits",
        )
    rows = await db.fetch(query, text)
    if db.tenant is not None and kind in KINDS:
        own = await owned(db, Kind(kind), [row["id"] for row in rows], tenant=db.tenant)
        rows = [row for row in rows if row["id"] in own]
    if not rows:
        raise NotFoundError(
            f"no {kind} ends with {reference!r}", hint=f"list them: cortex {kind}s ls"
        )
    if len(rows) > 1:
        ids = ", ".join(str(row["id"]) for row in rows[:3])
        raise ConflictError(f"{len(rows)} {kind}s end with {reference!r}: {ids}")
    object_id: UUID = rows[0]["id"]
    return object_id


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"
