"""API tokens and the cookies of signed-in people: 256 random bits as text, kept as digests.

The text is shown once, to its owner. The database stores only its SHA-256, and finds it by that:
the timing of an index look-up can only reveal a digest, not a token.
"""

import hashlib
import re
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final
from uuid import UUID

TOKEN_PREFIX: Final = "cortex_"  # noqa: S105 -- scanners for leaked secrets recognise it
CALLBACK_PREFIX: Final = f"{TOKEN_PREFIX}callback_"
SECRET_BYTES: Final = 32
SECRET_PATTERN: Final = f"{TOKEN_PREFIX}(?:callback_)?[0-9a-f]{{64}}"
"""Tokens of the API and of callback URLs, in any text."""
_TOKEN: Final = re.compile(r"cortex_[0-9a-f]{64}", re.ASCII)
_COOKIE: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


def token_text(secret: bytes) -> str:
    """Return the token of 32 random bytes. Raises `ValueError` for another number of them."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a token has {SECRET_BYTES} random bytes, not {len(secret)}")
    return TOKEN_PREFIX + secret.hex()


def digest_of_token(token: str) -> bytes | None:
    """Return the SHA-256 of a token; None for text that cannot be one."""
    return hashlib.sha256(token.encode()).digest() if _TOKEN.fullmatch(token) else None


def digest_of_cookie(value: str) -> bytes | None:
    """Return the SHA-256 of a session's cookie; None for text that cannot be one."""
    return hashlib.sha256(value.encode()).digest() if _COOKIE.fullmatch(value) else None


def digest_of_link(token: str) -> bytes:
    """Return the SHA-256 of the token of a link to a request."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


# --- The rights of an API token's holder.


class Role(StrEnum):
    """A right to use routes; a token has one or more of them."""

    METRICS = "metrics"
    """Reads the metrics, and nothing of any job."""
    SUBMITTER = "submitter"
    """Submits jobs, and reads those that it submitted."""
    VIEWER = "viewer"
    """Reads."""
    APPROVER = "approver"
    """Reads, and decides approvals."""
    OPERATOR = "operator"
    """Reads, and acts on jobs, dead letters and breakers."""
    ADMIN = "admin"
    """Everything."""


class TokenState(StrEnum):
    """Whether a token is valid."""

    ACTIVE = "ACTIVE"
    DISABLED = "DISABLED"
    """Its person is disabled."""
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"


IMPLIED: Final[dict[Role, frozenset[Role]]] = {
    Role.METRICS: frozenset({Role.METRICS}),
    Role.SUBMITTER: frozenset({Role.SUBMITTER}),
    Role.VIEWER: frozenset({Role.VIEWER, Role.METRICS}),
    Role.APPROVER: frozenset({Role.APPROVER, Role.VIEWER, Role.METRICS}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.SUBMITTER, Role.VIEWER, Role.METRICS}),
    Role.ADMIN: frozenset(Role),
}
"""The rights that come with each role."""


def may(held: AbstractSet[Role], needed: Role) -> bool:
    """Return whether one of these roles includes the needed right."""
    return any(needed in IMPLIED[role] for role in held)


ANOTHER: Final = (
    "another person has to agree, with a token of their own: CORTEX_TOKEN=TOKEN (from "
    "cortex tokens create --name PERSON), or on the approval page"
)
"""How a second person agrees."""


def of_user(uid: int) -> str:
    """Return the credential of an operating-system user, whatever the host."""
    return f"os:{uid}"


def of_login(login: str) -> str:
    """Return the credential of a database login."""
    return f"db:{login}"


def of_token(token_id: UUID) -> str:
    """Return the credential of a token's holder."""
    return f"token:{token_id}"
