"""What the process of `cortex tick` does with its database: one tick, and for dispatch a pod.

Owns: the connections of the tick, and its pod while that runs.
Reads and writes: what the runners and the pod do.
Invariants: the pod ends within the time of its turn; its jobs that have not ended are handed back.

On failure: a pod that fails is a failed runner; the others still run.
On stop: `ending` ends the present runner; the pod drains, and its second request hands jobs back.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import attrs
import trio

from cortex.config import Settings
from cortex.domain.clock import Chance
from cortex.durable.message_handlers import MessageHandler
from cortex.postgres.bridge import OpensPort, Port, open_port
from cortex.postgres.database import Profile
from cortex.runtime.calls.pending_settlements import PendingSettlements
from cortex.runtime.isolation.fork_server import ForkServer
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.maintenance.recorder import RunRecorder
from cortex.runtime.maintenance.runners import Means, runners
from cortex.runtime.pod import run_pod
from cortex.runtime.pod_parts import PodParts
from cortex.runtime.pod_ready import Intake, Ready
from cortex.runtime.tick import Tick, TickReport, TickTerms
from cortex.store import tasks

DISPATCH_LEAST_S: Final = 2.0
"""A pod takes half a second to start, and as long to close."""
CLOSE_LEAST_S: Final = 0.5


@attrs.frozen(kw_only=True)
class TickProcess:
    settings: Settings
    names: Sequence[str]
    """Of the runners."""
    name: str
    """Of this process, for people."""
    chance: Chance
    ending: Shutdown
    parts: PodParts | None
    """Of the pod; None: the tick does not dispatch."""
    handlers: Mapping[str, MessageHandler] = attrs.field(factory=dict)
    fork_server: ForkServer | None = None
    opens_port: OpensPort = open_port

    async def run(self, dsn: str) -> TickReport:
        """Run each runner once. Raises `UnavailableError` if the database cannot be reached."""
        settings, chance = self.settings, self.chance
        profile = Profile.of_pod(dsn, self.name)
        async with self.opens_port(profile, rng=chance.rng) as port, trio.open_nursery() as nursery:
            made = runners(
                Means(
                    port=port,
                    chance=chance,
                    unsettled=PendingSettlements(port),
                    settings=settings,
                    handlers=self.handlers,
                    models=None if self.parts is None else self.parts.batch_models,
                ),
                self.names,
            )
            tick = Tick(
                recorder=RunRecorder(
                    port,
                    holder=self.name,
                    rng=chance.rng,
                    tick_every_s=settings.tick_every_s,
                ),
                terms=TickTerms(
                    max_s=settings.tick_max_s,
                    runner_max_s=settings.tick_runner_max_s,
                    items=settings.tick_items,
                ),
            )

            async def stop_on_signal() -> None:
                await self.ending.stop.wait()
                tick.stop()

            nursery.start_soon(stop_on_signal)
            parts = self.parts
            dispatch = None if parts is None else partial(self._dispatch, port, dsn, parts)
            done = await tick.run(made, dispatch)
            nursery.cancel_scope.cancel(reason="the tick is over")
        return done

    async def _dispatch(
        self, port: Port, dsn: str, parts: PodParts, left_s: float, items: int
    ) -> int:
        """Run a pod at most `left_s`, or until nothing is due; return how many jobs it claimed."""
        if not await port(tasks.has_work):
            return 0
        pod_settings, claims_s = within(self.settings, max(left_s, DISPATCH_LEAST_S))
        shutdown = Shutdown()
        ready: list[Ready] = []
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:

            async def end_in_time() -> None:
                with trio.move_on_after(claims_s):
                    await self.ending.stop.wait()
                shutdown.request()
                await self.ending.abort.wait()
                shutdown.request()

            nursery.start_soon(end_in_time)
            try:
                await run_pod(
                    pod_settings,
                    dsn=dsn,
                    parts=parts,
                    chance=self.chance,
                    shutdown=shutdown,
                    on_ready=ready.append,
                    opens_port=self.opens_port,
                    fork_server=self.fork_server,
                    name=self.name,
                    intake=Intake(claims_max=items),
                )
            except Exception as error:  # noqa: BLE001 -- the other runners still run
                failure = error
            nursery.cancel_scope.cancel(reason="the pod has ended")
        if failure is not None:
            raise failure
        return ready[0].claimed() if ready else 0


def within(settings: Settings, left_s: float) -> tuple[Settings, float]:
    """Return the settings of a pod that ends in time, and for how long it may claim jobs.

    Up to half of the time is for the jobs that still run: to their next step, then handed back.
    """
    usual_s = settings.drain_s + settings.close_s
    share = min(1.0, left_s / 2 / usual_s) if usual_s else 1.0
    abort_s = settings.drain_s * share
    closed_s = abort_s + max(CLOSE_LEAST_S, settings.close_s * share)
    kill_s = max(settings.kill_s, closed_s)
    ends = attrs.evolve(
        settings, pre_stop_s=0.0, abort_s=abort_s, closed_s=closed_s, kill_s=kill_s, http=None
    )
    return ends, left_s - closed_s
