"""Dead letters and the pulse of a fake cluster, as the terminal UI sees them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.dead_letter import LetterState
from cortex.domain.errors import ConflictError
from cortex.domain.job import JobStatus
from cortex.store import pulse
from cortex.store.dead_letters import Resubmission, Settled, resubmissions
from cortex.store.metrics import Figures
from cortex.store.pulse import Bucket, Recent, Trouble
from cortex_tui.clock import Clock
from tests.support.rows import new_id

Ask = Callable[[str], None]


def _now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now(), UTC)


@attrs.define
class FakeDead:
    """Letters in memory; who settles one first wins."""

    clock: Clock
    ask: Ask
    """Counts a statement; raises while the cluster does not answer."""
    rows: dict[UUID, dict[str, Any]] = attrs.field(factory=dict)
    settled: list[tuple[str, UUID, str, str]] = attrs.field(factory=list)
    """What was done: verb, job, by whom and why."""
    batches: list[int] = attrs.field(factory=list)
    """How many letters each statement settled."""
    before: Callable[[], None] = lambda: None
    """Called before each of them."""

    # --- the test's side

    def add(self, number: int, fingerprint: str = "f1", **fields: Any) -> UUID:
        """Add a letter; a larger number is newer."""
        job_id = UUID(int=number)
        self.rows[job_id] = {
            "job_id": job_id,
            "fingerprint": fingerprint,
            "type": "digest",
            "agent": "invoice-bot",
            "state": "OPEN",
            "error_class": "TRANSIENT_INFRA",
            "error_code": "overloaded",
            "error_source": None,
            "error_message": "the model is overloaded",
            "breaker": None,
            "step": "3 plan",
            "asks_again_after": None,
            "created_at": _now(self.clock) + timedelta(milliseconds=number),
            **fields,
        }
        return job_id

    @property
    def _waiting(self) -> list[dict[str, Any]]:
        open_ones = [row for row in self.rows.values() if LetterState(row["state"]).is_unresolved]
        return sorted(open_ones, key=lambda row: row["created_at"], reverse=True)

    # --- the screens' side

    async def errors(self) -> Sequence[dict[str, Any]]:
        self.ask("errors")
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in self._waiting:
            groups.setdefault(row["fingerprint"], []).append(row)
        return [
            {
                **rows[0],
                "count": len(rows),
                "escalated_count": 0,
                "first_at": rows[-1]["created_at"],
                "last_at": rows[0]["created_at"],
                "is_all": True,
            }
            for rows in groups.values()
        ]

    async def letters(self, fingerprint: str) -> Sequence[dict[str, Any]]:
        self.ask("letters")
        return [row for row in self._waiting if row["fingerprint"] == fingerprint]

    async def choose(self, fingerprint: str, *, limit: int) -> Sequence[UUID]:
        self.ask("choose")
        found = [row["job_id"] for row in self._waiting if row["fingerprint"] == fingerprint]
        return found[::-1][:limit]

    async def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[dict[str, Any]]:
        self.ask("of_jobs")
        return [self.rows[each] for each in job_ids]

    def resubmissions(self, job_ids: Sequence[UUID]) -> Sequence[Resubmission]:
        return resubmissions(job_ids, new_id=new_id, rate=50.0)

    async def retry(
        self, wanted: Sequence[Resubmission], *, by: str, reason: str
    ) -> Sequence[Settled]:
        done = self._settle("retry", [each.job_id for each in wanted], by, reason)
        heirs = {each.job_id: each.new_id for each in wanted}
        return [
            each if each.error else attrs.evolve(each, retried_as=heirs[each.job_id])
            for each in done
        ]

    async def discard(self, job_ids: Sequence[UUID], *, by: str, reason: str) -> Sequence[Settled]:
        return self._settle("discard", job_ids, by, reason)

    def _settle(self, verb: str, job_ids: Sequence[UUID], by: str, reason: str) -> list[Settled]:
        self.before()
        self.ask(verb)
        self.batches.append(len(job_ids))
        done = []
        for each in job_ids:
            row = self.rows[each]
            if not LetterState(row["state"]).is_unresolved:
                error = ConflictError(f"job {each} was {row['state'].lower()} by li")
                done.append(Settled(job_id=each, error=error))
                continue
            row["state"] = "RETRIED" if verb == "retry" else "DISCARDED"
            self.settled.append((verb, each, by, reason))
            done.append(Settled(job_id=each))
        return done


@attrs.define
class FakePulse:
    """What the pulse says, set by the test."""

    clock: Clock
    ask: Ask
    running: int = 0
    due: int = 0
    oldest_due_s: float = 0.0
    buckets: list[Bucket] = attrs.field(factory=list)
    spent_usd: Decimal = Decimal(0)
    calls: int = 0
    found: list[Trouble] = attrs.field(factory=list)

    async def figures(self) -> Figures:
        self.ask("figures")
        jobs = {state: 0 for state in JobStatus if not state.is_terminal}
        return Figures(
            jobs=jobs | {JobStatus.RUNNING: self.running},
            due_count=self.due,
            oldest_due_s=self.oldest_due_s,
            letters={LetterState.OPEN: 0, LetterState.ESCALATED: 0},
        )

    async def recent(self) -> Recent:
        self.ask("recent")
        return Recent(
            now=_now(self.clock),
            buckets=tuple(self.buckets or [a_bucket()] * pulse.BUCKETS),
            spent_usd=self.spent_usd,
            spent_s=pulse.COST_S,
            calls=self.calls,
        )

    async def troubles(self) -> Sequence[Trouble]:
        self.ask("troubles")
        return list(self.found)


def a_bucket(**fields: Any) -> Bucket:
    """Half a minute in which nothing happened."""
    known: dict[str, Any] = {
        "span_s": pulse.BUCKET_S,
        "started": 0,
        "done": 0,
        "failed": 0,
        "wait_p50_s": None,
        "usd": Decimal(0),
        "is_known": True,
        "is_priced": True,
    }
    return Bucket(**known | fields)
