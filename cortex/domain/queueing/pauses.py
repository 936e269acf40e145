"""What people pause: everything, a job type, a tenant, a queue or a job."""

from enum import StrEnum
from typing import Final, Self
from uuid import UUID

import attrs

from cortex.domain.errors import UsageError

NAME_MAX: Final = 100
DEFAULT: Final = "default"
"""The queue of jobs without one; a queue that is really called so is quoted."""


class PauseKind(StrEnum):
    """What a pause holds back."""

    ALL = "all"
    TYPE = "type"
    TENANT = "tenant"
    QUEUE = "queue"
    JOB = "job"


@attrs.frozen
class Pausable:
    """What people pause: written `type:digest`, `tenant:acme`, `queue:mail`, `job:ID` or `all`."""

    kind: PauseKind
    name: str = ""
    """Empty for everything, and for the default queue."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what is named. Raises `UsageError`."""
        word, colon, name = text.partition(":")
        if word not in list(PauseKind) or (word == PauseKind.ALL) == bool(colon):
            raise UsageError(
                f"{text[:80]!r} is nothing to pause",
                hint="write all, or type:NAME, tenant:NAME, queue:NAME or job:ID",
            )
        return cls.of(PauseKind(word), name)

    @classmethod
    def of(cls, kind: PauseKind, name: str) -> Self:
        """Return the checked target. Raises `UsageError`."""
        if kind is PauseKind.ALL:
            if name:
                raise UsageError(f"all has no name, not {name[:80]!r}")
            return cls(kind)
        if not 1 <= len(name) <= NAME_MAX or "\0" in name:
            raise UsageError(f"{kind} {name[:80]!r} is not a name of 1 to {NAME_MAX} characters")
        if kind is PauseKind.JOB:
            try:
                return cls(kind, str(UUID(name)))
            except ValueError:
                raise UsageError(f"{name!r} is not the id of a job") from None
        if kind is PauseKind.QUEUE and name.strip('"') == DEFAULT:
            return cls(kind, "" if name == DEFAULT else name[1:-1])
        return cls(kind, name)

    def __str__(self) -> str:
        if self.kind is PauseKind.ALL:
            return "all"
        return f"{self.kind}:{self._shown}"

    @property
    def words(self) -> str:
        """How a sentence names it: `queue mail`, `everything`."""
        return "everything" if self.kind is PauseKind.ALL else f"{self.kind} {self._shown}"

    @property
    def _shown(self) -> str:
        if self.kind is not PauseKind.QUEUE:
            return self.name
        return f'"{self.name}"' if self.name.strip('"') == DEFAULT else self.name or DEFAULT
