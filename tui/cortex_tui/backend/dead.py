"""Dead letters, read and settled in Postgres with the functions behind `cortex dead`."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.domain.clock import system_chance
from cortex.domain.dead_letter import DeadLetter, DeadLetterFilter, DeadLetterGroup
from cortex.domain.phrases import short_id
from cortex.postgres.database import Database
from cortex.store import dead_letters
from cortex.store.dead_letters import NewestLetters, Resubmission

LOOKED_MAX: Final = 5_000
"""The newest letters that a poll reads: it costs the same however many there are."""
ERRORS_MAX: Final = 200


class StoreDead:
    """The dead letters, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def errors(self) -> Sequence[DeadLetterGroup]:
        return await dead_letters.newest(self._db, looked_max=LOOKED_MAX, limit=ERRORS_MAX)

    async def letters(self, fingerprint: str, *, limit: int) -> NewestLetters:
        return await dead_letters.newest_of(
            self._db, fingerprint, looked_max=LOOKED_MAX, limit=limit
        )

    async def choose(self, fingerprint: str, *, limit: int) -> Sequence[UUID]:
        return await dead_letters.choose(
            self._db, DeadLetterFilter(fingerprint=fingerprint), limit=limit
        )

    async def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[DeadLetter]:
        return await dead_letters.of_jobs(self._db, job_ids)

    async def retry(self, job_id: UUID, *, by: str, reason: str) -> str:
        wanted = Resubmission(job_id=job_id, new_id=system_chance().new_id())
        (done,) = await dead_letters.resubmit(self._db, [wanted], by=by, reason=reason)
        if done.error is not None:
            raise done.error
        return f"retried as {short_id(wanted.new_id)}"

    async def discard(self, job_id: UUID, *, by: str, reason: str) -> str:
        (done,) = await dead_letters.discard(self._db, [job_id], by=by, reason=reason)
        if done.error is not None:
            raise done.error
        return "discarded"
