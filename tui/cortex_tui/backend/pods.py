"""Pods, read from Postgres, drained and let go on there."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from cortex.postgres.database import Database
from cortex.store import drains, pods
from cortex_tui.backend.protocol import PodRow
from cortex_tui.backend.rows import without_now

ENDED_MAX: Final = 5
"""Of those that ended, so many of the last ones are shown."""


class StorePods:
    """The list of pods, on a database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def page(self) -> Sequence[PodRow]:
        rows = await pods.page(self._db, ended=ENDED_MAX)
        return [without_now(row) for row in rows]

    async def moved(self, pod_id: UUID) -> Mapping[str, Any]:
        return await drains.moved(self._db, pod_id)

    async def drain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        is_new = await drains.request(self._db, pod_id, by=by, reason=reason)
        return "asked to drain" if is_new else "nothing was done: it was asked to drain already"

    async def undrain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        is_changed = await drains.withdraw(self._db, pod_id, by=by, reason=reason)
        return "takes jobs again" if is_changed else "nothing was done: nobody drains it any more"
