"""Operations of the committer that wait for rows which somebody else holds, so that others go on.

Owns: each operation from when its rows were found held until it is to be tried again.
Invariants: the operations of a job stay in their order: what comes for it later waits behind them.
"""

import math
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import attrs

from cortex.domain.backoff import Backoff
from cortex.domain.job import Operation

LOOK_BACKOFF = Backoff(base_s=0.5, cap_s=5.0)
"""Pauses between two looks, for each time that rows are held again."""


class BlockedEntry(Protocol):
    """What is kept: an operation with whoever waits for its answer."""

    operation: Operation


E = TypeVar("E", bound=BlockedEntry)


@attrs.define(eq=False)
class BlockedOperations(Generic[E]):
    """By job, in the order in which they were sent. Instants are trio's."""

    _waiting: dict[UUID, list[E]] = attrs.field(factory=dict)
    _looks: int = 0
    look_at: float = math.inf
    """When to look whether their rows are free."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __contains__(self, entry: E) -> bool:
        return any(entry is each for each in self._waiting.get(entry.operation.lease.job_id, ()))

    @property
    def job_ids(self) -> list[UUID]:
        """Whose operations wait."""
        return list(self._waiting)

    def add(self, entries: Sequence[E], now: float) -> None:
        """Somebody holds the rows of these."""
        for entry in entries:
            self._waiting.setdefault(entry.operation.lease.job_id, []).append(entry)
        self.looked(now)

    def looked(self, now: float) -> None:
        """They are held still: look again later, ever later."""
        self._looks += 1
        self.look_at = now + LOOK_BACKOFF.longest_s(self._looks)

    def is_behind(self, operation: Operation) -> bool:
        """Tell whether one of its job waits before it."""
        return operation.lease.job_id in self._waiting

    def keep(self, entry: E) -> None:
        """Let one wait behind the others of its job."""
        self._waiting[entry.operation.lease.job_id].append(entry)

    def freed(self, locked: set[UUID]) -> list[E]:
        """Take out those whose jobs nobody holds any more."""
        free = [job_id for job_id in self._waiting if job_id not in locked]
        found = [entry for job_id in free for entry in self._waiting.pop(job_id)]
        if not self._waiting:
            self._looks, self.look_at = 0, math.inf
        return found
