"""Decides what a replay must still request before anything new may leave the job.

After a crash a handler runs again from its top. If its code was changed meanwhile, a recorded
effect may have another name now: begun under that name, it would be applied twice. So a new call
with an outside result (an effect, a model call, a question to people) begins only when the replay
has requested everything on record. Unchanged code always gets that far without the new call, since
it did so before. If every branch of the handler waits and something was not requested, the code has
diverged from the record.

A recorded step binds unless the job was on a way that this replay need not take: it was requested
while an exception was being handled, or after a step had failed. Failures are not on record; what
failed is tried again and may succeed now. A step that was requested inside another step, by its
function, binds while that function runs again, and not if the other step is on record.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import StrEnum
from typing import Any, Final

import trio

from cortex.domain.backoff import Backoff
from cortex.domain.errors import DivergedError
from cortex.domain.job import OpenEffect, Step, StepKind
from cortex.domain.timeouts import TIMEOUTS

POLL_BACKOFF: Final = Backoff(base_s=0.01, cap_s=0.5)
"""Pauses between the checks of the handler's branches."""
PATIENCE_S: Final = TIMEOUTS["step"].default_s
"""How long a branch may do something of its own before it requests what is on record."""
NAMED_MAX: Final = 5
_HINT: Final = (
    "keep the names of steps while jobs are in flight: bring the old name back and retry the job"
)


_NONE: Final[frozenset[Any]] = frozenset()


class Amid(StrEnum):
    """The circumstances in which a step was requested."""

    ERROR = "error"
    """An exception was being handled: in `except`, or on the way out in `finally`."""
    FAILURE = "failure"
    """A step of its attempt had failed, or was cancelled, and the handler went on."""


class Replay:
    """What is on record and was not requested yet. Concurrent branches may use it at once."""

    __slots__ = (
        "_begun",
        "_changes",
        "_children",
        "_has_failed",
        "_left",
        "_none_left",
        "_root",
        "_waiting",
    )

    def __init__(self, steps: Sequence[Step], effects: Sequence[OpenEffect]) -> None:
        """`effects` are those whose step is not on record."""
        self._left: dict[str, Step | OpenEffect] = {
            # Code without its patches any more is what they were for.
            step.key: step
            for step in steps
            if step.kind is not StepKind.PATCH
        }
        self._children: dict[str, list[str]] = {}
        for step in steps:
            if step.parent_key is not None:
                self._children.setdefault(step.parent_key, []).append(step.key)
        self._begun: frozenset[str] = _NONE
        if effects:
            self._left |= {effect.key: effect for effect in effects}
            self._begun = frozenset(effect.key for effect in effects)
        self._waiting: frozenset[trio.lowlevel.Task] = _NONE
        self._root = trio.lowlevel.current_task() if self._left else None
        self._none_left: trio.Event | None = None
        self._changes = 0
        self._has_failed = False

    def mark_requested(self, key: str) -> None:
        """The handler requests this step."""
        if self._left.pop(key, None) is not None:
            self._changes += 1
            if not self._left and self._none_left is not None:
                self._none_left.set()

    def mark_recorded(self, key: str) -> None:
        """The handler requests this step, and it is on record: its function does not run again."""
        self.mark_requested(key)
        self._forget_below(key)

    def adopt(self, key: str, parts: Sequence[str]) -> None:
        """Take steps as parts of step `key`, whether they are on record or not."""
        if self._left:
            self._children.setdefault(key, []).extend(parts)

    def broke_off(self, key: str, *, is_failure: bool) -> None:
        """A step of this attempt was left by an error: its function gets no further.

        `is_failure`: it failed or was cancelled; else it waits, or its lease is lost.
        """
        self._has_failed |= is_failure
        self._changes += 1
        self._forget_below(key)

    def ended(self) -> None:
        """A step of this attempt is on record: its branch goes on."""
        self._changes += 1

    @property
    def is_caught_up(self) -> bool:
        """The code has requested all steps and effects on record, also those that it may skip."""
        return not self._left

    @property
    def amid(self) -> Amid | None:
        """The circumstances of the calling code."""
        if sys.exc_info()[1] is not None:
            return Amid.ERROR
        return Amid.FAILURE if self._has_failed else None

    @property
    def is_open(self) -> bool:
        """Something on record was not requested yet."""
        return bool(self._left)

    def has_begun(self, key: str) -> bool:
        """Return whether an earlier attempt has begun this effect, whose step is not on record."""
        return key in self._begun

    def lets(self, key: str) -> bool:
        """Return whether step `key` may begin at once; else it has to wait, see `settled`."""
        return key in self._begun or not any(self._due())

    async def settled(self, key: str, *, is_over: Callable[[], bool]) -> bool:
        """Wait until `key`, which is new, may leave the job; False: nothing begins here any more.

        Raises `DivergedError` if it may not.
        """
        task = trio.lowlevel.current_task()
        self._waiting |= {task}
        try:
            return await self._until_settled(key, is_over)
        finally:
            self._waiting -= {task}

    async def _until_settled(self, key: str, is_over: Callable[[], bool]) -> bool:
        checks = 0
        changes, changed_at, stood = -1, trio.current_time(), False
        while not self.lets(key):
            if is_over():
                return False
            if changes != self._changes:
                changes, changed_at, stood = self._changes, trio.current_time(), False
            stands = self._root is not None and self._stands(self._root)
            # A second check: between two of them every branch that could go on has done so.
            if (stood and stands) or trio.current_time() - changed_at >= PATIENCE_S:
                raise self.must_not_begin(key)
            stood = stands
            checks += 1
            with trio.move_on_after(POLL_BACKOFF.longest_s(checks)):
                if self._none_left is None:
                    self._none_left = trio.Event()
                await self._none_left.wait()
        return True

    def hold(self) -> None:
        """Count the calling branch as one that waits here, for good."""
        self._waiting |= {trio.lowlevel.current_task()}

    @property
    def stands(self) -> bool:
        """Every branch of the handler waits here."""
        return self._root is not None and self._stands(self._root)

    def due(self, *, below: Collection[str] = ()) -> list[str]:
        """Return the keys on record that lie on the way and were not requested.

        Leaves out keys that only the functions of the steps `below` would request.
        """
        inner: set[str] = set()
        waiting = list(below)
        while waiting:
            inner |= (children := set(self._children.get(waiting.pop(), ())) - inner)
            waiting += children
        return [each.key for each in self._due() if each.key not in inner]

    def must_not_begin(self, key: str) -> DivergedError:
        """Return the error of a new outside call while something on record is due."""
        return self._diverged(f"new step {key!r} must not begin")

    def check_end(self, *, has_new: bool = False) -> None:
        """Raise `DivergedError` if the handler has returned without an effect or answer on record.

        `has_new`: it has done other steps, so none on record may be missing.
        If a step of the job failed, its other branches may have been cut off on the way.
        """
        kinds = (StepKind.EFFECT, StepKind.MODEL)
        if not self._has_failed and any(
            has_new or isinstance(each, OpenEffect) or each.kind in kinds for each in self._due()
        ):
            raise self._diverged("the handler has returned")

    def _forget_below(self, key: str) -> None:
        for child in self._children.pop(key, ()):
            self.mark_recorded(child)

    def _due(self) -> Iterator[Step | OpenEffect]:
        """What is on record, was not requested, and lies on the way of this replay."""
        if not self._left:
            return
        is_handling = sys.exc_info()[1] is not None
        for each in self._left.values():
            match each.amid if isinstance(each, Step) else None:
                case None:
                    yield each
                case Amid.ERROR if is_handling:
                    yield each
                case Amid.FAILURE if self._has_failed:
                    yield each
                case _:
                    pass

    def _stands(self, task: trio.lowlevel.Task) -> bool:
        """Return whether a branch and all below it wait only for steps that wait here."""
        below = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        if task not in self._waiting and not (below and _is_at_end_of_nursery(task)):
            return False
        return all(self._stands(child) for child in below)

    def _diverged(self, what: str) -> DivergedError:
        names = [_name(each) for each in self._due()]
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        left = ", ".join(names[:NAMED_MAX])
        return DivergedError(
            f"{what}: the code has not requested what is on record: {left}{more}", hint=_HINT
        )


def _name(recorded: Step | OpenEffect) -> str:
    if isinstance(recorded, OpenEffect):
        return f"effect {recorded.key!r} ({recorded.status.lower()})"
    return f"{recorded.kind} {recorded.key!r}"


def _is_at_end_of_nursery(task: trio.lowlevel.Task) -> bool:
    """Return whether a task only waits for the tasks of its nursery.

    Trio shows this only by the name of its innermost frame. If that name changed, `PATIENCE_S`
    would decide.
    """
    return any(
        frame.f_code.co_name == "_nested_child_finished" for frame, _ in task.iter_await_frames()
    )
