"""Records the runs of a process's runners: one statement every few seconds for all of them.

Owns: the runs since the last record, summed up by runner.
Writes: the record of runners. Facts and a line of log for runners that have become late.
Invariants: a run is counted once at most.

On failure: an outage is waited out; its runs are recorded afterwards. What was sent without a reply
is not sent again.
On stop: runs of the last seconds are lost, unless the owner calls `flush`.
"""

import random
from typing import Final

import attrs
import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.runner import Run
from cortex.crash_points import crash_point
from cortex.domain.classification import name_and_text
from cortex.domain.errors import CortexError, OutcomeUnknownError, UnavailableError
from cortex.domain.redaction import clean_text
from cortex.postgres.bridge import Port
from cortex.store.background import runners as store
from cortex.store.background.runners import LastRun, RunnerRuns

EVERY_S: Final = 5.0
LONGEST_LEAST_S: Final = 30.0
"""No runner is late after an outage of a few seconds, however often it runs."""

_log = structlog.get_logger(__name__)


@attrs.define(kw_only=True)
class _Runs:
    """The runs of one runner since the last record."""

    longest_s: float
    last: Run | None = None
    succeeded_at: float | None = None
    run_count: int = 0
    item_count: int = 0
    error_count: int = 0
    skip_count: int = 0
    busy_s: float = 0.0


class RunRecorder:
    """The actor; `add` may be called from anywhere in the trio thread."""

    name = "run recorder"

    def __init__(
        self, port: Port, *, holder: str, rng: random.Random, tick_every_s: float = 0.0
    ) -> None:
        """`holder`: this process, for people; `tick_every_s`: between two ticks of a command."""
        self._port = port
        self._holder = holder
        self._tick_every_s = tick_every_s
        self._backoff = LoopBackoff(rng=rng)
        self._runs: dict[str, _Runs] = {}

    def add(self, run: Run) -> None:
        runs = self._runs.get(run.name)
        if runs is None:
            longest_s = max(run.longest_s, self._tick_every_s, LONGEST_LEAST_S)
            runs = self._runs[run.name] = _Runs(longest_s=longest_s)
        if run.is_skipped:
            runs.skip_count += 1
            return
        runs.last = run
        runs.run_count += 1
        runs.item_count += run.items
        runs.busy_s += run.duration_s
        if run.error is None:
            runs.succeeded_at = run.started_at + run.duration_s
        else:
            runs.error_count += 1

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Record every few seconds until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(EVERY_S)
            async with self._backoff.pause_if_unavailable(_log, "runs not recorded"):
                await self.flush()

    async def flush(self) -> None:
        """Record what has run since the last record. Raises `UnavailableError`, and keeps it."""
        if not self._runs:
            return
        runs, self._runs = self._runs, {}
        now = trio.current_time()
        sums = [_sum(name, each, now) for name, each in runs.items()]
        crash_point("before_runs")
        try:
            late = await self._port(store.record, sums, holder=self._holder)
        except OutcomeUnknownError:
            raise
        except UnavailableError:
            for name, each in runs.items():
                self._merge(name, each)
            raise
        crash_point("after_runs")
        for name in late:
            _log.warning("runner late", runner=name, hint="cortex runners ls")

    def _merge(self, name: str, before: _Runs) -> None:
        """Put runs back that were not recorded, before those that have been added meanwhile."""
        since = self._runs.setdefault(name, _Runs(longest_s=before.longest_s))
        since.last = since.last or before.last
        since.succeeded_at = since.succeeded_at or before.succeeded_at
        since.run_count += before.run_count
        since.item_count += before.item_count
        since.error_count += before.error_count
        since.skip_count += before.skip_count
        since.busy_s += before.busy_s


def _sum(name: str, runs: _Runs, now: float) -> RunnerRuns:
    last = runs.last
    return RunnerRuns(
        name=name,
        interval_s=runs.longest_s,
        last=None
        if last is None
        else LastRun(
            ago_s=now - last.started_at,
            duration_s=last.duration_s,
            items=last.items,
            error=None if last.error is None else error_text(last.error),
        ),
        succeeded_ago_s=None if runs.succeeded_at is None else now - runs.succeeded_at,
        run_count=runs.run_count,
        item_count=runs.item_count,
        error_count=runs.error_count,
        skip_count=runs.skip_count,
        busy_s=runs.busy_s,
    )


def error_text(error: BaseException) -> str:
    """Return one line for people about a failed run, without secrets."""
    text = error.message if isinstance(error, CortexError) else name_and_text(error)
    return clean_text(text, limit=store.ERROR_MAX)
