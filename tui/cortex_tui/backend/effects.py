"""Effects, the freeze and quotas, read and changed in Postgres with the commands' functions."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.people import Identity
from cortex.domain.quota import Quota
from cortex.postgres.database import Database
from cortex.store import breakers, effects, quotas
from cortex.store.breakers import FreezeState
from cortex.store.effects import EffectDetail, EffectRow
from cortex.store.quotas import QuotaRow
from cortex.view.effects import people_missing

OTHERS_MAX: Final = 30
"""The newest effects whose outcome is known."""
QUOTAS_MAX: Final = 200


class StoreEffects:
    """The effects, backed by the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def unknown(self, *, before: UUID | None, limit: int) -> Sequence[EffectRow]:
        """Read effects with unknown outcome older than one, the newest first."""
        return await effects.page(
            self._db, statuses=(EffectStatus.UNKNOWN,), before=before, limit=limit
        )

    async def others(self) -> Sequence[EffectRow]:
        known = [status for status in EffectStatus if status is not EffectStatus.UNKNOWN]
        return await effects.page(self._db, statuses=known, limit=OTHERS_MAX)

    async def show(self, effect_id: UUID) -> EffectDetail:
        return await effects.show(self._db, effect_id)

    async def resolve(self, effect_id: UUID, said: Resolution, *, by: Identity, reason: str) -> str:
        """Record the outcome of an unknown effect; return what follows for its job.

        Raises `ConflictError` with the decision that came first.
        """
        done = await effects.resolve(self._db, effect_id, said, by=by, reason=reason)
        if done.people_missing:
            return f"{said.value}: {people_missing(done.people_missing)}"
        return f"{said.value}: {'its job goes on now' if done.job_goes_on else 'kept for its job'}"

    async def frozen(self) -> FreezeState:
        """Return whether and by whom effects are frozen, and how many jobs wait for that."""
        return await breakers.frozen(self._db)

    async def freeze(self, *, by: str, reason: str) -> str:
        """Stop new effects; return the outcome."""
        await breakers.freeze(self._db, by=by, reason=reason)
        return "effects are frozen: no pod begins one"

    async def unfreeze(self, *, by: Identity, reason: str) -> str:
        """Allow effects again; return the outcome."""
        await breakers.unfreeze(self._db, by=by, reason=reason)
        return "effects may begin again"

    async def quotas(self) -> Sequence[QuotaRow]:
        """Read the quotas by name, with their use and the number of waiting jobs."""
        return await quotas.page(self._db, limit=QUOTAS_MAX)

    async def set_quota(self, quota: Quota, *, by: str, reason: str) -> str:
        """Set the limit of a quota; return the outcome."""
        change = await quotas.put(self._db, quota, by=by, reason=reason)
        return f"{change.name}: {_plain(change.before)} → {_plain(change.after)}"

    async def remove_quota(self, name: str, *, by: str, reason: str) -> str:
        change = await quotas.remove(self._db, name, by=by, reason=reason)
        return f"{change.name}: {_plain(change.before)} → no limit"


def _plain(limit: Decimal | None) -> str:
    return "no limit" if limit is None else Quota.plain(limit)
