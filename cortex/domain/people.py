"""Who acts: a person or a program, by a credential; a label never replaces the name.

The database finds the person behind a credential, and refuses what the person may not do: see
`cortex.person_of`. What is here only carries the proof there.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import attrs
import orjson

from cortex.domain.errors import UsageError
from cortex.domain.names import NAME_MAX, check_name, skeleton
from cortex.domain.token import of_token, of_user

ACTOR_MAX: Final = 200
"""Characters of a name with its label."""


@attrs.frozen(kw_only=True)
class OsUser:
    """A user of the operating system: the same one on every host."""

    uid: int
    name: str
    host: str


@attrs.frozen(kw_only=True)
class Identity:
    """Who acts, and the proof; made by `signed_in`, `from_system` or `with_link`."""

    name: str
    """To show and to record: of the person, with the label beside it."""
    credential: str | None
    """Stored with what they do; None: nobody signed in."""
    digest: bytes | None = attrs.field(default=None, repr=False)
    """SHA-256 of the token, or of the cookie of a session."""
    link: bytes | None = attrs.field(default=None, repr=False)
    """SHA-256 of the token of a request's link."""
    user: OsUser | None = None
    label: str | None = None

    @classmethod
    def signed_in(
        cls, name: str, *, token_id: UUID, digest: bytes, label: str | None = None
    ) -> "Identity":
        """Return the holder of a token, or of a session that was started with it."""
        return cls(
            name=labelled(name, label), credential=of_token(token_id), digest=digest, label=label
        )

    @classmethod
    def from_system(cls, user: OsUser, *, label: str | None = None) -> "Identity":
        """Return the user of the operating system; counts where the login may administer."""
        return cls(
            name=labelled(user.name, label), credential=of_user(user.uid), user=user, label=label
        )

    @classmethod
    def with_link(cls, name: str, *, link: bytes) -> "Identity":
        """Return the reader of a link, by a name that nobody checked."""
        return cls(name=name, credential=None, link=link)

    @property
    def proven(self) -> str:
        """The credential of somebody who is not just the reader of a link."""
        if self.credential is None:
            raise AssertionError("the reader of a link does nothing but decide")
        return self.credential

    @property
    def is_signed_in(self) -> bool:
        return self.credential is not None

    def document(self) -> str:
        """Return what the database checks, as JSON; see `cortex.person_of`."""
        known: Mapping[str, Any] = {
            "digest": None if self.digest is None else self.digest.hex(),
            "link": None if self.link is None else self.link.hex(),
            "name": self.name if self.link is not None else None,
            "as": self.label,
            **(_of_user(self.user) if self.user is not None and self.digest is None else {}),
        }
        return orjson.dumps(
            {key: value for key, value in known.items() if value is not None}
        ).decode()


def labelled(name: str, label: str | None) -> str:
    """Return a name with the label beside it. Raises `UsageError` when both are too long."""
    if label is None or label == name:
        return name
    text = f"{name} ({label})"
    if len(text) > ACTOR_MAX:
        raise UsageError(
            f"--as {label!r:.80} is longer than {ACTOR_MAX - len(name) - 3} characters"
        )
    return text


def _of_user(user: OsUser) -> dict[str, Any]:
    known: dict[str, Any] = {"uid": user.uid, "host": user.host}
    name = user.name[:NAME_MAX]
    try:
        check_name(name)
    except UsageError:
        return known  # such a person is called after the uid
    return known | {"user": name, "skeleton": skeleton(name)}
