"""Reports and ends handlers that ignore cancellation: their job was stopped, but their code runs.

A handler must end when a time-out, a person or the pod's shutdown cancels it. A handler that
shields itself or swallows the cancellation holds its slot: after a while its job ends without it,
and its code with the job (see `abandoning`). One that computes without an `await` holds the whole
pod (see `loop_guard`).

Owns: a thread that polls the running jobs, since a busy loop stops everything on trio's; the tasks
of abandoned handlers until they have ended.
Writes: one log line and one fact for each report, again each time that the excess has doubled.
On failure: a fact that cannot be written is only in the log.
On stop: the thread ends by itself.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import attrs
import structlog
import trio

from cortex.actors.task_dump import lines_of
from cortex.domain.errors import CortexError
from cortex.domain.job import ABANDONED_AFTER_S
from cortex.domain.limits import THREADS_MAX, is_worn_out
from cortex.durable.abandoning import end
from cortex.durable.threads import left_threads
from cortex.postgres.bridge import Port
from cortex.runtime.loop_guard import LINES_MAX, stack_of
from cortex.runtime.running import Observer, RunningJob, RunningJobs
from cortex.store import facts
from cortex.store.facts import Fact

REPORT_AFTER_S: Final = 5.0
"""How long a handler may take to clean up."""
WORN_OUT: Final = "give calls in sync functions limits of their own, below the limit of the step"
ENDING_CHECK_S: Final = 0.1
CHECK_S: Final = 1.0
ANSWER_S: Final = 1.0
"""An event loop that does not answer for this long is blocked."""
PENDING_MAX: Final = 100
_log = structlog.get_logger(__name__)


@attrs.frozen(kw_only=True)
class DeafHandler:
    """A handler that ignores cancellation."""

    job: RunningJob
    over_s: float
    stands_at: Sequence[str]
    """The stack of its code, the innermost line last."""
    holds_loop: bool
    """It keeps all other jobs of the pod from running."""

    @property
    def fields(self) -> dict[str, Any]:
        """Fields for the log and the fact."""
        return {
            "job_type": self.job.type,
            "stopped_by": "time-out" if self.job.stop is None else self.job.stop.name.lower(),
            "over_s": round(self.over_s, 1),
            "holds_event_loop": self.holds_loop,
            "stands_at": list(self.stands_at),
        }


class DeafHandlers(Observer):
    name = "deaf handlers"

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        running: RunningJobs,
        report_after_s: float = REPORT_AFTER_S,
        abandon_after_s: float = ABANDONED_AFTER_S,
        check_s: float = CHECK_S,
        on_worn_out: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_worn_out` is called when too many threads are left behind for the pod to go on."""
        self._port = port
        self._on_worn_out = on_worn_out
        self._abandon_after_s = abandon_after_s
        self._ending: list[trio.lowlevel.Task] = []
        self._pod_id = pod_id
        self._running = running
        self._report_after_s = report_after_s
        self._check_s = check_s
        self._next_s: dict[RunningJob, float] = {}
        """The excess at which each reported job is reported again."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        send, receive = trio.open_memory_channel[DeafHandler](PENDING_MAX)
        stopped = threading.Event()
        watch = threading.Thread(
            target=self._watch,
            args=(trio.lowlevel.current_trio_token(), threading.get_ident(), send, stopped),
            name=self.name,
            daemon=True,
        )
        watch.start()
        self._is_worn_out = False
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._abandon_late)
                task_status.started()
                async for handler in receive:
                    await self._record(handler)
        finally:
            stopped.set()

    @property
    def left_count(self) -> int:
        """Abandoned handlers whose code has not ended yet."""
        return len(self._ending)

    async def _abandon_late(self) -> None:
        while True:
            late_since = time.monotonic() - self._abandon_after_s
            for job in self._running.jobs:
                if job.due_at <= late_since:
                    self._abandon(job)
            self._end()
            if not self._is_worn_out and is_worn_out(left_threads()):
                self._is_worn_out = True
                await self._wear_out(left_threads())
            await trio.sleep(ENDING_CHECK_S if self._ending else self._check_s)

    async def _wear_out(self, lost: int) -> None:
        """Drain the pod: its jobs go on where threads are left."""
        _log.error(
            "threads left behind", left=lost, of=THREADS_MAX, hint=f"the pod drains; {WORN_OUT}"
        )
        self._on_worn_out()
        data = {"lost": lost, "of": THREADS_MAX, "hint": WORN_OUT}
        await self._write(
            Fact(type="lifecycle", subtype="threads_lost", pod_id=self._pod_id, data=data)
        )

    def drain_ended(self) -> None:
        for job in self._running.jobs:
            self._abandon(job)
        self._end()

    def _abandon(self, job: RunningJob) -> None:
        if job.task is None or job.scope is None:
            return
        job.scope.cancel(reason="abandoned")
        self._ending.append(job.task)
        lease = job.lease
        _log.error("handler abandoned", job=str(lease.job_id), attempt=lease.attempt, type=job.type)
        self._running.abandon(job)

    def _end(self) -> None:
        self._ending = [task for task in self._ending if not end(task)]

    async def _record(self, handler: DeafHandler) -> None:
        lease = handler.job.lease
        fact = Fact(
            type="lifecycle",
            subtype="handler_ignores_cancellation",
            job_id=lease.job_id,
            attempt=lease.attempt,
            pod_id=self._pod_id,
            data=handler.fields,
        )
        await self._write(fact)

    async def _write(self, fact: Fact) -> None:
        try:
            await self._port(facts.append, [fact])
        except CortexError as error:
            _log.warning("fact not recorded", subtype=fact.subtype, error=error.message)

    # --- in the thread

    def _watch(
        self,
        token: trio.lowlevel.TrioToken,
        loop_thread: int,
        send: trio.MemorySendChannel[DeafHandler],
        stopped: threading.Event,
    ) -> None:
        while not stopped.wait(self._check_s):
            due = self._due()
            try:
                handler = list(self._find(due, token, loop_thread)) if due else []
                for each in handler:
                    _log.error(
                        "handler ignores cancellation",
                        job=str(each.job.lease.job_id),
                        attempt=each.job.lease.attempt,
                        **each.fields,
                    )
                    token.run_sync_soon(_send, send, each)
            except trio.RunFinishedError:
                return

    def _due(self) -> list[tuple[RunningJob, float]]:
        """Return the jobs to report now, each with the seconds since it was stopped."""
        now = time.monotonic()
        jobs = [job for job in self._running.jobs if job.task is not None]
        late = {job: now - job.due_at for job in jobs if now - job.due_at >= self._report_after_s}
        self._next_s = {job: self._next_s[job] for job in late if job in self._next_s}
        return [
            (job, over_s) for job, over_s in late.items() if over_s >= self._next_s.get(job, 0.0)
        ]

    def _find(
        self,
        due: Sequence[tuple[RunningJob, float]],
        token: trio.lowlevel.TrioToken,
        loop_thread: int,
    ) -> Iterator[DeafHandler]:
        stands_at: dict[RunningJob, list[str]] = {}
        answered = threading.Event()

        def probe() -> None:
            for job, _ in due:
                if job.task is not None:
                    stands_at[job] = [line.strip() for line in lines_of(job.task)][-LINES_MAX:]
            answered.set()

        token.run_sync_soon(probe)
        turns = answered.wait(ANSWER_S)
        for job, over_s in due:
            if turns and job in stands_at:
                where = stands_at[job]
            elif not turns and job.task is not None and _is_running(job.task):
                where = stack_of(loop_thread)
            else:
                continue  # it has ended meanwhile, or another job holds the loop
            self._next_s[job] = 2 * over_s
            yield DeafHandler(job=job, over_s=over_s, stands_at=where, holds_loop=not turns)


def _send(send: trio.MemorySendChannel[DeafHandler], handler: DeafHandler) -> None:
    # A report that cannot be sent is only in the log.
    with suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
        send.send_nowait(handler)


def _is_running(task: trio.lowlevel.Task) -> bool:
    """Return whether the loop is inside the code of this task or a child of it."""
    if getattr(task.coro, "cr_running", False):
        return True
    below = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return any(_is_running(child) for child in below)
