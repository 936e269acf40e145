"""Turns notifications into hints, and measures whether they arrive.

Owns: one dedicated connection with its subscriptions, and the measured latency of a hint.
Invariants: nothing depends on a notification: polling finds the same work. Any login may send one:
payloads are only compared with known words, and hints of one kind pass at most twenty times a
second, of limits a hundred times, except those to the dispatcher, which claims once at a time. A
probe to itself finds a subscription that fell silent without an error (a black hole). Behind a
pooler, which passes no notifications on, it hints to all once a second.

On failure: the connection is reopened with jittered backoff, and all get one hint for what was
missed.
On stop: the connection is closed.
"""

import math
import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.ticker import Pacer
from cortex.domain.backoff import Backoff
from cortex.domain.errors import CortexError
from cortex.postgres.bridge import Port
from cortex.postgres.dedicated import Dedicated
from cortex.store import pods

CONTROL: Final = "cortex_control"
"""Notifies one pod, named in the payload, of a person's request about it or its jobs."""
BREAKER: Final = "cortex_breaker"
"""Notifies all pods that a breaker has changed state."""
OUTBOX: Final = "cortex_outbox"
"""Notifies all pods of new messages, and of changed subscriptions."""
WAKES: Final = "cortex_wake"
"""Notifies all pods that waiting jobs may have what they wait for."""
LIMIT: Final = "cortex_limit"
"""Notifies all pods of jobs that wait for limits of their types, and of freed places."""
POLL_S: Final = 1.0
"""Behind a pooler: how much later than a notification a hint comes at most."""
HINTS_APART_S: Final = 0.05
LIMITS_APART_S: Final = 0.01
"""Jobs of a limit of one wait for it between any two."""
AGAIN_S: Final = 1.0
PROBE_EVERY_S: Final = 10.0
PROBE_BOUND_S: Final = 5.0

_log = structlog.get_logger(__name__)


class _Gate:
    """Passes a hint at once, and those that follow too soon together, a little later."""

    def __init__(
        self,
        fire: Callable[[], None],
        *,
        on_held: Callable[[], None],
        apart_s: float = HINTS_APART_S,
    ) -> None:
        self._fire = fire
        self._on_held = on_held
        self._apart_s = apart_s
        self._passed_at = -math.inf
        self.is_held = False

    @property
    def left_s(self) -> float:
        """Seconds until it passes the next one."""
        return self._passed_at + self._apart_s - trio.current_time()

    def hint(self) -> None:
        if self.is_held:
            return
        if self.left_s <= 0:
            self._pass()
        else:
            self.is_held = True
            self._on_held()

    def release(self) -> None:
        """Pass the held one, if its time has come."""
        if self.is_held and self.left_s <= 0:
            self.is_held = False
            self._pass()

    def _pass(self) -> None:
        self._passed_at = trio.current_time()
        self._fire()


class Listener:
    """The actor; `latency_ms` is None while hints do not arrive."""

    name = "listener"

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        rng: random.Random,
        on_task: Callable[[str], None],
        on_control: Callable[[], None],
        on_breaker: Callable[[], None],
        on_outbox: Callable[[], None],
        on_wakes: Callable[[], None],
        on_limit: Callable[[], None],
    ) -> None:
        """`on_task` gets `ready` or `queued`; `on_control` is called for this pod's own control.

        `on_breaker` is called when any breaker has changed state, `on_outbox` when messages or
        subscriptions have been written, `on_wakes` when waiting jobs may have what they wait for,
        `on_limit` when limits may let jobs through.
        """
        self._port = port
        self._pod_id = pod_id
        self._rng = rng
        self._backoff = LoopBackoff(rng=rng, backoff=Backoff(base_s=AGAIN_S, cap_s=AGAIN_S))
        self._on_task = on_task
        self._held = Pacer(rng=rng)
        gates = [
            *(
                _Gate(each, on_held=self._held.wake)
                for each in (on_control, on_breaker, on_outbox, on_wakes)
            ),
            _Gate(on_limit, on_held=self._held.wake, apart_s=LIMITS_APART_S),
        ]
        self._gates = gates
        self._control, self._breaker, self._outbox, self._wakes, self._limit = gates
        self._pacer = Pacer(rng=rng)
        self._probe_channel = f"cortex_probe_{pod_id.hex}"
        self._probe_received = trio.Event()
        self._session: Dedicated = port.dedicated(on_lost=self._pacer.wake)
        self.latency_ms: float | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled; ready at once, since hints are not needed to work."""
        task_status.started()
        while self._port.is_pooled:
            self._hint_all()
            await self._pacer.wait(POLL_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._release_held)
            await self._keep_listening()

    async def _release_held(self) -> None:
        while True:
            await self._held.wait(math.inf)
            while held := [gate for gate in self._gates if gate.is_held]:
                await trio.sleep(max(0.0, min(gate.left_s for gate in held)))
                for gate in held:
                    gate.release()

    async def _keep_listening(self) -> None:
        try:
            while True:
                pause_s = self._rng.uniform(0.1, AGAIN_S)
                try:
                    await self._listen()
                    while self._session.is_open:
                        await self._probe()
                        self._backoff.succeeded()
                        await self._pacer.wait(PROBE_EVERY_S)
                except CortexError as error:
                    pause_s = self._backoff.failed(_log, "hints not received", error)
                self.latency_ms = None
                await trio.sleep(pause_s)
        finally:
            with trio.move_on_after(2.0, shield=True):
                await self._port.close(self._session)

    async def _listen(self) -> None:
        session = self._session
        await self._port.open(session)
        await self._port.cross(session.listen, "cortex_task", self._on_task)
        await self._port.cross(session.listen, CONTROL, self._hear_control)
        await self._port.cross(session.listen, BREAKER, lambda _: self._breaker.hint())
        await self._port.cross(session.listen, OUTBOX, lambda _: self._outbox.hint())
        await self._port.cross(session.listen, WAKES, lambda _: self._wakes.hint())
        await self._port.cross(session.listen, LIMIT, lambda _: self._limit.hint())
        await self._port.cross(session.listen, self._probe_channel, self._hear_probe)
        self._hint_all()

    async def _probe(self) -> None:
        """Send a notification to this connection; close it if none comes back."""
        self._probe_received = trio.Event()
        sent_at = trio.current_time()
        await self._port(pods.probe, channel=self._probe_channel)
        with trio.move_on_after(PROBE_BOUND_S):
            await self._probe_received.wait()
        if self._probe_received.is_set():
            self.latency_ms = 1000 * (trio.current_time() - sent_at)
        else:
            _log.warning("hints not received", bound_s=PROBE_BOUND_S)
            self._session.cut()

    def _hint_all(self) -> None:
        """Hint to all: anything may have happened."""
        self._on_task("queued")
        for gate in self._gates:
            gate.hint()

    def _hear_control(self, pod: str) -> None:
        if pod == str(self._pod_id):
            self._control.hint()

    def _hear_probe(self, _: str) -> None:
        self._probe_received.set()
