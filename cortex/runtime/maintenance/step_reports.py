"""Reports the steps that this pod's jobs have run for long, for people who ask.

Owns: what it reported last. Reads: the progress of the pod's jobs. Writes: `task.running`.
Invariants: one statement for all jobs of the pod, and none while nothing has changed. A short step
costs nothing; when a reported one ends, readers see it in the record, and nothing need be written.

On failure: an outage is waited out; the next report has what it missed.
On stop: nothing to do: a report counts only while its attempt runs.
"""

import random
from typing import Final
from uuid import UUID

import trio

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.domain.job import Lease
from cortex.postgres.bridge import Port
from cortex.runtime.running import RunningJobs
from cortex.store import pods
from cortex.store.pods import StepReport

INTERVAL_S: Final = 2.0
LONG_S: Final = 2.0
"""A step is reported once it has run this long."""
REPORTS_MAX: Final = 500
"""Reports in one statement; the others follow with the next one."""

Shown = tuple[str, int]
"""Key of a step, and how many more run."""


class StepReports(Runner):
    name = "step_reports"
    failure = "running steps not reported"

    def __init__(
        self, port: Port, *, pod_id: UUID, running: RunningJobs, rng: random.Random
    ) -> None:
        super().__init__(rng=rng, interval_s=INTERVAL_S)
        self._port = port
        self._pod_id = pod_id
        self._running = running
        self._shown: dict[Lease, Shown] = {}
        """The report on record of each running job."""

    async def tick(self, _: TickBudget, /) -> TickResult:
        """Report what has changed since the last time."""
        reports = self._reports(trio.current_time())[:REPORTS_MAX]
        if not reports:
            return TickResult()
        noted = await self._port(pods.report_steps, pod_id=self._pod_id, reports=reports)
        for each in reports:
            if each.lease.job_id not in noted:
                continue  # its task was locked: reported again
            if each.key is None:
                self._shown.pop(each.lease, None)
            else:
                self._shown[each.lease] = (each.key, each.more)
        return TickResult(items=len(reports))

    def _reports(self, now: float) -> list[StepReport]:
        reports: list[StepReport] = []
        running = {job.lease: job.progress for job in self._running.jobs}
        self._shown = {lease: each for lease, each in self._shown.items() if lease in running}
        for lease, progress in running.items():
            found = None if progress is None else progress.longest
            shown = self._shown.get(lease)
            if found is None or now - found[0].began < LONG_S:
                if shown is not None:
                    reports.append(StepReport(lease=lease))
            elif (found[0].key, found[1]) != shown:
                step, more = found
                reports.append(
                    StepReport(
                        lease=lease,
                        kind=step.kind.value,
                        key=step.key,
                        for_s=now - step.began,
                        more=more,
                    )
                )
        return reports
