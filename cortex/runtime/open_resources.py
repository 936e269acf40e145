"""Opens the application's resources before the first job of a process, and closes them at its end.

Each is held open by a task of its own: what it opens in that task, such as a nursery, can fail or
be closed without the task of another one, of a job or of the pod.
"""

from collections.abc import Callable
from typing import Any, Final

import attrs
import structlog
import trio

from cortex.domain.classification import failure_of
from cortex.domain.errors import TransientError
from cortex.durable.abandoning import end
from cortex.durable.resources import Resource, Resources
from cortex.durable.stray_errors import END_S, POLL_S, close_nurseries, leave_actor

OPENS_WITHIN_S: Final = 60.0
CLOSES_WITHIN_S: Final = 5.0
"""All together; the others are cancelled then."""
SHARE: Final = 0.8
"""Of the time that is left, for one resource before others: those behind it close, too."""
CANCELLED_WITHIN_S: Final = 1.0
_log = structlog.get_logger(__name__)


class ResourceError(TransientError):
    """A resource did not open."""


@attrs.define(eq=False)
class _Holder:
    resource: Resource[Any]
    on_failure: Callable[[], None]
    """Called when the resource ends by itself while it is open."""
    value: Any = None
    error: BaseException | None = None
    is_open: bool = False
    answered: trio.Event = attrs.field(factory=trio.Event)
    closing: trio.Event = attrs.field(factory=trio.Event)
    closed: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    task: trio.lowlevel.Task | None = None

    async def hold(self) -> None:
        self.task = trio.lowlevel.current_task()
        try:
            with self.scope:
                async with self.resource.open() as self.value:
                    self.is_open = True
                    self.answered.set()
                    await self.closing.wait()
        except BaseException as error:  # noqa: BLE001, ASYNC103 -- the application's; reported by name
            # It must not end the pod's task; a cancellation of the pod is raised.
            self.error = await leave_actor(trio.lowlevel.current_task(), error)  # noqa: ASYNC102 -- shielded, with a bound
        finally:
            await close_nurseries(trio.lowlevel.current_task())  # noqa: ASYNC102 -- shielded, with a bound
            self.answered.set()
            self.closed.set()
        if not self.is_open:
            return
        if self.error is not None:
            what = "failed to close" if self.closing.is_set() else "failed while open"
            _log.error(f"resource {what}", resource=self.name, error=failure_of(self.error).message)
        if not self.closing.is_set():
            self.on_failure()

    @property
    def name(self) -> str:
        return f"{self.resource.name} ({self.resource.place})"


@attrs.frozen
class OpenResources:
    """The resources of a process while they are open."""

    resources: Resources
    nursery: trio.Nursery
    """Holds their tasks."""
    on_failure: Callable[[], None]
    left_s: Callable[[], float] = lambda: CLOSES_WITHIN_S
    """The time that is left for closing, if less than usual."""
    _holders: list[_Holder] = attrs.field(factory=list, init=False)

    async def open(self) -> None:
        """Open all, in the order of their declaration.

        Raises `ResourceError` for the first failure. Call `close` also then, and if cancelled.
        """
        for each in self.resources.declared.values():
            holder = _Holder(each, self.on_failure)
            self._holders.append(holder)
            self.nursery.start_soon(holder.hold, name=f"resource {each.name}")
            with trio.move_on_after(OPENS_WITHIN_S):
                await holder.answered.wait()
            if holder.error is not None:
                message = (
                    f"resource {holder.name} failed to open: {failure_of(holder.error).message}"
                )
                raise ResourceError(message) from holder.error
            if not holder.is_open:
                message = f"resource {holder.name} did not open within {OPENS_WITHIN_S:g} seconds"
                raise ResourceError(message, hint="open slow parts when they are first used")
            self.resources.opened[each.kind] = holder.value

    async def open_again(self) -> None:
        """Open all unless they are open; those that have failed, too. Raises `ResourceError`."""
        if not self._holders or any(holder.closed.is_set() for holder in self._holders):
            await self.close()
            await self.open()

    async def close(self) -> None:
        """Close all, the last one first. Errors, and what does not close in time, are logged.

        One that goes on behind a shield is ended: the pod would wait for it until it is killed.
        """
        self.resources.opened.clear()
        within_s = max(0.0, min(CLOSES_WITHIN_S, self.left_s() - CANCELLED_WITHIN_S - END_S))
        until = trio.current_time() + within_s
        holders = list(reversed(self._holders))
        self._holders.clear()
        left = [
            holder
            for holder in holders
            if not await self._close_one(holder, until, is_last=holder is holders[-1])
        ]
        with trio.move_on_after(CANCELLED_WITHIN_S, shield=True):
            for holder in left:
                await holder.closed.wait()
        tasks = [each.task for each in left if each.task and not each.closed.is_set()]
        with trio.move_on_after(END_S, shield=True):
            while tasks:
                tasks = [task for task in tasks if not end(task)]
                await trio.sleep(POLL_S)

    async def _close_one(self, holder: _Holder, until: float, *, is_last: bool) -> bool:
        """Close one; return whether it has ended. It is cancelled if it does not in time."""
        left_s = max(0.0, until - trio.current_time())
        within_s = left_s if is_last else left_s * SHARE
        with trio.move_on_after(within_s, shield=True):
            holder.closing.set()
            if not holder.is_open:
                holder.scope.cancel(reason="it did not open")
            await holder.closed.wait()
        if not holder.closed.is_set():
            _log.error(
                "resource cancelled while it closed",
                resource=holder.name,
                after_s=round(within_s, 1),
            )
            holder.scope.cancel(reason="it did not close in time")
            with trio.move_on_after((left_s - within_s) / 2, shield=True):
                await holder.closed.wait()
        return holder.closed.is_set()
