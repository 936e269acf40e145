"""Pods, read from Postgres, drained and undrained there."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from cortex.domain.drain import Moved
from cortex.postgres.database import Database
from cortex.store import drains, pods
from cortex.store.pods import PodRow

ENDED_MAX: Final = 5
"""Ended pods that are shown."""


class StorePods:
    """The list of pods, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def page(self) -> Sequence[PodRow]:
        """Read the running pods, then the ones that ended last."""
        return await pods.page(self._db, ended=ENDED_MAX)

    async def moved(self, pod_id: UUID) -> Moved:
        """Read where the jobs of a pod went."""
        return await drains.moved(self._db, pod_id)

    async def drain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        """Stop a pod from taking jobs; return the outcome."""
        is_new = await drains.request(self._db, pod_id, by=by, reason=reason)
        return "asked to drain" if is_new else "nothing was done: it was asked to drain already"

    async def undrain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        """Let a pod take jobs again; return the outcome."""
        is_changed = await drains.withdraw(self._db, pod_id, by=by, reason=reason)
        return "takes jobs again" if is_changed else "nothing was done: it is no longer draining"
