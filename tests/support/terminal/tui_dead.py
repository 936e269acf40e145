"""Dead letters and the pulse of a fake cluster, as the terminal UI sees them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.argument_check import CodeArguments, check_payload
from cortex.domain.dead_letter import (
    DeadLetter,
    DeadLetterGroup,
    DeadLetterHead,
    DeadLetterState,
    PayloadEdit,
)
from cortex.domain.errors import ConflictError
from cortex.domain.job import JobStatus
from cortex.domain.job_filter import JobFilter
from cortex.domain.messages.message import MessageStatus
from cortex.store import pulse
from cortex.store.dead_letters import NewestLetters
from cortex.store.job_choice import JobChoice
from cortex.store.pulse import Attention, Bucket, Figures, Recent
from cortex_tui.backend.dead import LOOKED_MAX, StoreDead, checked_payload
from cortex_tui.backend.pulse import StorePulse
from cortex_tui.clock import Clock

Ask = Callable[[str], None]


def _now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now(), UTC)


@attrs.define
class FakeDead(StoreDead):
    """Letters in memory; who settles one first wins."""

    clock: Clock
    ask: Ask
    """Counts a statement; raises while the cluster does not answer."""
    rows: dict[UUID, DeadLetter] = attrs.field(factory=dict)
    settled: list[tuple[str, UUID, str, str]] = attrs.field(factory=list)
    """What was done: verb, job, by whom and why."""
    payloads: dict[UUID, Any] = attrs.field(factory=dict)
    codes: list[CodeArguments] = attrs.field(factory=list)
    """What the live pods take."""
    edits: dict[UUID, str] = attrs.field(factory=dict)
    """The payloads that letters were retried with."""

    # --- the test's side

    def add(self, number: int, fingerprint: str = "f1f1", **fields: Any) -> UUID:
        """Add a letter; a larger number is newer."""
        job_id = UUID(int=number)
        one: dict[str, Any] = {
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
            "lineage_id": job_id,
            "tenant": "default",
            "triaged_at": None,
            "resolved_at": None,
            "resolved_by": None,
            "reason": None,
            "retried_as": None,
            "is_automatic": False,
            "now": _now(self.clock),
        }
        self.rows[job_id] = DeadLetter(**one | fields)
        return job_id

    def set_letter(self, job_id: UUID, **fields: Any) -> None:
        self.rows[job_id] = attrs.evolve(self.rows[job_id], **fields)

    @property
    def _waiting(self) -> list[DeadLetter]:
        open_ones = [row for row in self.rows.values() if row.state.is_unresolved]
        return sorted(open_ones, key=lambda row: row.created_at, reverse=True)

    def chosen(self, which: JobFilter, *, limit: int) -> JobChoice:
        """What an operation on the letters that wait would change."""
        self.ask("choose")
        waiting = self._waiting[::-1]
        found = [row.job_id for row in waiting if row.fingerprint.startswith(which.fingerprints)]
        return JobChoice(job_ids=found[:limit], refused={}, has_more=len(found) > limit)

    # --- the screens' side

    async def errors(self) -> Sequence[DeadLetterGroup]:
        self.ask("errors")
        groups: dict[str, list[DeadLetter]] = {}
        looked = self._waiting[:LOOKED_MAX]
        for row in looked:
            groups.setdefault(row.fingerprint, []).append(row)
        return [
            DeadLetterGroup(
                **{each.name: getattr(rows[0], each.name) for each in attrs.fields(DeadLetterHead)},
                count=len(rows),
                escalated_count=0,
                first_at=rows[-1].created_at,
                last_at=rows[0].created_at,
                is_all=len(looked) < LOOKED_MAX,
            )
            for rows in groups.values()
        ]

    async def letters(self, fingerprint: str, *, limit: int) -> NewestLetters:
        self.ask("letters")
        looked = self._waiting[:LOOKED_MAX]
        found = [row for row in looked if row.fingerprint == fingerprint][:limit]
        return NewestLetters(found, is_all=not found or len(looked) < LOOKED_MAX)

    async def of_jobs(self, job_ids: Sequence[UUID]) -> Sequence[DeadLetter]:
        self.ask("of_jobs")
        return [self.rows[each] for each in job_ids]

    async def payload(self, job_id: UUID) -> Any:
        self.ask("payload")
        return self.payloads.get(job_id, {"count": 1})

    async def edited(self, letter: DeadLetter, text: str) -> PayloadEdit:
        payload = checked_payload(text)
        check_payload(letter.type, payload, own=None, live=self.codes)
        return PayloadEdit.of(letter.type, await self.payload(letter.job_id), payload)

    async def retry(
        self, job_id: UUID, *, by: str, reason: str, edit: PayloadEdit | None = None
    ) -> str:
        if edit is not None:
            self.edits[job_id] = edit.payload
        self._settle("retry", job_id, by, reason)
        return "retried as …1"

    async def discard(self, job_id: UUID, *, by: str, reason: str) -> str:
        self._settle("discard", job_id, by, reason)
        return "discarded"

    def _settle(self, verb: str, job_id: UUID, by: str, reason: str) -> None:
        self.ask(verb)
        row = self.rows[job_id]
        if not row.state.is_unresolved:
            raise ConflictError(f"job {job_id} was {row.state.lower()} by li")
        state = "RETRIED" if verb == "retry" else "DISCARDED"
        self.set_letter(job_id, state=state, resolved_by=by)
        self.settled.append((verb, job_id, by, reason))


@attrs.define
class FakePulse(StorePulse):
    """Content of the pulse, set by the test."""

    clock: Clock
    ask: Ask
    running: int = 0
    due: int = 0
    oldest_due_s: float = 0.0
    buckets: list[Bucket] = attrs.field(factory=list)
    spent_usd: Decimal = Decimal(0)
    calls: int = 0
    failed_messages: int = 0
    waiting_messages: int = 0
    oldest_message_s: float = 0.0
    ticked_s: float | None = None
    stranded_types: tuple[str, ...] = ()
    attention_seen: Attention = attrs.field(factory=Attention)

    async def figures(self) -> Figures:
        self.ask("figures")
        jobs = {state: 0 for state in JobStatus if not state.is_terminal}
        return Figures(
            jobs=jobs | {JobStatus.RUNNING: self.running},
            due_count=self.due,
            oldest_due_s=self.oldest_due_s,
            waiting={},
            old_pauses=0,
            letters={DeadLetterState.OPEN: 0, DeadLetterState.ESCALATED: 0},
            messages={
                MessageStatus.FAILED: self.failed_messages,
                MessageStatus.PENDING: self.waiting_messages,
                MessageStatus.PROCESSING: 0,
            },
            oldest_message_s=self.oldest_message_s,
            missed_schedules=0,
            ticked_s=self.ticked_s,
            is_late={},
            stranded_count=2 * len(self.stranded_types),
            stranded_types=self.stranded_types,
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

    async def attention(self) -> Attention:
        self.ask("attention")
        return self.attention_seen


def a_bucket(**fields: Any) -> Bucket:
    """Half a minute in which nothing happened."""
    known: dict[str, Any] = {
        "span_s": pulse.BUCKET_S,
        "started": 0,
        "done": 0,
        "failed": 0,
        "wait_p50_s": None,
        "wait_p95_s": None,
        "model_p50_s": None,
        "usd": Decimal(0),
        "is_known": True,
        "is_priced": True,
    }
    return Bucket(**known | fields)
