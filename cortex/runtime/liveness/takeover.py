"""Takes over the jobs of killed pods, within two seconds of their death.

Reads: pods whose sessions ended. Writes: their tasks and jobs, by `tasks.take_over`.
Invariants: a session counts only if it is the registered one and holds the pod's lock: no other
login can keep a dead pod alive. It must be missing at two polls at least 0.5 s apart, and once more
inside the statement that takes the jobs. A heartbeat in between restarts the suspicion: a pod whose
connection breaks again and again lives. A pod does not judge soon after the server's start or its
own reconnect. A new pod has nothing to reconnect from, so it judges at once, but its polls are 1 s
apart: after a network outage it may start before the others have their locks again. Locked rows are
taken once they are free; the sweeper reports them, see there.

On failure: an outage is waited out, and all suspicion restarts.
On stop: nothing to do; the survivors' own takeover goes on.
"""

import random
from collections.abc import Callable
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.actors.runner import Runner, TickBudget, TickResult
from cortex.crash_points import crash_point
from cortex.domain.backoff import Backoff
from cortex.domain.errors import UnavailableError
from cortex.postgres.bridge import Port
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.self_fence import SelfFence
from cortex.store import pods, tasks
from cortex.store.pods import Suspect

CHECKS_APART_S: Final = 0.5
NEW_APART_S: Final = 1.0
"""The same for a pod that has just started: the others try to reconnect twice a second."""
ENDED_EVERY: Final = 5
"""Every n-th poll covers ended pods, in case a late claim gave them a job."""
BATCH_MAX: Final = 500

_log = structlog.get_logger(__name__)


class TakeOver(Runner):
    name = "takeover"
    failure = "other pods not checked"
    jitter = 0.0

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        self_fence: SelfFence,
        peer_check_s: float,
        settle_s: float,
        deaths_max: int,
        rng: random.Random,
        metrics: Metrics | None = None,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_taken` is called after each pod that was taken over."""
        super().__init__(
            rng=rng,
            interval_s=peer_check_s,
            backoff=Backoff(base_s=peer_check_s, cap_s=peer_check_s),
        )
        self._port = port
        self._metrics = metrics or Metrics()
        self._pod_id = pod_id
        self._self_fence = self_fence
        self._settle_s = settle_s
        self._deaths_max = deaths_max
        self._on_taken = on_taken
        self._suspected_since: dict[Suspect, float] = {}
        """By the observed heartbeat: another heartbeat makes another suspicion."""
        self._poll_count = 0

    async def tick(self, _: TickBudget, /) -> TickResult:
        """Poll once; take over the pods that were dead at two polls."""
        try:
            await self._poll()
            return TickResult()
        except UnavailableError:
            self._suspected_since.clear()
            raise

    @property
    def has_nothing_to_take(self) -> bool:
        """It has checked, and no pod is suspected of being dead."""
        return self._poll_count > 0 and not self._suspected_since

    async def has_unjudged(self) -> bool:
        """Return whether a pod has no session that cannot be judged yet: the server is new.

        An embedded server starts with each tick: a tick that did not wait would never judge.
        """
        try:
            return bool(await self._port(pods.without_lock, caller=self._pod_id, settle_s=0.0))
        except UnavailableError:
            return True

    async def _poll(self) -> None:
        if not self._self_fence.may_judge:
            self._suspected_since.clear()
            return
        suspects = await self._port(pods.without_lock, caller=self._pod_id, settle_s=self._settle_s)
        now = trio.current_time()
        self._suspected_since = {
            suspect: self._suspected_since.get(suspect, now) for suspect in suspects
        }
        if self._poll_count % ENDED_EVERY == 0:
            for ended in await self._port(pods.ended_owners, caller=self._pod_id):
                await self._take(ended, is_news=False)
        self._poll_count += 1
        apart_s = CHECKS_APART_S if self._self_fence.is_settled else NEW_APART_S
        for suspect in suspects:
            if now - self._suspected_since[suspect] >= apart_s:
                await self._take(suspect)

    async def _take(self, dead: Suspect, *, is_news: bool = True) -> None:
        """Take a pod's jobs; `is_news`: record its death, too."""
        freed_count = cancelled_count = 0
        while True:
            crash_point("before_takeover")
            taken = await self._port(
                tasks.take_over,
                pod_id=dead.id,
                deaths_max=self._deaths_max,
                limit=BATCH_MAX,
                heartbeat_at=dead.heartbeat_at,
            )
            crash_point("after_takeover")
            self._metrics.recovered("taken_over", freed=taken.freed_count)
            freed_count += taken.freed_count
            cancelled_count += taken.cancelled_count
            if taken.is_done or not (taken.is_dead and taken.count):
                break  # rows locked now are taken at the next poll
        if freed_count or cancelled_count or (taken.is_done and is_news):
            _log.warning(
                "pod taken over", pod=dead.name, jobs=freed_count, cancelled=cancelled_count
            )
            self._on_taken()
