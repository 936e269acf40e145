"""Clients: what their login may do, submits under a key, and the ends of jobs that they wait for.

A client that waits for jobs listens to its own channel on a dedicated connection, and renews its
waits on the same one, so that it detects a dead connection.
"""

from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.job import Submission
from cortex.postgres.database import RUNTIME_ROLE, SUBMITTER_ROLE, Database
from cortex.postgres.dedicated import Dedicated
from cortex.store.rows import row_of

RENEW_S: Final = 10.0
LAPSE_S: Final = 30.0
"""Two renewals may be lost."""


@attrs.frozen(kw_only=True)
class Rights:
    """What a login may do in a database."""

    login: str
    database: str
    has_schema: bool
    takes: tuple[str, ...]
    """Roles that it may take."""
    has: tuple[str, ...]
    """Roles whose rights it has without taking them."""

    @property
    def may_submit(self) -> bool:
        return bool(self.takes or self.has)

    @property
    def role(self) -> str | None:
        """The role to take: the one with the most rights; None: the login has them itself."""
        return next((each for each in (RUNTIME_ROLE, SUBMITTER_ROLE) if each in self.takes), None)


async def rights(session: Dedicated) -> Rights:
    """Return what the login of a session without a role may do."""
    (row,) = await session.fetch("clients.rights")
    return row_of(Rights, row)


async def submit_once(db: Database, job: Submission, *, key: str, by: str | None) -> UUID:
    """Submit a job under an idempotency key; return the id of the first one submitted under it.

    Safe to repeat after `OutcomeUnknownError`. Raises `KeyReusedError` if the key was used for
    another submit within 24 hours, and what `jobs.submit` raises.
    """
    (row,) = await db.fetch(
        "clients.submit_once",
        job.id,
        job.type,
        job.payload,
        job.agent,
        job.tenant,
        job.queue_name,
        job.priority,
        job.delay_s,
        job.run_at,
        job.worker_attempts,
        job.max_retries,
        job.timeout_s,
        job.job_key,
        list(job.tags) or None,
        job.traceparent,
        key,
        by,
        job.due_by,
    )
    first: UUID = row["id"]
    return first


async def listen(session: Dedicated, client: UUID, ended: Callable[[list[UUID]], None]) -> None:
    """Call `ended` with jobs of this client as soon as they may have ended. Raises as `listen`.

    Any login may notify: read the jobs.
    """
    await session.listen(f"cortex_client_{client.hex}", lambda text: ended(_ids_in(text)))


def _ids_in(text: str) -> list[UUID]:
    """Return the ids in a payload; none if it is not one of ours."""
    try:
        return [UUID(each) for each in text.split(",")]
    except ValueError:
        return []


async def wait(session: Dedicated, *, client: UUID, job_ids: Sequence[UUID]) -> None:
    """Start or renew waits for the ends of jobs; a job may have ended just before."""
    await session.fetch("clients.wait", client, list(job_ids), LAPSE_S)
