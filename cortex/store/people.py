"""People: who acts, and what proves it. Makes them, and maps credentials to them."""

import os
import pwd
import socket
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.names import NAME_MAX, check_name, skeleton
from cortex.domain.people import Identity, OsUser
from cortex.domain.redaction import storable
from cortex.postgres.database import Database
from cortex.store.rows import row_of, rows_of

PAGE_MAX: Final = 1000


@attrs.frozen(kw_only=True)
class Person:
    """A person or a program, and what proves it."""

    id: UUID
    name: str
    credentials: tuple[str, ...] = attrs.field(converter=tuple)
    """Operating-system users and database logins: os:UID, db:LOGIN."""
    tokens: int
    """How many are valid."""
    created_by: str
    created_at: datetime
    disabled_at: datetime | None
    disabled_by: str | None
    now: datetime = attrs.field(eq=False)


def system_user() -> OsUser:
    """Return the operating system's user of this process; one without a name is called os-UID."""
    uid = os.getuid()
    try:
        name = pwd.getpwuid(uid).pw_name  # not $LOGNAME: that is whatever they like
    except KeyError:
        name = ""
    is_name = bool(name) and storable(name) == name and len(name) <= NAME_MAX
    return OsUser(uid=uid, name=name if is_name else f"os-{uid}", host=socket.gethostname())


async def page(db: Database, *, after: str = "", limit: int = PAGE_MAX) -> list[Person]:
    """Return people by name."""
    return rows_of(Person, await db.fetch("people.list", after, limit))


async def show(db: Database, name: str) -> Person:
    """Return one person. Raises `NotFoundError`."""
    row = await db.fetch_one("people.show", name)
    if row is None:
        raise _missing(name)
    return row_of(Person, row)


async def add(
    db: Database, name: str, *, credentials: Sequence[str], by: Identity, reason: str
) -> Person:
    """Make a person, or find the one of this name, and give them credentials.

    Raises `UsageError` for a name that no person may have, `RejectedError` for one that can be
    confused with another person's, and `ForbiddenError`.
    """
    check_name(name)
    await db.fetch("people.add", name, skeleton(name), list(credentials), by.document(), reason)
    return await show(db, name)


async def switch(db: Database, name: str, *, is_enabled: bool, by: Identity, reason: str) -> Person:
    """Disable a person, whose credentials are invalid from then on, or enable them again.

    Raises `NotFoundError`, `ConflictError` when there is nothing to change, `ForbiddenError`.
    """
    row = await db.fetch_one("people.switch", name, is_enabled, by.document(), reason)
    if row is None or row["outcome"] == "missing":
        raise _missing(name)
    if row["outcome"] == "unchanged":
        raise ConflictError(f"person {name} is {'enabled' if is_enabled else 'disabled'} already")
    return await show(db, name)


@attrs.frozen(kw_only=True)
class Login:
    """The database login of a session."""

    login: str
    may_decide: bool
    """It may act as a person without a token: the owner's, or a member of cortex_operator."""


async def login(db: Database) -> Login:
    row = await db.fetch_one("people.login")
    if row is None:
        raise AssertionError("people.login always answers")
    return row_of(Login, row)


async def deciding_pods(db: Database) -> list[str]:
    """Return the logins of running pods that may act as people."""
    return [row["login"] for row in await db.fetch("people.deciding_pods")]


async def has_submitted(db: Database, credential: str | None, job_id: UUID) -> bool:
    """Return whether the person with this credential submitted a job, by any credential."""
    row = await db.fetch_one("people.has_submitted", credential, job_id)
    return bool(row and row["has_submitted"])


def _missing(name: str) -> NotFoundError:
    return NotFoundError(f"person {name!r} does not exist", hint="list them: cortex people ls")
