"""Operations of the committer whose rows another session holds; the others go on.

Owns: each operation from when its rows were found locked until it is tried again.
Invariants: the operations of a job stay in order: later ones wait behind the blocked ones.
"""

import math
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import attrs

from cortex.domain.backoff import Backoff
from cortex.domain.job import Operation

POLL_BACKOFF = Backoff(base_s=0.5, cap_s=5.0)
"""Pauses between two polls, by the number of times that rows were found locked."""


class BlockedEntry(Protocol):
    """An operation together with the reply that its sender waits for."""

    operation: Operation


E = TypeVar("E", bound=BlockedEntry)


@attrs.define(eq=False)
class BlockedOperations(Generic[E]):
    """By job, in the order in which they were sent. Instants are on trio's clock."""

    _waiting: dict[UUID, list[E]] = attrs.field(factory=dict)
    _polls: int = 0
    poll_at: float = math.inf
    """When to check whether the rows are free."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __contains__(self, entry: E) -> bool:
        return any(entry is each for each in self._waiting.get(entry.operation.lease.job_id, ()))

    @property
    def job_ids(self) -> list[UUID]:
        """The jobs whose operations wait."""
        return list(self._waiting)

    def add(self, entries: Sequence[E], now: float) -> None:
        """Block these entries: another session holds their rows."""
        for entry in entries:
            self._waiting.setdefault(entry.operation.lease.job_id, []).append(entry)
        self.polled(now)

    def polled(self, now: float) -> None:
        """The rows are still locked: poll again, after a longer pause."""
        self._polls += 1
        self.poll_at = now + POLL_BACKOFF.longest_s(self._polls)

    def is_behind(self, operation: Operation) -> bool:
        """Return whether an operation of the same job waits before it."""
        return operation.lease.job_id in self._waiting

    def keep(self, entry: E) -> None:
        """Let an operation wait behind the others of its job."""
        self._waiting[entry.operation.lease.job_id].append(entry)

    def freed(self, locked: set[UUID]) -> list[E]:
        """Take out the operations of jobs that are no longer locked."""
        free = [job_id for job_id in self._waiting if job_id not in locked]
        freed_entries = [entry for job_id in free for entry in self._waiting.pop(job_id)]
        if not self._waiting:
            self._polls, self.poll_at = 0, math.inf
        return freed_entries
