"""Keeps a fixed set of actors running: restarts a crashed one, gives up if it crashes too often.

Owns: one trio task and one cancel scope per child, inside the nursery of a phase, and each child's
status. It is meant for the few actors that make a pod, not for one actor per job.

On failure of a child: the crash is logged with its traceback, and the child is run again after a
jittered back-off. Too many crashes within the policy's window raise `SupervisorEscalated` out of
the phase, which cancels the other children: the pod ends. A crash before the first `started()` is
not restarted; `start` raises it. What is not an `Exception` (a cancellation, a keyboard interrupt)
is never absorbed.

On stop: the phase decides (see `phases.py`). While it is being left a crashed child is still
restarted, within the grace, so that it can finish its work, and a permanent one may return.
A child that raises while the phase is being cancelled is not restarted; its error leaves the phase.
"""

import math
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial

import attrs
import structlog
import trio

from cortex.actors.actor import Actor
from cortex.actors.phases import (
    Phase,
    Seconds,
    ShutdownLog,
    is_being_cancelled,
    is_only_cancelled,
    phase,
)
from cortex.actors.restart import CrashWindow, RestartPolicy
from cortex.domain.errors import CortexError

_log = structlog.get_logger(__name__)


class SupervisorEscalated(CortexError):
    """An actor crashed too often within the window; its last error is the `__cause__`."""

    code = "escalated"

    def __init__(self, child: str, *, crash_count: int, window_s: float) -> None:
        super().__init__(
            f"actor {child!r} crashed {crash_count} times within {window_s:g} s",
            hint="the log has each crash with its traceback; the pod is safe to start again",
        )
        self.child = child
        self.crash_count = crash_count
        self.window_s = window_s


class ActorReturned(Exception):
    """A permanent actor returned although it was not stopped."""


class ChildState(StrEnum):
    """The state of a child; the last three are final."""

    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """The child does not run and will not be run again."""
        return self in (ChildState.FINISHED, ChildState.CANCELLED, ChildState.FAILED)


@attrs.frozen
class ChildStatus:
    """One child at one instant; `restarts` counts since it was started, `last_error` is kept."""

    name: str
    state: ChildState
    restarts: int
    last_error: Exception | None


class _Child:
    """The supervisor's record of one actor."""

    def __init__(self, actor: Actor, *, policy: RestartPolicy) -> None:
        self.actor = actor
        self.policy = policy
        self.scope = trio.CancelScope()
        self.crashes = CrashWindow(policy.window_s)
        self.state = ChildState.STARTING
        self.was_ready = False
        self.restarts = 0
        self.last_error: Exception | None = None

    def status(self) -> ChildStatus:
        return ChildStatus(self.actor.name, self.state, self.restarts, self.last_error)


@attrs.frozen
class _Readiness:
    """Waits for a run's first `started()` on behalf of `start`."""

    child: _Child
    starter: trio.TaskStatus[None]

    def started(self, value: None = None) -> None:
        self.child.state = ChildState.RUNNING
        if not self.child.was_ready:
            self.child.was_ready = True
            self.starter.started(value)


class Supervisor:
    """Runs actors in the nursery of `level`; made by `open_supervisor`, or on an open phase."""

    def __init__(self, level: Phase, *, rng: random.Random, restart: RestartPolicy) -> None:
        self.level = level
        self._rng = rng
        self._restart = restart
        self._children: dict[str, _Child] = {}

    async def start(self, actor: Actor, *, restart: RestartPolicy | None = None) -> None:
        """Run the actor and wait until it is ready; `restart` replaces the supervisor's policy.

        Raises what the actor raised if it failed before it was ready, `RuntimeError` if it returned
        or was cancelled before, `ValueError` if a child of that name is alive. After any of these
        and after `trio.Cancelled` the actor does not run and is not a child.
        """
        known = self._children.get(actor.name)
        if known is not None and not known.state.is_final:
            raise ValueError(f"supervisor {self.level.name!r} has an actor {actor.name!r} already")
        child = _Child(actor, policy=restart or self._restart)
        self._children[actor.name] = child
        try:
            await self.level.nursery.start(partial(self._supervise, child), name=actor.name)
        except BaseException:
            del self._children[actor.name]
            raise

    def cancel(self, name: str) -> None:
        """Cancel one child for good; it ends at its next Trio checkpoint, `children` shows when.

        An error that it raises while ending is logged and kept as its `last_error`, no more.
        Nothing happens if it has ended already. Raises `KeyError` for an unknown name.
        """
        self._children[name].scope.cancel(reason=f"supervisor {self.level.name!r}")

    def children(self) -> tuple[ChildStatus, ...]:
        """The status of every child so far, ended ones included, in order of their start."""
        return tuple(child.status() for child in self._children.values())

    async def _supervise(
        self, child: _Child, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Be the child's trio task: run it to its end, then record in its state how it ended."""
        try:
            with child.scope:
                await self._run_until_finished(child, _Readiness(child, task_status))
        except Exception as error:
            child.state, child.last_error = ChildState.FAILED, error
            if not (child.was_ready and child.scope.cancel_called):
                raise
            self._log_crash(child, "actor crashed while being cancelled", error=error)
        except BaseException as error:
            cancelled = is_only_cancelled(error)
            child.state = ChildState.CANCELLED if cancelled else ChildState.FAILED
            raise
        else:
            cancelled = child.scope.cancelled_caught
            child.state = ChildState.CANCELLED if cancelled else ChildState.FINISHED
        if not child.was_ready:
            raise RuntimeError(f"actor {child.actor.name!r} ended before it was ready")

    async def _run_until_finished(self, child: _Child, readiness: _Readiness) -> None:
        while (error := await self._run_once(child, readiness)) is not None:
            await self._back_off(child, error)
            child.restarts += 1

    async def _run_once(self, child: _Child, readiness: _Readiness) -> Exception | None:
        """Run the actor once; return its crash, or None if it is finished."""
        child.state = ChildState.STARTING
        try:
            await child.actor.run(task_status=readiness)
        except Exception as error:
            if not child.was_ready or is_being_cancelled():
                raise
            return error
        may_return = not child.policy.is_permanent or self.level.leaving.is_set()
        if may_return or not child.was_ready or is_being_cancelled():
            return None
        return ActorReturned(f"actor {child.actor.name!r} is permanent, yet it returned")

    async def _back_off(self, child: _Child, error: Exception) -> None:
        """Wait until the child may be run again; raise `SupervisorEscalated` if it may not."""
        child.state, child.last_error = ChildState.BACKING_OFF, error
        crash_count = child.crashes.add(trio.current_time())
        if crash_count > child.policy.max_restarts:
            self._log_crash(child, "actor crashed too often", error=error)
            raise SupervisorEscalated(
                child.actor.name, crash_count=crash_count, window_s=child.policy.window_s
            ) from error
        backoff_s = child.policy.backoff_s(crash_count, self._rng)
        self._log_crash(child, "actor crashed", error=error, restart_in_s=round(backoff_s, 3))
        await trio.sleep(backoff_s)

    def _log_crash(self, child: _Child, event: str, *, error: Exception, **context: object) -> None:
        _log.error(
            event,
            actor=child.actor.name,
            supervisor=self.level.name,
            restarts=child.restarts,
            exc_info=error,
            **context,
        )


@asynccontextmanager
async def open_supervisor(
    name: str,
    *,
    rng: random.Random,
    restart: RestartPolicy,
    log: ShutdownLog,
    grace_s: Seconds = math.inf,
    bound_s: Seconds | None = None,
) -> AsyncGenerator[Supervisor, None]:
    """Open a phase whose children are supervised actors; leaving it is leaving a phase."""
    async with phase(name, grace_s=grace_s, bound_s=bound_s, log=log) as level:
        yield Supervisor(level, rng=rng, restart=restart)
