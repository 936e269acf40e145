"""Dead letters, read from and settled in Postgres, by what `cortex dead` uses."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.domain.clock import system_chance
from cortex.domain.dead_act import RATE_DEFAULT, ActVerb, Change
from cortex.domain.dead_letter import Letter, LetterGroup
from cortex.domain.phrases import short_id
from cortex.postgres.database import Database
from cortex.store import dead_acts, dead_letters
from cortex.store.dead_acts import DeadAct
from cortex.store.dead_letters import LetterFilter, NewestLetters, Resubmission
from cortex_tui.backend.protocol import ActRow
from cortex_tui.backend.rows import without_now

LOOKED_MAX: Final = 5_000
"""Of the newest letters: a look costs the same however many there are."""
ERRORS_MAX: Final = 200
ACTS_MAX: Final = 200
FAILURES_MAX: Final = 500


class StoreDead:
    """The dead letters, on a database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def errors(self) -> Sequence[LetterGroup]:
        return await dead_letters.newest(self._db, looked_max=LOOKED_MAX, limit=ERRORS_MAX)

    async def letters(self, fingerprint: str, *, limit: int) -> NewestLetters:
        return await dead_letters.newest_of(
            self._db, fingerprint, looked_max=LOOKED_MAX, limit=limit
        )

    async def choose(self, fingerprint: str, *, limit: int) -> Sequence[UUID]:
        return await dead_letters.choose(
            self._db, LetterFilter(fingerprint=fingerprint), limit=limit
        )

    async def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[Letter]:
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

    async def begin(
        self, verb: ActVerb, job_ids: Sequence[UUID], *, which: str, by: str, reason: str
    ) -> int:
        act = DeadAct(
            token=system_chance().new_id(),
            verb=verb,
            job_ids=job_ids,
            which=which,
            rate_per_s=RATE_DEFAULT,
            by=by,
            reason=reason,
        )
        return await dead_acts.begin(self._db, act)

    async def acts(self) -> Sequence[ActRow]:
        return [without_now(row) for row in await dead_acts.page(self._db, limit=ACTS_MAX)]

    async def failures(self, act_id: int) -> Sequence[ActRow]:
        return await dead_acts.failures(self._db, act_id, limit=FAILURES_MAX)

    async def change(self, act_id: int, how: Change, *, by: str, reason: str) -> None:
        await dead_acts.change(self._db, act_id, how, by=by, reason=reason)
