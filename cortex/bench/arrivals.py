"""When the handlers of single jobs begin or go on, and how long each was waited for."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import trio

from cortex.bench import workload
from cortex.domain.errors import TimedOutError


class Arrivals:
    """Takes the notes of the workload's handlers, which run in this process."""

    def __init__(self) -> None:
        self._at: dict[UUID, float] = {}
        self._arrived = trio.Event()
        workload.on_start = self._note

    async def of(self, job_id: UUID, *, within_s: float, what: str) -> float:
        """Wait for a job; return when it arrived, by `time.perf_counter`.

        Raises `TimedOutError` that says which job did not do `what`.
        """
        with trio.move_on_after(within_s):
            while job_id not in self._at:
                await self._arrived.wait()
        if job_id not in self._at:
            raise TimedOutError(f"job {job_id} did not {what} within {within_s:g} s")
        return self._at[job_id]

    def _note(self, job_id: UUID) -> None:
        self._at[job_id] = time.perf_counter()
        self._arrived.set()
        self._arrived = trio.Event()


def quantiles(waits_ms: Sequence[float]) -> dict[str, Any]:
    """Return the figures of a measurement of waits."""
    ordered = sorted(waits_ms)
    shares = {"p50_ms": 0.50, "p90_ms": 0.90, "p99_ms": 0.99}
    figures = {name: _quantile(ordered, share) for name, share in shares.items()}
    return {name: round(each, 3) for name, each in (figures | {"max_ms": ordered[-1]}).items()}


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
