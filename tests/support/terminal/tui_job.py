"""One job as the terminal UI sees it, in memory: steps paged, details, and a model that speaks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.answer_text import AnswerPiece, Message
from cortex.domain.errors import ConflictError, NotFoundError
from cortex.domain.people import Identity
from cortex.store.children import JobTree
from cortex.store.job_screen import JobLook, StepDetail, WatchedStep
from cortex.store.jobs import ShownJob
from cortex.store.screen_head import Head
from cortex_tui.backend.job import StoreJob
from cortex_tui.backend.listening import Heard, Listening, OnStatus
from tests.support.records.job_rows import a_detail, a_shown_job, a_watched_job

BEGAN = datetime.fromtimestamp(1_000_000, UTC)
HEAD: dict[str, Any] = {"worker_attempts": 3, "agent_version": 14}


def a_step(seq: int, key: str, kind: str = "step", **fields: Any) -> WatchedStep:
    """A committed step: it began `at_s` seconds after the job did, and took `took_s`."""
    began = BEGAN + timedelta(seconds=fields.pop("at_s", float(seq - 1)))
    cost = fields.pop("cost_usd", None)
    ended = began + timedelta(seconds=fields.pop("took_s", 1.0))
    known: dict[str, Any] = {"attempt": 1, "usage": None, "is_error": False, "chunk": None}
    known |= {"started_at": began, "finished_at": ended}
    return WatchedStep(
        seq=seq,
        kind=kind,
        key=key,
        cost_usd=None if cost is None else Decimal(str(cost)),
        **known | fields,
    )


@attrs.define(eq=False)
class FakeEar(Listening):
    """A listener to one job."""

    heard: Heard
    on_status: OnStatus
    is_open: bool = False
    renewed_count: int = 0

    def renew(self) -> None:
        self.renewed_count += 1

    async def run(self) -> None:
        self.is_open = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_open = False


@attrs.define(kw_only=True)
class FakeJob(StoreJob):
    """Queries of the screen of one job."""

    row: Callable[[UUID], Mapping[str, Any] | None]
    ask: Callable[[str], None]
    """Counts a statement; raises while the cluster does not answer."""
    stands_above: Callable[[], Head]
    """What the head of the screen says."""
    details: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    """By the keys of steps."""
    ears: list[FakeEar] = attrs.field(factory=list)
    raised: list[tuple[str, Decimal, str]] = attrs.field(factory=list)
    grown: Callable[[int], JobTree] | None = None
    """The tree, with as many children of each job."""
    limits: dict[str, Decimal] = attrs.field(factory=dict)
    """Budgets that another operator raised meanwhile."""

    # --- the test's side

    def say(self, job_id: UUID, text: str, *, offset: int = 0, key: str = "ask") -> None:
        """Send output of the model to the listeners."""
        end = offset + len(text)
        piece = AnswerPiece(
            job_id=job_id, attempt=1, key=key, call=1, offset=offset, end=end, text=text
        )
        self.send(piece)

    def send(self, message: Message) -> None:
        for ear in self.ears:
            if ear.is_open:
                ear.heard(message)

    # --- the screen's side

    async def look(self, job_id: UUID, *, after: int | None, limit: int) -> JobLook:
        self.ask("look")
        steps = self._steps(job_id)
        row = dict(self.row(job_id) or {})
        newest = len(steps)
        head = {**row["checkpoint"], **({"seq": newest, "key": steps[-1].key} if steps else {})}
        found = steps[-limit:] if after is None else [s for s in steps if s.seq > after][:limit]
        job = a_watched_job({**HEAD, "lineage_id": job_id, **row, "checkpoint": head})
        return JobLook(job=job, steps=found, head=self.stands_above())

    async def steps_before(self, job_id: UUID, *, before: int, limit: int) -> Sequence[WatchedStep]:
        self.ask("steps_before")
        return [step for step in self._steps(job_id) if step.seq < before][-limit:]

    async def detail(self, job_id: UUID, key: str) -> StepDetail:
        self.ask("detail")
        self._steps(job_id)
        return a_detail(self.details.get(key, {}))

    async def tree(self, job_id: UUID, *, shown_max: int) -> JobTree:
        self.ask("tree")
        if self.grown is None:
            raise NotFoundError(f"there is no job {job_id}")
        return self.grown(shown_max)

    async def show(self, job_id: UUID) -> ShownJob:
        self.ask("show")
        row = self.row(job_id)
        if row is None:
            raise NotFoundError(f"there is no job {job_id}")
        return a_shown_job(row)

    async def document(self, job_id: UUID) -> Mapping[str, Any]:
        self.ask("document")
        steps = self._steps(job_id)
        return {"job": dict(self.row(job_id) or {}), "steps": steps, "attempts": [], "history": []}

    async def step_document(self, job_id: UUID, key: str) -> Mapping[str, Any]:  # noqa: ARG002
        self.ask("step_document")
        return {"key": key, **self.details.get(key, {})}

    def listen(self, job_id: UUID, *, heard: Heard, on_status: OnStatus) -> FakeEar:  # noqa: ARG002
        ear = FakeEar(heard, on_status)
        self.ears.append(ear)
        return ear

    async def raise_budget(self, name: str, *, to: Decimal, by: Identity) -> str:
        self.ask("raise_budget")
        if self.limits.get(name, to) > to:
            raise ConflictError(f"budget {name} is ${self.limits[name]} already")
        self.raised.append((name, to, by.name))
        return f"{name} is ${to}"

    def _steps(self, job_id: UUID) -> list[WatchedStep]:
        row = self.row(job_id)
        if row is None:
            raise NotFoundError(f"job {job_id} does not exist")
        return list(row.get("steps", ()))
