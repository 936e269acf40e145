"""Watches a pod's own calls of the database: which trouble there is, and since when.

Owns: the kinds of calls that fail now, and the time since the last answer.
Reads: the outcome of each call of the port. Reports to: the log, when trouble begins, when it is
over, and each minute in between; `/readyz`, the metrics and the pod's row; and the heartbeat, which
then checks at once whether the pod still holds its lock.
Invariants: an answered call shows that the database can be reached. Only the kind of call that
failed shows the end of a shortage: reads succeed on a full disk.

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

CHECK_S: Final = 1.0
ANSWERED_WITHIN_S: Final = 5.0
"""Statements time out after this long."""
SILENT_S: Final = ANSWERED_WITHIN_S
"""By then at least one answer would have come."""
FORGOTTEN_S: Final = SHORTAGE.cap_s + ANSWERED_WITHIN_S
"""A failed call that was not repeated within a loop's longest pause proves nothing about now: a pod
must not stay unready for a call that is no longer made."""
LOG_AGAIN_S: Final = 60.0
LOG_APART_S: Final = 10.0
"""Trouble that comes and goes within this is logged once."""

_log = structlog.get_logger(__name__)


@attrs.frozen
class _Failure:
    """The last failure of one kind of call."""

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
        """`on_failure` gets each failed call's error; `on_change`: trouble has begun or ended."""
        self._on_failure = on_failure
        self._on_change = on_change
        self._failures: dict[str, _Failure] = {}
        self._error: str | None = None
        self._waiting_count = 0
        self._quiet_since = math.inf
        self._current: Trouble | None = None
        self._since = math.inf
        self._logged_trouble: Trouble | None = None
        self._logged_at = -math.inf
        self._is_loud = False

    @property
    def report(self) -> TroubleReport | None:
        """The present trouble, as far as this pod knows."""
        now = trio.current_time()
        trouble = self._trouble(now)
        if trouble is None:
            return None
        return TroubleReport(trouble, now - min(self._since, self._quiet_since, now))

    def sent(self) -> None:
        if not self._waiting_count:
            self._quiet_since = trio.current_time()
        self._waiting_count += 1

    def ended(self, method: object, error: UnavailableError | None) -> None:
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
        if self._failures or self._current:
            self.check()

    def given_up(self) -> None:
        self._waiting_count -= 1
        if not self._waiting_count:
            self._quiet_since = math.inf

    def check(self) -> None:
        """Log what has changed."""
        now = trio.current_time()
        trouble = self._trouble(now)
        is_other = (trouble is None) is not (self._current is None)
        if trouble is not None and self._current is None:
            self._since = min(now, self._quiet_since)
            self._is_loud = (
                trouble is not self._logged_trouble or now - self._logged_at >= LOG_APART_S
            )
            self._log_trouble("database trouble", trouble, now)
        elif trouble is not None and now - self._logged_at >= LOG_AGAIN_S:
            self._is_loud = True
            self._log_trouble("database trouble persists", trouble, now)
        elif trouble is None and self._current is not None:
            if self._is_loud:
                self._logged_at, for_s = now, round(now - self._since, 1)
                _log.info("database recovered", trouble=self._current.value, for_s=for_s)
            self._since, self._error = math.inf, None
        self._current = trouble
        if is_other:
            self._on_change()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Check now and then for trouble that shows by missing answers, until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(CHECK_S)
            self.check()

    def _log_trouble(self, event: str, trouble: Trouble, now: float) -> None:
        if not self._is_loud:
            return
        self._logged_trouble, self._logged_at = trouble, now
        write = _log.error if trouble.is_shortage else _log.warning
        write(event, trouble=trouble.value, for_s=round(now - self._since, 1), error=self._error)

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
"""Trouble that any answer of the database disproves."""


def _kind(method: object) -> str:
    while isinstance(method, partial):
        method = method.func
    module, name = getattr(method, "__module__", ""), getattr(method, "__qualname__", "")
    return f"{module}.{name}"
