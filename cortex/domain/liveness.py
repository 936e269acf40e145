"""What shows the others that a pod lives."""

from enum import StrEnum
from typing import Self


class Liveness(StrEnum):
    """By what its death is noticed."""

    LOCK = "lock"
    """Its session lock, free within a second of its death; and its heartbeat, when it hangs."""
    HEARTBEAT = "heartbeat"
    """Its heartbeat alone: behind a pooler no lock can be held."""

    @classmethod
    def of(cls, *, is_pooled: bool) -> Self:
        """Return that of a pod with a pooler between it and Postgres, or without."""
        return cls("heartbeat" if is_pooled else "lock")
