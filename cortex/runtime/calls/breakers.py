"""Circuit breakers around every outside call, shared by all pods.

Owns: one handle per breaker that was called lately or is unhealthy: the local copy of the breaker
and this pod's calls through it. Reads: the unhealthy breakers, every second or on a hint; calls
read the local copy only. Writes: reports of calls that change something.
Invariants: an open breaker lets no call pass; the database hands out the probe, so there is one at
a time across all pods; a cancelled call reports nothing and leaves nothing behind.

On failure: while the database is unavailable, breakers open and stay open by this pod's own count.
On stop: nothing to do; the probe of a dead pod is freed by its takeover, a lost one by its lease.
"""

import random
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import trio

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.domain.breaker import POLICIES, BreakerState, moved_on
from cortex.domain.retry import RETRY_AFTER_MAX_S
from cortex.postgres.bridge import Port
from cortex.runtime.calls.breaker_handle import BreakerAdmission, BreakerContext, BreakerHandle
from cortex.runtime.liveness.listener import BREAKER
from cortex.store import breakers as store

POLL_S: Final = 1.0
KNOWN_MAX: Final = 1000
"""Unhealthy breakers that a pod polls; it learns of others when its own calls fail."""
FORGET_EVERY_S: Final = 3600.0
FORGET_AFTER_S: Final = 86_400.0
FORGET_BATCH: Final = 1000


class BreakerRegistry(Runner):
    """The runner; implements `cortex.durable.calls.CircuitBreakers`."""

    name = "breakers"
    failure = "breakers not read"
    woken_by = frozenset({BREAKER})
    is_ready_at_once = False

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        rng: random.Random,
        on_opened: Callable[[str], None] = lambda _: None,
        retry_after_max_s: float = RETRY_AFTER_MAX_S,
    ) -> None:
        """`on_opened` gets the name of each breaker that a call of this pod opened.

        `retry_after_max_s`: the longest pause that a server may ask for.
        """
        super().__init__(rng=rng, interval_s=POLL_S)
        self._port = port
        self._shared = BreakerContext(
            port=port,
            pod_id=pod_id,
            rng=rng,
            wake=self.wake,
            on_opened=on_opened,
            retry_after_max_s=retry_after_max_s,
        )
        self._lines: dict[str, BreakerHandle] = {}
        self._forget_at = float("-inf")

    def states(self) -> dict[str, BreakerState]:
        """Return the states of the breakers known to this pod, among them all open ones."""
        now = self._shared.now
        return {name: moved_on(line.breaker, now).state for name, line in self._lines.items()}

    def next_probe_s(self, names: Collection[str]) -> float | None:
        """Return in how many seconds the first open one of these may be probed; None: none is."""
        now = self._shared.now
        waits = [
            (until - now).total_seconds()
            for name in names
            if (line := self._lines.get(name)) is not None
            and moved_on(line.breaker, now).state is BreakerState.OPEN
            and (until := line.breaker.open_until) is not None
        ]
        return min(waits, default=None)

    async def tick(self, _: TickBudget, /) -> TickResult:
        """Poll all unhealthy breakers, tend this pod's calls, drop idle handles."""
        for line in self._lines.values():
            for admission in list(line.tended):
                admission.ramp_up()
        asked_at = trio.current_time()
        now, unhealthy = await self._port(store.look, limit=KNOWN_MAX)
        self._shared.is_cut_off = False
        self._shared.observe_time(now)
        for breaker in unhealthy:
            if breaker.name.partition(":")[0] in POLICIES:  # others belong to newer pods
                self._line(breaker.name).learn(breaker, asked_at=asked_at)
        unhealthy_names = {breaker.name for breaker in unhealthy}
        for line in list(self._lines.values()):
            if line.name not in unhealthy_names:
                line.learn_absence(asked_at=asked_at)
            for admission in list(line.tended):
                await admission.tend()
            await line.move_on()
            if line.is_idle:
                del self._lines[line.name]
        await self._forget()
        return TickResult()

    @asynccontextmanager
    async def admit(self, name: str) -> AsyncGenerator[BreakerAdmission, None]:
        """Wait until a call may begin; entering raises `Suspended` while the breaker is open.

        While earlier calls have no answer yet, calls wait in order of arrival. Raises `UsageError`
        for an unknown kind of breaker. Leaving without a report (a cancelled call) counts as
        nothing and gives a probe back.
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
        """Now and then delete breakers that have long been healthy, to keep their table small."""
        if trio.current_time() < self._forget_at:
            return
        self._forget_at = trio.current_time() + FORGET_EVERY_S
        await self._port(store.forget, idle_s=FORGET_AFTER_S, limit=FORGET_BATCH)
