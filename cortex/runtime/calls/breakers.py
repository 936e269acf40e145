"""Circuit breakers around every outside call, shared by all pods.

Owns: one line for each name that was called lately or is not well: the local copy of its breaker,
and this pod's calls through it. Reads: the breakers that are not healthy, each second or at a hint;
calls look at the local copy only. Writes: reports of calls, as far as they change something.
Invariants: an open breaker lets no call pass; one probe at a time across all pods, because the
database gives it out; a call that was cancelled says nothing and leaves nothing behind.

On failure: while the database is not there, breakers open and stay open by this pod's own count.
On stop: nothing to do; a probe that is lost with its pod is given out again after its lease.
"""

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import trio

from cortex.actors.runner import Runner
from cortex.domain.breaker import POLICIES, BreakerState, moved_on
from cortex.postgres.bridge import Port
from cortex.runtime.calls.breaker_handle import BreakerAdmission, BreakerContext, BreakerHandle
from cortex.runtime.liveness.listener import BREAKER
from cortex.store import breakers as store

POLL_S: Final = 1.0
KNOWN_MAX: Final = 1000
"""Unhealthy breakers that a pod looks at; of others it learns when its own calls fail."""
FORGET_EVERY_S: Final = 3600.0
FORGET_AFTER_S: Final = 86_400.0
FORGET_BATCH: Final = 1000


class BreakerRegistry(Runner):
    """The runner; implements `cortex.durable.calls.CircuitBreakers`."""

    name = "breakers"
    failure = "breakers not looked at"
    woken_by = frozenset({BREAKER})
    is_ready_at_once = False

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        rng: random.Random,
        on_opened: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_opened` is told which breaker a call of this pod has opened."""
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port
        self._shared = BreakerContext(
            port=port, pod_id=pod_id, rng=rng, wake=self.wake, on_opened=on_opened
        )
        self._lines: dict[str, BreakerHandle] = {}
        self._forget_at = float("-inf")

    def states(self) -> dict[str, BreakerState]:
        """Return how those stand that this pod knows now, among them all open ones."""
        now = self._shared.now
        return {name: moved_on(line.breaker, now).state for name, line in self._lines.items()}

    async def tick(self) -> None:
        """Look at all unhealthy breakers, tend this pod's calls, drop what nobody needs."""
        for line in self._lines.values():
            for admission in list(line.tended):
                admission.ramp_up()
        asked_at = trio.current_time()
        now, unhealthy = await self._port(store.look, limit=KNOWN_MAX)
        self._shared.is_cut_off = False
        self._shared.saw(now)
        for breaker in unhealthy:
            if breaker.name.partition(":")[0] in POLICIES:  # others belong to newer pods
                self._line(breaker.name).learn(breaker, asked_at=asked_at)
        found = {breaker.name for breaker in unhealthy}
        for line in list(self._lines.values()):
            if line.name not in found:
                line.learn_absence(asked_at=asked_at)
            for admission in list(line.tended):
                await admission.tend()
            await line.move_on()
            if line.is_idle:
                del self._lines[line.name]
        await self._forget()

    @asynccontextmanager
    async def admit(self, name: str) -> AsyncGenerator[BreakerAdmission, None]:
        """Wait for leave to call; entering raises `Suspended` while the breaker is open.

        Waits in order of coming while others have not been answered yet. Raises `UsageError` for a
        name that no breaker can have. Leaving without a report (a cancelled call) counts as nothing
        and gives a probe back.
        """
        line = self._line(name)
        line.call_count += 1
        try:
            admission = await line.enter()
            try:
                yield admission
            finally:
                await admission.leave()  # noqa: ASYNC102 -- it shields itself, with a bound
        finally:
            line.call_count -= 1

    def _line(self, name: str) -> BreakerHandle:
        if name not in self._lines:
            self._lines[name] = BreakerHandle(name, self._shared)
        return self._lines[name]

    async def _forget(self) -> None:
        """Now and then remove breakers that have long been well: their table stays small."""
        if trio.current_time() < self._forget_at:
            return
        self._forget_at = trio.current_time() + FORGET_EVERY_S
        await self._port(store.forget, idle_s=FORGET_AFTER_S, limit=FORGET_BATCH)
