"""What blocks waiting jobs. It is read apart from the jobs themselves, and less often."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

import attrs

from cortex.store.jobs import JobRow

EVERY_S: Final = 5.0
"""How often to reread what blocks the waiting jobs in sight."""

Row = TypeVar("Row", bound=JobRow)


def standing(row: JobRow) -> Hashable:
    """Return a key for the job's state: a reason that was read holds only while it is equal."""
    return row.id, row.status, row.attempt, row.retry_count


class WaitReasons:
    """The reasons by the jobs' states, and when to read them again."""

    def __init__(self, *, gap_s: float = 0.0) -> None:
        """`gap_s`: the least time between reads, however many other jobs come in sight."""
        self._gap_s = gap_s
        self._texts: Mapping[Hashable, str] = {}
        self._read_at = float("-inf")

    def wants(self, rows: Sequence[JobRow], now: float) -> bool:
        """Return whether to read them: of other jobs or states soon, else at times."""
        since_s = now - self._read_at
        if not rows or since_s < self._gap_s:
            return False
        return since_s >= EVERY_S or any(standing(row) not in self._texts for row in rows)

    def begin(self, now: float) -> None:
        """Note that a read begins; one that fails counts, too."""
        self._read_at = now

    def put(self, rows: Sequence[JobRow], texts: Mapping[UUID, str]) -> None:
        """Take what was read for these rows, in place of all that was read before."""
        self._texts = {standing(row): texts.get(row.id, "") for row in rows}

    def on(self, row: Row) -> Row:
        """Return the row with its reason, if that was read for this state."""
        return attrs.evolve(row, why=self._texts.get(standing(row), ""))
