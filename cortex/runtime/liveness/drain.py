"""How a pod shuts down: its present phase, and the deadline of each phase.

Owns: the present phase, the instant of the abort by trio's clock, and the stop of running jobs.
Invariants: phases follow each other in one order; no deadline ever moves away; a drain that ends
early or is cut short moves all later deadlines closer.
Shown by `/readyz`, and by the heartbeat to `cortex pods ls`.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.phases import Outcome, ShutdownLog
from cortex.crash_points import crash_point
from cortex.domain.drain import INTAKE_S, SHARES, DrainPhase, DrainStatus
from cortex.domain.errors import CortexError, UnavailableError
from cortex.runtime.running import RunningJobs, Stop

# --- The request to shut down a pod.


class Shutdown:
    """`stop` drains, `abort` hands back at once; call `request`."""

    def __init__(self) -> None:
        self.stop = trio.Event()
        self.abort = trio.Event()
        self.starting = trio.CancelScope()
        """Around a pod that has nothing to drain yet: a request ends it at once."""
        self.has_started = False
        self.is_worn_out = False
        """The pod ends because its process is of no more use: another one must replace it."""
        self.starts_again = False
        """Nobody asked the pod to end, so this process is to be replaced by a new one."""

    def request(self) -> None:
        """Drain; on a second request, abort."""
        if self.stop.is_set():
            self.abort.set()
        self.stop.set()
        if not self.has_started:
            self.starting.cancel(reason="asked to end during its start")


# ---


REPORT_EVERY_S: Final = 1.0
"""How often people get the count of remaining jobs."""
PATIENCE: Final = 0.85
"""Share of the time for handing back after which handlers that ignore that are abandoned.

In the rest of it their jobs are handed back without them."""
NAMED_MAX: Final = 10
"""How many jobs are named that could not be handed back; all are counted."""
ORDER: Final = {phase: place for place, phase in enumerate(DrainPhase)}

_log = structlog.get_logger(__name__)


class Drain:
    """The shutdown of one pod."""

    def __init__(
        self,
        *,
        drain_s: float,
        close_s: float,
        running: RunningJobs,
        on_change: Callable[[], None],
    ) -> None:
        """`drain_s`: from the signal to the abort; `close_s`: from there until all is closed.

        `on_change` is called when there is something new to show.
        """
        self._drain_s = drain_s
        self._close_s = close_s
        self._running = running
        self._on_change = on_change
        self._abort_at = 0.0
        self.phase: DrainPhase | None = None
        """None until a shutdown was requested."""
        self.is_over = trio.Event()
        """All jobs have ended, or were stopped."""
        self.finishing: list[Callable[[], Awaitable[None]]] = []
        """What is to end after the jobs, in the same time, such as messages that are being sent."""

    async def run(self, shutdown: Shutdown, log: ShutdownLog) -> None:
        """On request: let jobs reach their next checkpoint, then hand back the rest."""
        await shutdown.stop.wait()
        self._running.leaving.set()
        self.enter(DrainPhase.INTAKE)
        deadline_s = self.left_s(DrainPhase.JOBS)
        _log.info("draining", jobs=len(self._running), deadline_s=round(deadline_s, 3))
        with log.timed("jobs", deadline_s=deadline_s) as jobs:
            async with trio.open_nursery() as nursery:
                nursery.cancel_scope.deadline = trio.current_time() + deadline_s
                nursery.start_soon(self._report_often)
                nursery.start_soon(_cut_short, nursery.cancel_scope, shutdown)
                await self._running.wait_until_empty()
                for finish in self.finishing:
                    await finish()
                nursery.cancel_scope.cancel(reason="drained")
            if len(self._running):
                jobs.outcome = Outcome.ABORTED
        self.enter(DrainPhase.HAND_BACK)
        if len(self._running):
            _log.warning("handing back", jobs=len(self._running))
            self._running.end_all(Stop.HANDED_BACK)
        self.is_over.set()
        with trio.move_on_after(PATIENCE * self.left_s(DrainPhase.HAND_BACK)):
            await self._running.wait_until_empty()
        self._running.end_drain()

    def enter(self, phase: DrainPhase) -> None:
        """A phase begins, unless a later one has; the first one sets the deadlines."""
        if self.phase is not None and ORDER[phase] < ORDER[self.phase]:
            return
        now = trio.current_time()
        if self.phase is None:
            self._abort_at = now + self._drain_s
        if ORDER[phase] > ORDER[DrainPhase.JOBS]:
            self._abort_at = min(self._abort_at, now)
        self.phase = phase
        crash_point(f"drain_{phase}")
        self._on_change()

    def left_s(self, phase: DrainPhase) -> float:
        """Seconds until a phase must be over; before a shutdown, all the time that it gets."""
        if phase is DrainPhase.INTAKE:
            return INTAKE_S
        now = trio.current_time()
        abort_at = now if self.phase is None else self._abort_at
        return max(0.0, abort_at + SHARES.get(phase, 0.0) * self._close_s - now)

    @property
    def status(self) -> DrainStatus | None:
        """The present phase, for people; None until a shutdown was requested."""
        if self.phase is None:
            return None
        return DrainStatus(
            phase=self.phase,
            jobs_left=len(self._running),
            abort_in_s=self.left_s(DrainPhase.JOBS),
            closed_in_s=self.left_s(DrainPhase.SIGN_OFF),
        )

    def log_left_behind(self) -> None:
        """Log the jobs whose end the database has not recorded; other pods will find them."""
        left = self._running.left_behind
        if left:
            _log.warning(
                "jobs not handed back",
                jobs=len(left),
                first=[str(job_id) for job_id in left[:NAMED_MAX]],
                hint="other pods take them over when they find this one gone",
            )

    async def _report_often(self) -> None:
        while True:
            await trio.sleep(REPORT_EVERY_S)
            self._on_change()


async def _cut_short(drain: trio.CancelScope, shutdown: Shutdown) -> None:
    await shutdown.abort.wait()
    drain.cancel(reason="asked to end at once")


# --- The sign-off of a pod that shuts down: what it still owns goes on at once elsewhere.


async def sign_off(
    send: Callable[[], Awaitable[None]], *, may_owe: bool, rng: random.Random
) -> None:
    """Sign off; `may_owe`: the database may lack the ends of attempts of this pod."""
    backoff = LoopBackoff(rng=rng)
    while True:
        try:
            await send()
            return
        except CortexError as error:
            pause_s = backoff.failed(_log, "sign-off failed", error)
            if not (may_owe and isinstance(error, UnavailableError)):
                return
        await trio.sleep(pause_s)
