"""The jobs that this pod runs: who may write to them, and why they are being stopped.

Shared by the dispatcher (adds), the job actors (remove), the heartbeat (checks ownership), control
(cancels) and the pod (aborts). It lives on the trio thread only and never waits. What follows from
a change is the matter of the observers; `cortex.runtime.pod` lists them.
"""

import math
import time
from collections import deque
from enum import Enum, auto
from typing import Final
from uuid import UUID

import attrs
import trio

from cortex.domain.drain import DrainRequest
from cortex.domain.job import BULK, UPKEEP, Claim, Lease
from cortex.durable.progress import Progress
from cortex.durable.step_scope import StepScope
from cortex.durable.tracing import AttemptTrace

UNRECORDED_MAX: Final = 1_000


class Stop(Enum):
    """Why a running job's scope was cancelled."""

    CANCELLED = auto()
    """A person requested it: the job ends as CANCELLED."""
    HANDED_BACK = auto()
    """The pod is shutting down: another one goes on from the last checkpoint."""
    LEASE_LOST = auto()
    """Another attempt owns it: touch nothing more."""


@attrs.define(eq=False)
class RunningJob:
    """One attempt that runs here."""

    lease: Lease
    is_queued: bool
    deadline: float
    """When its handler must have ended, by trio's clock."""
    type: str = ""
    claim: Claim | None = None
    scope: trio.CancelScope | None = None
    """Around its handler while that runs. Its actor runs other jobs in it later."""
    is_isolated: bool = False
    """It runs in a process of its own."""
    is_extra: bool = False
    """It takes none of the pod's slots."""
    due_at: float = math.inf
    """The deadline by `time.monotonic`, which threads read; sooner when the job is stopped."""
    step_scope: StepScope | None = None
    """The scope of its steps, as far as they need none of their own; shared like `scope`."""
    task: trio.lowlevel.Task | None = None
    """The task of its handler; None before and afterwards, and in a process of its own."""
    progress: Progress | None = None
    """The progress of its handler, once that has begun."""
    trace: AttemptTrace | None = None
    """Records its spans; None: nobody does."""
    claimed_at: float = attrs.field(factory=trio.current_time)
    stop: Stop | None = None
    is_posted: bool = False
    """Its end is with the committer, and its slot is free: see `RunningJobs.free_slots`."""
    is_recorded: bool = False
    """Its end is in the record: no orphan scan is needed for it."""
    is_answered: bool = False
    """The database has confirmed its end, or that another attempt owns the job."""
    is_removed: bool = False
    is_abandoned: bool = False
    """Its end was decided without its handler, which ignores its cancellation."""

    def hand_back(self) -> None:
        """Stop the handler: another pod goes on from its last checkpoint."""
        self.end(Stop.HANDED_BACK)

    def end(self, why: Stop) -> None:
        """Stop the handler. The first reason stays, except that a lost lease overrules all."""
        if self.stop is None or why is Stop.LEASE_LOST:
            self.stop = why
        self.due_at = min(self.due_at, time.monotonic())
        if self.scope is not None:
            self.scope.cancel(reason=why.name)


class Observer:
    """An actor that acts on changes of the running jobs: it overrides what concerns it.

    Called in the trio thread; must neither wait nor raise.
    """

    def first_job_began(self) -> None:
        """The record names this pod from now on."""

    def deadline_came_closer(self) -> None:
        """`RunningJobs.next_deadline` is earlier than before."""

    def slot_freed(self) -> None:
        """The pod may have room for another job."""

    def job_ended(self, job: RunningJob) -> None:
        """A job has left its slot: its end is in the record, if it came to that."""

    def job_abandoned(self, job: RunningJob) -> None:
        """A handler still runs long after its cancellation: its job is to end without it."""

    def drain_withdrawn(self) -> None:
        """The pod may take jobs again."""

    def drain_ended(self) -> None:
        """The pod waits no longer for handlers that it has cancelled."""


class RunningJobs:
    """All attempts that run in this pod."""

    def __init__(self, *, slots: int) -> None:
        self.slots = slots
        self.observers: list[Observer] = []
        """Called in this order."""
        self._jobs: dict[UUID, RunningJob] = {}
        self.isolated_count = 0
        """Jobs among them that run in processes of their own."""
        self.extra_ids: set[UUID] = set()
        """Jobs among them that take none of the slots."""
        self._posted_count = 0
        """Jobs among them whose ends are with the committer."""
        self.next_deadline = math.inf
        """No job is overdue before."""
        self._is_empty = trio.Event()
        self.leaving = trio.Event()
        """Set when the pod shuts down: jobs are handed back at their next checkpoint."""
        self.is_drain_requested = False
        """A person asked the pod to drain: jobs are handed back, too, until that is withdrawn."""
        self.has_run = False
        """A job other than upkeep ever ran here: the record names this pod."""
        self.lost_count = 0
        """Attempts ever that ended here without a recorded end."""
        self.left_behind: list[UUID] = []
        """Jobs whose attempts were cut off before the database confirmed their end."""
        self.unrecorded: deque[UUID] = deque(maxlen=UNRECORDED_MAX)
        """Jobs whose ends the database refuses: left to the sweep, which counts them."""

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def free_slots(self) -> int:
        """Slots for further jobs; as many posted ends as there are slots take none.

        If the pod dies before its posted ends are written, their jobs run again: hence the limit.
        """
        free_again = min(self._posted_count, self.slots)
        return self.slots - len(self._jobs) + len(self.extra_ids) + free_again

    @property
    def drain_request(self) -> DrainRequest | None:
        """How far a requested drain has come; None without a request."""
        return DrainRequest(len(self._jobs)) if self.is_drain_requested else None

    def hands_back(self) -> bool:
        """No step begins here any more: jobs are handed back instead."""
        return self.leaving.is_set() or self.is_drain_requested

    @property
    def jobs(self) -> list[RunningJob]:
        """Everything that runs here. Safe to call from any thread."""
        return list(self._jobs.values())

    @property
    def job_ids(self) -> list[UUID]:
        return list(self._jobs)

    @property
    def known_ids(self) -> list[UUID]:
        """The jobs that this pod owns, as far as it knows."""
        return [*self._jobs, *self.unrecorded]

    @property
    def leases(self) -> list[Lease]:
        return [job.lease for job in self._jobs.values()]

    def lease_of(self, job_id: UUID) -> Lease | None:
        job = self._jobs.get(job_id)
        return None if job is None else job.lease

    def mark_run(self) -> None:
        """Note that the record names this pod."""
        if not self.has_run:
            self.has_run = True
            for each in self.observers:
                each.first_job_began()

    def add(self, claim: Claim, *, is_isolated: bool = False) -> RunningJob:
        """Add an attempt; an older attempt of the same job that still runs here has lost its lease.

        If the pod is draining, the claim was already in flight: hand it back immediately.
        """
        lease = claim.lease
        older = self._jobs.get(lease.job_id)
        if older is not None:
            older.end(Stop.LEASE_LOST)
            if older.is_posted:
                older.is_answered = True  # by this attempt
                self.remove(older)
        now = trio.current_time()
        job = RunningJob(
            lease,
            claim.is_queued,
            now + claim.left_s,
            type=claim.type,
            claim=claim,
            is_isolated=is_isolated,
            is_extra=claim.type == BULK,
            due_at=time.monotonic() + claim.left_s,
            claimed_at=now,
        )
        if job.deadline < self.next_deadline:
            self.expect(job.deadline)
        self._jobs[lease.job_id] = job
        if claim.type not in UPKEEP:
            self.mark_run()
        self.isolated_count += is_isolated
        if job.is_extra:
            self.extra_ids.add(lease.job_id)
        if self.hands_back():
            job.end(Stop.HANDED_BACK)
        return job

    def posted(self, job: RunningJob) -> None:
        """The committer has its end: its slot is free, and it is removed once that is answered."""
        if job.is_removed:
            return  # it is answered already
        job.is_posted = True
        self._posted_count += 1
        self.extra_ids.discard(job.lease.job_id)
        self._slot_freed()

    def give_up_posted(self) -> None:
        """Wait no longer for the answers to posted ends: these jobs are left to others."""
        if self._posted_count:
            for job in [job for job in self._jobs.values() if job.is_posted]:
                self.remove(job)

    def expect(self, deadline: float) -> None:
        """A job or a step will be overdue at this instant of trio's clock."""
        if deadline < self.next_deadline:
            self.next_deadline = deadline
            for each in self.observers:
                each.deadline_came_closer()

    def cancel_overdue(self, now: float) -> None:
        """Cancel the handlers and the steps whose deadline has passed."""
        self.next_deadline = math.inf
        for job in self._jobs.values():
            if job.step_scope is not None:
                job.step_scope.cancel_overdue(now)
                if job.step_scope.due_at > now:
                    self.next_deadline = min(self.next_deadline, job.step_scope.due_at)
            if job.deadline > now:
                self.next_deadline = min(self.next_deadline, job.deadline)
            elif job.scope is not None:
                job.scope.cancel(reason="the job's time is over")

    def remove(self, job: RunningJob) -> None:
        if job.is_removed:
            return
        job.is_removed = True
        if self._jobs.get(job.lease.job_id) is job:
            del self._jobs[job.lease.job_id]
            self.extra_ids.discard(job.lease.job_id)
        if job.is_posted:
            self._posted_count -= 1
        self.isolated_count -= job.is_isolated
        if not job.is_recorded:
            self.lost_count += 1
        if not job.is_answered:
            self.left_behind.append(job.lease.job_id)
        if not self._jobs:
            self._is_empty.set()
        if not job.is_posted or self._posted_count >= self.slots:
            self._slot_freed()
        for each in self.observers:
            each.job_ended(job)

    def _slot_freed(self) -> None:
        for each in self.observers:
            each.slot_freed()

    def abandon(self, job: RunningJob) -> None:
        """Have a job ended without its handler, which ignores its cancellation."""
        for each in self.observers:
            each.job_abandoned(job)

    def request_drain(self, *, is_requested: bool) -> None:
        """Hand jobs back and take none, or take jobs again."""
        self.is_drain_requested = is_requested
        if not is_requested:
            for each in self.observers:
                each.drain_withdrawn()

    def end_drain(self) -> None:
        """Wait no longer for handlers that are cancelled."""
        for each in self.observers:
            each.drain_ended()

    async def wait_until_empty(self) -> None:
        while self._jobs:
            self._is_empty = trio.Event()
            await self._is_empty.wait()

    def end(self, job_id: UUID, attempt: int, why: Stop) -> None:
        """Stop one attempt, if it runs here."""
        job = self._jobs.get(job_id)
        if job is not None and job.lease.attempt == attempt:
            job.end(why)

    def end_all(self, why: Stop) -> None:
        for job in list(self._jobs.values()):
            job.end(why)

    def keep_only(self, leases: list[Lease], owned: set[UUID]) -> list[Lease]:
        """Of these leases, stop the ones whose job is not owned any more; return those.

        Jobs that have ended since the leases were listed do not count as lost.
        """
        lost = [
            job
            for lease in leases
            if lease.job_id not in owned
            and (job := self._jobs.get(lease.job_id)) is not None
            and job.lease == lease
        ]
        for job in lost:
            job.end(Stop.LEASE_LOST)
        return [job.lease for job in lost]
