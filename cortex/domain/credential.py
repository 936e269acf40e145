"""What shows who somebody is: two people are two credentials, under two names.

An operating-system user, `os:UID@HOST`; the holder of an API token, `token:ID`; else the login at
the database, `db:NAME`, which the database enters itself.
"""

from typing import Final
from uuid import UUID

ANOTHER: Final = (
    "another person has to agree, by a credential of their own: as another operating-system user, "
    "with CORTEX_TOKEN=TOKEN (from cortex tokens create), or on the approval page"
)
"""How a second person, or one person with a second key, agrees."""


def of_user(uid: int, host: str) -> str:
    """Return the credential of an operating-system user."""
    return f"os:{uid}@{host}"


def of_token(token_id: UUID) -> str:
    """Return the credential of who holds a token."""
    return f"token:{token_id}"
