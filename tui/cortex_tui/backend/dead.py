"""Dead letters, read from and settled in Postgres, by what `cortex dead` uses."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from cortex.domain.clock import system_chance
from cortex.store import dead_letters
from cortex.store.database import Database
from cortex.store.dead_letters import LetterFilter, Resubmission, Settled, resubmissions
from cortex_tui.backend.protocol import LetterRow

LOOKED_MAX: Final = 5_000
"""Of the newest letters: a look costs the same however many there are."""
ERRORS_MAX: Final = 200
LETTERS_MAX: Final = 500
RATE_PER_S: Final = 50.0
"""So many of the new jobs become due each second, as `cortex dead retry` has it."""


class StoreDead:
    """The dead letters, on a database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def errors(self) -> Sequence[LetterRow]:
        return await dead_letters.newest(self._db, looked_max=LOOKED_MAX, limit=ERRORS_MAX)

    async def letters(self, fingerprint: str) -> Sequence[LetterRow]:
        return await dead_letters.newest_of(
            self._db, fingerprint, looked_max=LOOKED_MAX, limit=LETTERS_MAX
        )

    async def choose(self, fingerprint: str, *, limit: int) -> Sequence[UUID]:
        return await dead_letters.choose(
            self._db, LetterFilter(fingerprint=fingerprint), limit=limit
        )

    async def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[dict[str, Any]]:
        return await dead_letters.of_jobs(self._db, job_ids)

    def resubmissions(self, job_ids: Sequence[UUID]) -> Sequence[Resubmission]:
        return resubmissions(job_ids, new_id=system_chance().new_id, rate=RATE_PER_S)

    async def retry(
        self, wanted: Sequence[Resubmission], *, by: str, reason: str
    ) -> Sequence[Settled]:
        return await dead_letters.resubmit(self._db, wanted, by=by, reason=reason)

    async def discard(self, job_ids: Sequence[UUID], *, by: str, reason: str) -> Sequence[Settled]:
        return await dead_letters.discard(self._db, job_ids, by=by, reason=reason)
