"""Signals and ends of children that come for running jobs, which wait for them beside their steps.

Reads: what wakes waiting jobs, for all jobs of the pod that wait so, in one query for a hint.
Invariants: nothing depends on it: such jobs look again by themselves, ever more rarely.

On failure: nothing comes until the next hint.
"""

from collections.abc import Sequence
from uuid import UUID

import attrs
import trio

from cortex.domain.errors import RejectedError, UnavailableError
from cortex.domain.job import Claim
from cortex.domain.waits import Wait
from cortex.postgres.bridge import Port
from cortex.store import waits as store


@attrs.define(eq=False)
class _Waiting:
    job_id: UUID
    waits: Sequence[Wait]
    has_come: bool = False


class StoreArrivals:
    """The waits of a pod's jobs that run. The pod hints at arrivals, at most twenty times a second.

    Of several jobs that wait, one asks for all of them.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._waiting: set[_Waiting] = set()
        self._hinted = trio.Event()
        self._hint_count = 0
        self._asked_count = 0
        """How many hints had come when the latest query began that was answered."""
        self._asking = trio.Lock()

    def wake(self) -> None:
        """Something has come, for any job of any pod."""
        if self._waiting:
            self._hint_count += 1
            hinted, self._hinted = self._hinted, trio.Event()
            hinted.set()

    async def come(self, claim: Claim, waits: Sequence[Wait]) -> None:
        """Return once the job has one of these."""
        own = _Waiting(claim.lease.job_id, waits)
        self._waiting.add(own)
        try:
            self._hint_count += 1  # it may have come before
            while True:
                hinted = self._hinted  # not the next one: a hint may come while this asks
                await self._ask(own)
                if own.has_come:
                    return
                await hinted.wait()
        finally:
            self._waiting.discard(own)

    async def _ask(self, own: _Waiting) -> None:
        wanted = self._hint_count
        async with self._asking:
            if own.has_come or self._asked_count >= wanted:
                return
            count, waiting = self._hint_count, list(self._waiting)
            try:
                try:
                    await self._look(waiting)
                except RejectedError:  # of a wait that cannot be: an error of its own job alone
                    count = self._asked_count
                    await self._look([own])
            except UnavailableError:
                return
            self._asked_count = count

    async def _look(self, waiting: Sequence[_Waiting]) -> None:
        met = await self._port(
            store.met, [(each.job_id, wait) for each in waiting for wait in each.waits]
        )
        for each in waiting:
            each.has_come |= any((each.job_id, wait) in met for wait in each.waits)
