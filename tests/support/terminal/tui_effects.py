"""Effects, the freeze and quotas as the terminal UI sees them, in memory."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.effect import EffectStatus, Resolution
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.people import Identity
from cortex.domain.quota import Quota
from cortex.store.breakers import FreezeState
from cortex.store.effects import EffectDetail, EffectRow
from cortex.store.quotas import QuotaRow
from cortex_tui.backend.effects import StoreEffects
from cortex_tui.clock import Clock

AFTER: Mapping[Resolution, str] = {
    Resolution.APPLIED: "COMPLETED",
    Resolution.NOT_APPLIED: "PENDING",
    Resolution.GIVE_UP: "ABANDONED",
}


OPEN = FreezeState(
    is_frozen=False,
    by=None,
    reason=None,
    frozen_at=None,
    waiting_jobs=0,
    now=datetime.fromtimestamp(0, UTC),
)


def _place(row: EffectRow) -> tuple[datetime, UUID]:
    return row.created_at, row.id


@attrs.define(kw_only=True)
class FakeEffects(StoreEffects):
    """The ledger of a fake cluster."""

    clock: Clock
    check: Callable[[], None]
    """Raises while the cluster does not answer."""
    rows: dict[UUID, EffectDetail] = attrs.field(factory=dict)
    limits: dict[str, QuotaRow] = attrs.field(factory=dict)
    freeze_seen: FreezeState = OPEN
    asked: list[str] = attrs.field(factory=list)
    acted: list[tuple[object, ...]] = attrs.field(factory=list)

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)

    def add(self, number: int, **fields: Any) -> UUID:
        """Add an unknown effect; a larger number is newer."""
        effect_id = UUID(int=number)
        made = self.now - timedelta(seconds=600) + timedelta(milliseconds=number)
        one: dict[str, Any] = {
            "id": effect_id,
            "job_id": UUID(int=0x9F3BC1),
            "job_status": "WAITING_FOR_APPROVAL",
            "job_type": "digest",
            "agent": "refund-bot",
            "agent_version": 3,
            "step": None,
            "key": "5 pay",
            "tool": "pay",
            "status": "UNKNOWN",
            "arguments": {"customer": "cus_88", "amount": 12.5},
            "why": "its pod died during the call",
            "attempt": 2,
            "calls_count": 1,
            "can_reconcile": False,
            "created_at": made,
            "called_at": made,
            "finished_at": None,
            "resolution": None,
            "resolved_by": None,
            "resolved_reason": None,
            "resolved_at": None,
            "result": None,
            "output": None,
            "lineage_id": UUID(int=0x9F3BC1),
            "tenant": "default",
            "digest": b"",
            "is_sure": False,
            "approval_id": None,
            "people": None,
            "agreed_by": [],
            "now": made,
        }
        self.rows[effect_id] = EffectDetail(**one | fields)
        return effect_id

    def change(self, effect_id: UUID, **fields: Any) -> None:
        self.rows[effect_id] = attrs.evolve(self.rows[effect_id], **fields)

    def add_quota(self, tool: str, limit: int, **fields: Any) -> str:
        """Add a quota of calls a day."""
        name = f"{tool}:calls:day"
        one: dict[str, Any] = {
            "name": name,
            "tool": tool,
            "argument": None,
            "unit": None,
            "period": "day",
            "limit_amount": Decimal(limit),
            "changed_by": "li",
            "changed_at": self.now - timedelta(hours=3),
            "reason": "first month",
            "used": Decimal(0),
            "created_at": self.now - timedelta(hours=3),
            "resets_at": self.now + timedelta(hours=5),
            "waiting_jobs": 0,
            "now": self.now,
        }
        self.limits[name] = QuotaRow(**one | fields)
        return name

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        self.check()

    def _newest(self, *, is_unknown: bool) -> list[EffectDetail]:
        unknown = EffectStatus.UNKNOWN
        found = [row for row in self.rows.values() if (row.status is unknown) is is_unknown]
        return sorted(found, key=_place, reverse=True)

    async def unknown(self, *, before: UUID | None, limit: int) -> Sequence[EffectRow]:
        self._ask("unknown")
        found = self._newest(is_unknown=True)
        if before is not None:
            edge = _place(self.rows[before])
            found = [row for row in found if _place(row) < edge]
        return found[:limit]

    async def others(self) -> Sequence[EffectRow]:
        self._ask("others")
        return self._newest(is_unknown=False)[:30]

    async def show(self, effect_id: UUID) -> EffectDetail:
        self._ask("show")
        if effect_id not in self.rows:
            raise NotFoundError(f"effect {effect_id} does not exist")
        return self.rows[effect_id]

    async def resolve(self, effect_id: UUID, said: Resolution, *, by: Identity, reason: str) -> str:
        self._ask("resolve")
        row = self.rows[effect_id]
        if row.status is not EffectStatus.UNKNOWN:
            text = f"{row.resolved_by} has said that already: {row.resolution}"
            raise ConflictError(f"effect {effect_id} is {row.status}: {text}")
        self.rows[effect_id] = attrs.evolve(
            row, status=AFTER[said], resolution=said, resolved_by=by.name, resolved_reason=reason
        )
        self.acted.append(("resolve", effect_id, said, by.name, reason))
        return f"{said.value}: its job goes on now"

    async def frozen(self) -> FreezeState:
        self._ask("frozen")
        return self.freeze_seen

    async def freeze(self, *, by: str, reason: str) -> str:
        self._ask("freeze")
        self.acted.append(("freeze", by, reason))
        self.freeze_seen = attrs.evolve(
            self.freeze_seen, is_frozen=True, by=by, reason=reason, frozen_at=self.now
        )
        return "effects are frozen: no pod begins one"

    async def unfreeze(self, *, by: Identity, reason: str) -> str:
        self._ask("unfreeze")
        self.acted.append(("unfreeze", by.name, reason))
        if not self.freeze_seen.is_frozen:
            raise ConflictError("effects are not frozen")
        self.freeze_seen = attrs.evolve(self.freeze_seen, is_frozen=False)
        return "effects may begin again"

    async def quotas(self) -> Sequence[QuotaRow]:
        self._ask("quotas")
        return list(self.limits.values())

    async def set_quota(self, quota: Quota, *, by: str, reason: str) -> str:
        self._ask("set_quota")
        self.acted.append(("set_quota", quota.name, quota.limit, by, reason))
        before = self.limits[quota.name]
        self.limits[quota.name] = attrs.evolve(before, limit_amount=quota.limit)
        return f"{quota.name}: changed"

    async def remove_quota(self, name: str, *, by: str, reason: str) -> str:
        self._ask("remove_quota")
        self.acted.append(("remove_quota", name, by, reason))
        if self.limits.pop(name, None) is None:
            raise NotFoundError(f"quota {name!r} does not exist")
        return f"{name}: → no limit"
