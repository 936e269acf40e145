"""People of tests: operating-system users, and holders of tokens."""

import hashlib
import zlib
from collections.abc import Iterable
from uuid import UUID, uuid4

from cortex.domain.people import Identity, OsUser
from cortex.domain.token import Role, digest_of_token, token_text
from cortex.postgres.database import Database, Profile
from cortex.postgres.session import run
from cortex.store import tokens
from cortex.store.people import system_user

UID_MIN = 100_000


def uid_of(name: str) -> int:
    """The user number that a name stands for in tests."""
    return UID_MIN + zlib.crc32(name.encode()) % 1_000_000


def user(name: str, *, label: str | None = None) -> Identity:
    """Somebody at a command line whose login may administer, without a token."""
    return Identity.from_system(OsUser(uid=uid_of(name), name=name, host="test"), label=label)


def me(label: str | None = None) -> str:
    """The name of the person who runs the tests, with a label beside it."""
    return Identity.from_system(system_user(), label=label).name


def enrolled(dsn: str, name: str, *roles: Role, number: int = 1) -> Identity:
    """The holder of a token, an approver unless other roles are given: of each number the same."""
    secret = hashlib.sha256(f"{name} {number}".encode()).digest()
    token_id = UUID(bytes=secret[:16])

    async def create(db: Database) -> None:
        if await tokens.used(db, secret) is None:
            await tokens.create(
                db,
                token_id=token_id,
                name=name,
                digest=secret,
                roles=roles or (Role.APPROVER,),
                expires_s=None,
                by=user("admin"),
            )

    run(Profile(dsn=dsn), create)
    return Identity.signed_in(name, token_id=token_id, digest=secret)


async def create_token(
    db: Database,
    *,
    roles: Iterable[str],
    name: str = "ana",
    expires_s: float | None = None,
    tenant: str | None = None,
) -> str:
    """Record a token with these roles; return its text."""
    token = token_text(uuid4().bytes + uuid4().bytes)
    digest = digest_of_token(token)
    assert digest is not None
    await tokens.create(
        db,
        token_id=uuid4(),
        name=name,
        digest=digest,
        roles=[Role(role) for role in roles],
        expires_s=expires_s,
        by=user("the test"),
        tenant=tenant,
    )
    return token
