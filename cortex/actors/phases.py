"""Staged shutdown: phases are nested nurseries; leaving one sets a deadline on the next one out.

::

    async with phase("connections", grace_s=0, log=log):
        async with phase("jobs", grace_s=40, log=log) as jobs:
            async with phase("intake", grace_s=1, log=log) as intake:
                ...start everything, then wait for the signal to stop

When the innermost body ends, intake's children get 1 s to end by themselves and are cancelled
then; only after the last of them is gone do the jobs get their 40 s, and so on outwards.

Owns: the trio tasks started in its nursery, and one `PhaseRecord` in the log once it is over.

On failure: an error from the body or a child cancels the phase without grace, and every error
leaves it in an exception group; crashing is safe, lingering is not. None is lost, whether raised
before, during or after the grace.

On stop: as above. `abort()` cuts the grace short. A cancellation from outside ends body and
children at once.
"""

import math
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum

import attrs
import trio

from cortex.logger import Logger

Seconds = float | Callable[[], float]
"""A length of time; a callable is called when the phase is left."""

_log = Logger(__name__)


class Outcome(StrEnum):
    CLEAN = "clean"
    """The children ended within the grace, or were cancelled because none was planned."""
    LATE = "late"
    """As clean, but beyond the deadline: something could not be cancelled."""
    ABORTED = "aborted"
    """The deadline came first; the next phase takes over what was left."""
    CUT = "cut"
    """The grace ran out or was aborted, and what was left was cancelled."""
    CANCELLED = "cancelled"
    """A cancellation from outside ended it."""
    FAILED = "failed"
    """At least one error left it."""


@attrs.frozen
class PhaseRecord:
    """One phase that is over; `took_s` counts from the end of its body to its last child's end."""

    name: str
    outcome: Outcome
    took_s: float
    deadline_s: float
    """Seconds after the end of its body by which it should have been over."""

    @property
    def is_clean(self) -> bool:
        """The phase ended without being cut."""
        return self.outcome in (Outcome.CLEAN, Outcome.LATE, Outcome.ABORTED)


class ShutdownLog:
    """The phases that are over, in the order in which they ended: innermost first."""

    def __init__(self) -> None:
        self.records: list[PhaseRecord] = []

    @property
    def is_clean(self) -> bool:
        """No phase so far was cut, cancelled or failed."""
        return all(record.is_clean for record in self.records)

    def add(self, record: PhaseRecord) -> None:
        """Keep the record and write a log line, a warning unless clean."""
        self.records.append(record)
        write = _log.info if record.outcome is Outcome.CLEAN else _log.warning
        write(
            "phase ended",
            phase=record.name,
            outcome=record.outcome.value,
            took_s=round(record.took_s, 3),
            deadline_s=round(record.deadline_s, 3),
        )

    @contextmanager
    def timed(self, name: str, *, deadline_s: float) -> Generator["Timed", None, None]:
        """Record a block as a phase without a nursery."""
        began, block = trio.current_time(), Timed()
        try:
            yield block
        except BaseException as error:
            block.outcome = Outcome.CANCELLED if is_only_cancelled(error) else Outcome.FAILED
            raise
        finally:
            took_s = trio.current_time() - began
            self.add(PhaseRecord(name, block.outcome, took_s, deadline_s))


@attrs.define
class Timed:
    """An open phase without a nursery; the block sets its own outcome."""

    outcome: Outcome = Outcome.CLEAN


class Phase:
    """An open phase: start its children in `nursery`.

    `leaving` is set when the body is over: from then on children should come to their end.
    """

    nursery: trio.Nursery

    def __init__(self, name: str, *, grace_s: Seconds, bound_s: Seconds | None) -> None:
        self.name = name
        self.leaving = trio.Event()
        self.left_at = math.inf
        self.deadline_s = math.inf
        """Seconds after `left_at` by which it should be over."""
        self.is_aborted = False
        self._grace_s = grace_s
        self._bound_s = bound_s

    def abort(self) -> None:
        """Give no grace, or no more of it; a body that still runs is left to end by itself."""
        self.is_aborted = True
        if self.leaving.is_set():
            self.nursery.cancel_scope.cancel(reason="shutdown aborted")

    def leave(self) -> None:
        """Start the grace; called once, by `phase`, at the end of the body."""
        self.leaving.set()
        self.left_at = trio.current_time()
        grace_s = _now(self._grace_s)
        if self._bound_s is not None:
            self.deadline_s = _now(self._bound_s)
        elif self._has_grace:
            self.deadline_s = grace_s
        _log.info("phase leaving", phase=self.name, deadline_s=round(self.deadline_s, 3))
        if self.is_aborted or self._grace_s == 0:
            self.nursery.cancel_scope.cancel(reason="no grace")
        elif self.nursery.child_tasks:  # no children left, so the deadline cannot cut anything
            self.nursery.cancel_scope.deadline = self.left_at + grace_s

    def outcome(self) -> Outcome:
        """The outcome, judged by the phase's own state."""
        if self.is_aborted or (self._has_grace and self.nursery.cancel_scope.cancel_called):
            return Outcome.CUT
        is_late = trio.current_time() - self.left_at > self.deadline_s
        return Outcome.LATE if is_late else Outcome.CLEAN

    @property
    def _has_grace(self) -> bool:
        return self._grace_s != 0


@asynccontextmanager
async def phase(
    name: str, *, grace_s: Seconds, log: ShutdownLog, bound_s: Seconds | None = None
) -> AsyncGenerator[Phase, None]:
    """Open a phase around the inner ones; see the head of this file for what leaving it does.

    `grace_s` is in seconds, at least 0: 0 cancels the children as soon as the body ends, by plan;
    `math.inf` waits for them for ever. `bound_s`: by when it is late, the grace if there is one.
    Raises `ValueError` for less, else whatever body and children raised, in an exception group as a
    nursery does.
    """
    if not callable(grace_s) and not grace_s >= 0:
        raise ValueError(f"phase {name!r}: grace_s must be at least 0, not {grace_s}")
    level = Phase(name, grace_s=grace_s, bound_s=bound_s)
    try:
        async with trio.open_nursery() as level.nursery:
            try:
                yield level
            finally:
                level.leave()
    except BaseException as error:
        outcome = Outcome.CANCELLED if is_only_cancelled(error) else Outcome.FAILED
        raise
    else:
        outcome = level.outcome()
    finally:
        took_s = trio.current_time() - level.left_at
        log.add(PhaseRecord(name, outcome, took_s, level.deadline_s))


def is_only_cancelled(error: BaseException) -> bool:
    """Return whether an error is a cancellation and nothing else, in groups of any depth."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


def is_being_cancelled() -> bool:
    """Return whether the next Trio checkpoint here would raise `trio.Cancelled`."""
    return trio.current_effective_deadline() <= trio.current_time()


def _now(seconds: Seconds) -> float:
    return seconds() if callable(seconds) else seconds
