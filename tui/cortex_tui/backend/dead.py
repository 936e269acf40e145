"""Dead letters, read and settled in Postgres with the functions behind `cortex dead`."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import orjson

from cortex.domain.argument_check import check_payload
from cortex.domain.canonical import canonical, parse
from cortex.domain.clock import system_chance
from cortex.domain.dead_letter import DeadLetter, DeadLetterGroup, PayloadEdit
from cortex.domain.errors import InvalidValueError
from cortex.domain.limits import PAYLOAD
from cortex.domain.phrases import short_id
from cortex.postgres.database import Database
from cortex.store import codes, dead_letters
from cortex.store.dead_letters import NewestLetters, Resubmission

LOOKED_MAX: Final = 5_000
"""The newest letters that a poll reads: it costs the same however many there are."""
ERRORS_MAX: Final = 200


class StoreDead:
    """The dead letters, backed by the database."""

    def __init__(self, db: Database, *, credential: str) -> None:
        self._db = db
        self._credential = credential

    async def errors(self) -> Sequence[DeadLetterGroup]:
        """Read the newest dead letters grouped by error, the latest error first."""
        return await dead_letters.groups(self._db, looked_max=LOOKED_MAX, limit=ERRORS_MAX)

    async def letters(self, fingerprint: str, *, limit: int) -> NewestLetters:
        """Read the newest dead letters of an error, at most `limit`."""
        return await dead_letters.newest_of(
            self._db, fingerprint, looked_max=LOOKED_MAX, limit=limit
        )

    async def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[DeadLetter]:
        """Read the dead letters of jobs."""
        return await dead_letters.of_jobs(self._db, job_ids)

    async def payload(self, job_id: UUID) -> Any:
        """Read the payload of a failed job."""
        return (await dead_letters.show(self._db, job_id)).payload

    async def edited(self, letter: DeadLetter, text: str) -> PayloadEdit:
        """Check another payload against what live pods take, and compare it with the job's.

        Raises `InvalidValueError` that names every argument that does not fit, and `UsageError` if
        nothing differs.
        """
        payload = checked_payload(text)
        served = await codes.served(self._db, letter.type, is_exact=True)
        check_payload(letter.type, payload, own=None, live=served.codes)
        return PayloadEdit.of(letter.type, await self.payload(letter.job_id), payload)

    async def retry(
        self, job_id: UUID, *, by: str, reason: str, edit: PayloadEdit | None = None
    ) -> str:
        """Create a job that continues a failed one, maybe with another payload.

        Returns the outcome.

        Raises `ConflictError` with the decision that came first.
        """
        wanted = Resubmission(job_id=job_id, new_id=system_chance().new_id(), edit=edit)
        waiting = None
        if edit is None:
            waiting = await dead_letters.waiting_for_code(self._db, job_id, find=_no_type)
        (done,) = await dead_letters.resubmit(
            self._db, [wanted], by=by, credential=self._credential, reason=reason
        )
        if done.error is not None:
            raise done.error
        outcome = f"retried as {short_id(wanted.new_id)}"
        return outcome if waiting is None else f"{outcome} · {waiting}"

    async def discard(self, job_id: UUID, *, by: str, reason: str) -> str:
        """Discard a failed job; return the outcome. Raises as `retry`."""
        (done,) = await dead_letters.discard(self._db, [job_id], by=by, reason=reason)
        if done.error is not None:
            raise done.error
        return "discarded"


def _no_type(_: str) -> None:
    """The terminal UI has no job types of its own."""


def checked_payload(text: str) -> str:
    """Return a payload as canonical JSON.

    Raises `InvalidValueError` for text that is no JSON object, or is too large.
    """
    PAYLOAD.check(len(text.encode(errors="replace")), what="payload")
    value = parse(text, what="payload")
    if not isinstance(value, dict):
        raise InvalidValueError("payload must be a JSON object by the handler's arguments")
    payload = canonical(value, what="payload")
    if canonical(orjson.loads(payload)) != payload:  # pods would read another number
        message = "payload holds a number that does not fit into 64 bits"
        raise InvalidValueError(message, hint="send it as text")
    return payload
