"""Takes the jobs of killed pods over, within two seconds of their death.

Reads: which pods' session locks nobody holds. Writes: their tasks and jobs, by `tasks.take_over`.
Invariants: a lock must be free at two looks at least 0.5 s apart, and once more inside the
statement that takes the jobs. A heartbeat in between starts the suspicion anew: a pod whose
connection breaks again and again lives. Nobody judges soon after the server's start or its own
reconnect. A new pod has nothing to reconnect from, so it judges at once, but its looks are 1 s
apart: after an outage of the network it may be there before the others have their locks again.
What somebody holds is taken as soon as he lets go; the sweeper reports it, see there.

On failure: an outage is waited out, and all suspicion starts anew.
On stop: nothing to do; the survivors' own takeover goes on.
"""

import random
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.actors.runner import Runner
from cortex.domain.backoff import Backoff
from cortex.domain.errors import UnavailableError
from cortex.durable.crash_points import crash_point
from cortex.postgres.bridge import Port
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.self_fence import SelfFence
from cortex.store import pods, tasks
from cortex.store.pods import Suspect

LOOKS_APART_S: Final = 0.5
NEW_APART_S: Final = 1.0
"""The same for a pod that has just started: the others try to reconnect twice a second."""
ENDED_EVERY: Final = 5
"""Each so many looks: pods that ended, but to whom a claim on its way gave a job meanwhile."""
BATCH_MAX: Final = 500

_log = structlog.get_logger(__name__)


class TakeOver(Runner):
    """The runner."""

    name = "takeover"
    failure = "no look at the other pods"
    jitter = 0.0

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        self_fence: SelfFence,
        look_s: float,
        settle_s: float,
        deaths_max: int,
        rng: random.Random,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(rng=rng, interval_s=look_s, backoff=Backoff(base_s=look_s, cap_s=look_s))
        self._port = port
        self._metrics = metrics or Metrics()
        self._pod_id = pod_id
        self._self_fence = self_fence
        self._settle_s = settle_s
        self._deaths_max = deaths_max
        self._suspected_since: dict[Suspect, float] = {}
        """By what was seen: with another heartbeat it is another suspicion."""
        self._looks = 0

    async def tick(self) -> None:
        """Look once; take over what has been dead for two looks."""
        try:
            await self._look()
        except UnavailableError:
            self._suspected_since.clear()
            raise

    async def _look(self) -> None:
        if not self._self_fence.may_judge:
            self._suspected_since.clear()
            return
        suspects = await self._port(
            pods.without_lock, looking=self._pod_id, settle_s=self._settle_s
        )
        now = trio.current_time()
        self._suspected_since = {
            suspect: self._suspected_since.get(suspect, now) for suspect in suspects
        }
        if self._looks % ENDED_EVERY == 0:
            for ended in await self._port(pods.ended_owners, looking=self._pod_id):
                await self._take(ended, is_news=False)
        self._looks += 1
        apart_s = LOOKS_APART_S if self._self_fence.is_settled else NEW_APART_S
        for suspect in suspects:
            if now - self._suspected_since[suspect] >= apart_s:
                await self._take(suspect)

    async def _take(self, dead: Suspect, *, is_news: bool = True) -> None:
        """Take its jobs; `is_news`: its death itself is told, too."""
        freed_count = cancelled_count = 0
        while True:
            crash_point("before_takeover")
            taken = await self._port(
                tasks.take_over,
                pod_id=dead.id,
                lock_key=dead.lock_key,
                deaths_max=self._deaths_max,
                limit=BATCH_MAX,
                heartbeat_at=dead.heartbeat_at,
            )
            crash_point("after_takeover")
            self._metrics.recovered("taken_over", freed=taken.freed_count)
            freed_count += taken.freed_count
            cancelled_count += taken.cancelled_count
            if taken.is_done or not (taken.is_dead and taken.count):
                break  # what somebody else has locked just now is taken at the next look
        if freed_count or cancelled_count or (taken.is_done and is_news):
            _log.warning("took over", pod=dead.name, jobs=freed_count, cancelled=cancelled_count)
