"""One cancel scope for the limits of all steps that a task runs, one after another.

A scope for each step would cost a tenth of the step. So a task enters a scope at its first step and
stays in it; a step notes only when it is due. Who watches the tasks cancels the scope of an overdue
step (see `runtime.jobs.deadlines`), and only then does the task leave it and enter a new one.

A step that runs in another task, inside another step, or inside a scope that its handler has opened
needs a scope of its own.
"""

import math
import sys
from typing import Protocol

import trio


class Watch(Protocol):
    """Cancels the scopes of overdue steps."""

    def expect(self, deadline: float) -> None:
        """A step will be overdue at this instant of trio's clock."""


class StepScope:
    """The scope of one task, for the steps of all the attempts that it runs."""

    __slots__ = ("_scope", "_status", "_task", "_watch", "due_at")

    def __init__(self, task: trio.lowlevel.Task, watch: Watch) -> None:
        """`task` is inside the scope that all its attempts share, and in no other one."""
        self._watch = watch
        self._task = task
        self._scope: trio.CancelScope | None = None
        self._status: object = task._cancel_status  # noqa: SLF001 -- see `is_innermost`
        self.due_at = math.inf
        """When the step under way must have ended, by trio's clock."""

    def close(self) -> None:
        """Leave the scope, on whatever way the task goes on; for a `finally` block.

        Raises `RuntimeError` if the task has a scope open inside it.
        """
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.__exit__(*sys.exc_info())

    @property
    def is_innermost(self) -> bool:
        """Whether its task has no scope open inside it."""
        return self._task._cancel_status is self._status  # noqa: SLF001 -- trio shows it nowhere else

    def begin(self, limit_s: float) -> bool:
        """Begin the time of a step; False: this step needs a scope of its own."""
        is_free = self.due_at == math.inf and self.is_innermost
        if not is_free or trio.lowlevel.current_task() is not self._task:
            return False
        if self._scope is None:
            self._open()
        self.due_at = trio.current_time() + limit_s
        self._watch.expect(self.due_at)
        return True

    def cancel_overdue(self, now: float) -> None:
        """Cancel the step under way if its time is over."""
        if self.due_at <= now and self._scope is not None:
            self._scope.cancel(reason="the step's time is over")

    def end(self, error: BaseException | None = None) -> bool:
        """End the time of a step; return whether that time is why it ended with this error.

        Raises what is left of a group of errors without the cancellation, and `RuntimeError` if the
        step has left a scope open.
        """
        self.due_at = math.inf
        scope = self._scope
        if scope is None or (self.is_innermost and not scope.cancel_called):
            return False
        try:
            traceback = None if error is None else error.__traceback__
            return bool(scope.__exit__(None if error is None else type(error), error, traceback))
        finally:
            self._open()

    def _open(self) -> None:
        self._scope = trio.CancelScope()
        self._scope.__enter__()
        self._status = self._task._cancel_status  # noqa: SLF001
