"""Pods, queues and breakers as the terminal UI sees them, in memory, changed as Postgres would."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

import attrs

from cortex.domain.breaker import CountedError, Past, Turn
from cortex.domain.drain import Moved, MovedGroup, Whereabouts
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.store.breakers import BreakerRow
from cortex.store.limits import LimitRow
from cortex.store.pauses import PauseRow
from cortex.store.pods import PodRow
from cortex.store.queues import QueueRow
from cortex_tui.backend.breakers import StoreBreakers
from cortex_tui.backend.pods import StorePods
from cortex_tui.backend.queues import StoreQueues
from cortex_tui.clock import Clock
from tests.support.records.store_rows import a_pod_row

Row = TypeVar("Row")
Done = tuple[str, object, str, str]
"""What, to what, by whom and why."""


@attrs.define(kw_only=True)
class _Fake(Generic[Row]):
    clock: Clock
    check: Callable[[], None]
    """Raises while the cluster does not answer."""
    rows: dict[Any, Row] = attrs.field(factory=dict)
    asked: list[str] = attrs.field(factory=list)
    acted: list[Done] = attrs.field(factory=list)

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now(), UTC)

    def ago(self, seconds: float) -> datetime:
        return self.now - timedelta(seconds=seconds)

    def change(self, which: object, **fields: Any) -> None:
        self.rows[which] = _with(self.rows[which], fields)

    async def page(self) -> Sequence[Row]:
        self.asked.append("page")
        self.check()
        return list(self.rows.values())

    def _act(self, what: str, which: object, by: str, reason: str) -> None:
        self.check()
        self.acted.append((what, which, by, reason))


def _with(row: Any, fields: dict[str, Any]) -> Any:
    return attrs.evolve(row, **fields)


@attrs.define(kw_only=True)
class FakePods(_Fake[PodRow], StorePods):
    """The pods of a fake cluster."""

    where: dict[UUID, list[tuple[str, str | None, int]]] = attrs.field(factory=dict)
    """What became of the jobs that a pod handed back, on which pod, and of how many."""

    def add(self, number: int, **fields: Any) -> UUID:
        pod_id = UUID(int=number)
        running: dict[str, Any] = {
            "id": pod_id,
            "name": f"eu-{number}",
            "running": 3,
            "heartbeat_at": self.ago(1),
            "silent_after_s": 95.0,
            "loop_lag_ms": 0.8,
            "rss_bytes": 92 * 1024**2,
            "hint_latency_ms": 1.2,
            "started_at": self.ago(7200),
            "oldest_lease_at": self.ago(1),
            "longest_claim_at": self.ago(754),
            "connections": 6,
            "now": self.now,
        }
        self.rows[pod_id] = a_pod_row(**running | fields)
        return pod_id

    async def moved(self, pod_id: UUID) -> Moved:
        self.asked.append("moved")
        self.check()
        groups = self.where.get(pod_id, [])
        shown = [
            MovedGroup(what=Whereabouts(what), pod=pod, count=count) for what, pod, count in groups
        ]
        return Moved(groups=tuple(shown), is_whole=True)

    async def drain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        self._act("drain", pod_id, by, reason)
        row = self.rows[pod_id]
        if row.state not in ("READY", "DRAINING"):
            raise ConflictError(f"pod {row.name} has ended: it is {row.state}")
        if row.drain_requested_at is not None:
            return "nothing was done: it was asked to drain already"
        asked = {"drain_requested_by": by, "drain_reason": reason}
        self.change(pod_id, drain_requested_at=self.now, **asked)
        return "asked to drain"

    async def undrain(self, pod_id: UUID, *, by: str, reason: str) -> str:
        self._act("undrain", pod_id, by, reason)
        self.change(pod_id, drain_requested_at=None)
        return "takes jobs again"


def a_pause(target: Pausable, at: datetime, *, by: str = "li", reason: str = "deploy") -> PauseRow:
    return PauseRow(
        kind=target.kind,
        name=target.name,
        paused_by=by,
        paused_at=at,
        reason=reason,
        held=0,
        now=at,
    )


@attrs.define(kw_only=True)
class FakeQueues(_Fake[QueueRow], StoreQueues):
    """The queues of a fake cluster, other pauses, and limits."""

    paused: list[PauseRow] = attrs.field(factory=list)
    limited: list[LimitRow] = attrs.field(factory=list)

    def add(self, queue: str | None, **fields: Any) -> None:
        open_: dict[str, Any] = {
            "queue": queue,
            "paused_by": None,
            "paused_at": None,
            "reason": None,
            "is_strict": False,
            "ready": 4,
            "running": 2,
            "later": 0,
            "is_capped": False,
            "oldest_ready_s": 7.0,
            "now": self.now,
        }
        self.rows[queue] = QueueRow(**open_ | fields)

    async def pauses(self, only: Pausable | None = None) -> Sequence[PauseRow]:
        self.asked.append("pauses")
        self.check()
        of_queues = [
            a_pause(Pausable(PauseKind.QUEUE, row.queue or ""), row.paused_at)
            for row in self.rows.values()
            if row.paused_at is not None
        ]
        return [each for each in (*self.paused, *of_queues) if only in (None, each.target)]

    async def limits(self) -> Sequence[LimitRow]:
        self.check()
        return self.limited

    async def pause(self, target: Pausable, *, by: str, reason: str) -> str:
        if target.kind is not PauseKind.QUEUE:
            self._act("pause", target, by, reason)
            if target in [each.target for each in self.paused]:
                return "nothing was done: it was paused already"
            self.paused.append(a_pause(target, self.now, by=by, reason=reason))
            return "paused"
        queue = target.name or None
        self._act("pause", queue, by, reason)
        if self.rows[queue].paused_at is not None:
            return "nothing was done: it was paused already"
        self.change(queue, paused_at=self.now, paused_by=by, reason=reason)
        return "paused"

    async def resume(self, target: Pausable, *, by: str, reason: str) -> str:
        if target.kind is not PauseKind.QUEUE:
            self._act("resume", target, by, reason)
            left = [each for each in self.paused if each.target != target]
            is_changed, self.paused = left != self.paused, left
            return "goes on" if is_changed else "nothing was done: it is no longer paused"
        queue = target.name or None
        self._act("resume", queue, by, reason)
        self.change(queue, paused_at=None)
        return "goes on"


@attrs.define(kw_only=True)
class FakeBreakers(_Fake[BreakerRow], StoreBreakers):
    """The breakers of a fake cluster."""

    held_for_s: list[float | None] = attrs.field(factory=list)
    """For how long each was held open."""
    pasts: dict[str, Past] = attrs.field(factory=dict)

    def happened(
        self, name: str, *turns: tuple[float, str], errors: Sequence[tuple[float, str, str]] = ()
    ) -> None:
        """Change the state of a breaker, some seconds ago, with a failure."""
        befores = ["CLOSED", *(after for _, after in turns)]
        self.pasts[name] = Past(
            turns=tuple(
                Turn(at=self.ago(ago_s), before=before, after=after)
                for before, (ago_s, after) in zip(befores, turns, strict=False)
            ),
            errors=tuple(
                CountedError(at=self.ago(ago_s), code=code, message=message)
                for ago_s, code, message in errors
            ),
        )

    async def past(self, names: Sequence[str]) -> dict[str, Past]:
        self.asked.append("past")
        self.check()
        return {name: self.pasts.get(name, Past()) for name in names}

    def add(self, name: str, **fields: Any) -> None:
        closed: dict[str, Any] = {
            "name": name,
            "state": "CLOSED",
            "failures": 0,
            "opened_at": None,
            "open_until": None,
            "probe_by": None,
            "probe_pod": None,
            "forced_by": None,
            "forced_reason": None,
            "forced_at": None,
            "last_error": None,
            "escalated_at": None,
            "updated_at": self.now,
            "requests": 0,
            "waiting": 0,
            "now": self.now,
        }
        self.rows[name] = BreakerRow(**closed | fields)

    async def hold_open(self, name: str, *, by: str, reason: str, for_s: float | None) -> str:
        self._act("hold_open", name, by, reason)
        self.held_for_s.append(for_s)
        until = None if for_s is None else self.ago(-for_s)
        held = {"forced_by": by, "forced_reason": reason, "forced_at": self.now}
        held["open_until"] = until
        self.change(name, state="OPEN", opened_at=self.now, **held)
        return "held open until it is closed"

    async def close(self, name: str, *, by: str, reason: str) -> str:
        self._act("close", name, by, reason)
        if name not in self.rows:
            raise NotFoundError(f"there is no circuit breaker {name!r}")
        self.change(name, state="CLOSED", failures=0, opened_at=None, forced_by=None)
        return "closed: jobs call again"
