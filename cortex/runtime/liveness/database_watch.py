"""What a pod knows of its database by its own calls: which trouble there is, and since when.

Owns: the kinds of calls that fail just now, and since when nothing has been answered.
Reads: how each call of the port fared. Tells: the log, once when trouble begins, once when it is
over, and each minute in between; `/readyz`, the metrics and the pod's row; and the heartbeat, which
then finds out at once whether the pod still holds its lock.
Invariants: a call that was answered shows that the database can be reached. That it lacks nothing
any more is shown only by the kind of call that failed for it: reads go well on a full disk.

On failure and on stop: nothing to do.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import structlog
import trio

from cortex.actors.backoff import SHORTAGE
from cortex.domain.drain import TroubleReport
from cortex.domain.errors import Trouble, UnavailableError

LOOK_S: Final = 1.0
ANSWERED_WITHIN_S: Final = 5.0
"""Statements end themselves after so long."""
SILENT_S: Final = ANSWERED_WITHIN_S
"""By then at least one answer would have come."""
FORGOTTEN_S: Final = SHORTAGE.cap_s + ANSWERED_WITHIN_S
"""A call that failed and was not made again in the longest pause of a loop: nobody knows how it
would fare now, and a pod must not stay unready for what nobody wants."""
TELL_AGAIN_S: Final = 60.0
TELL_APART_S: Final = 10.0
"""One that comes and goes within this is told once."""

_log = structlog.get_logger(__name__)


@attrs.frozen
class _Failure:
    """Of one kind of call, the last one."""

    trouble: Trouble
    at: float


class DatabaseWatch:
    """The actor; implements `cortex.postgres.bridge.Watch`. Called on the trio thread only."""

    name = "database watch"

    def __init__(
        self,
        *,
        on_failure: Callable[[UnavailableError], None] = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_failure` is told of each failed call; `on_change` when trouble begins or ends."""
        self._on_failure = on_failure
        self._on_change = on_change
        self._failures: dict[str, _Failure] = {}
        self._error: str | None = None
        self._waiting_count = 0
        self._quiet_since = math.inf
        self._known: Trouble | None = None
        self._since = math.inf
        self._told: Trouble | None = None
        self._told_at = -math.inf
        self._is_loud = False

    @property
    def seen(self) -> TroubleReport | None:
        """What is wrong just now, as far as this pod can tell."""
        now = trio.current_time()
        trouble = self._trouble(now)
        if trouble is None:
            return None
        return TroubleReport(trouble, now - min(self._since, self._quiet_since, now))

    def sent(self) -> None:
        """See `Watch.sent`."""
        if not self._waiting_count:
            self._quiet_since = trio.current_time()
        self._waiting_count += 1

    def ended(self, method: object, error: UnavailableError | None) -> None:
        """See `Watch.ended`."""
        self._waiting_count -= 1
        now = trio.current_time()
        if error is None:
            self._answered(method, now)
        else:
            self._on_failure(error)
            if error.trouble is not None:
                self._error = error.message
                self._failures[_kind(method)] = _Failure(error.trouble, now)
        if not self._waiting_count:
            self._quiet_since = math.inf
        if self._failures or self._known:
            self.look()

    def given_up(self) -> None:
        """See `Watch.given_up`."""
        self._waiting_count -= 1
        if not self._waiting_count:
            self._quiet_since = math.inf

    def look(self) -> None:
        """Tell what has changed."""
        now = trio.current_time()
        trouble = self._trouble(now)
        is_other = (trouble is None) is not (self._known is None)
        if trouble is not None and self._known is None:
            self._since = min(now, self._quiet_since)
            self._is_loud = trouble is not self._told or now - self._told_at >= TELL_APART_S
            self._tell("trouble with the database", trouble, now)
        elif trouble is not None and now - self._told_at >= TELL_AGAIN_S:
            self._is_loud = True
            self._tell("trouble with the database goes on", trouble, now)
        elif trouble is None and self._known is not None:
            if self._is_loud:
                self._told_at, for_s = now, round(now - self._since, 1)
                _log.info("the database is well again", trouble=self._known.value, for_s=for_s)
            self._since, self._error = math.inf, None
        self._known = trouble
        if is_other:
            self._on_change()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look now and then, for what shows by nothing happening, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(LOOK_S)
            self.look()

    def _tell(self, told: str, trouble: Trouble, now: float) -> None:
        if not self._is_loud:
            return
        self._told, self._told_at = trouble, now
        tell = _log.error if trouble.is_shortage else _log.warning
        tell(told, trouble=trouble.value, for_s=round(now - self._since, 1), error=self._error)

    def _answered(self, method: object, now: float) -> None:
        self._quiet_since = now
        if self._failures:
            self._failures.pop(_kind(method), None)
            self._failures = {
                kind: failure
                for kind, failure in self._failures.items()
                if failure.trouble not in _SHOWN_BY_ANY
            }

    def _trouble(self, now: float) -> Trouble | None:
        fresh = [each for each in self._failures.values() if now - each.at < FORGOTTEN_S]
        if fresh:
            return max(fresh, key=lambda each: each.at).trouble
        self._failures.clear()
        return Trouble.SILENT if now - self._quiet_since > SILENT_S else None


_SHOWN_BY_ANY: Final = frozenset({Trouble.UNREACHABLE, Trouble.SILENT})
"""What no database has that answers."""


def _kind(method: object) -> str:
    while isinstance(method, partial):
        method = method.func
    module, name = getattr(method, "__module__", ""), getattr(method, "__qualname__", "")
    return f"{module}.{name}"
