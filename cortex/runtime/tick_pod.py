"""The pod of one tick: claims a bounded number of jobs, and leaves when nothing is left to do."""

from typing import Final

import trio

from cortex.runtime.jobs.dispatcher import Dispatcher
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.liveness.takeover import TakeOver
from cortex.runtime.running import RunningJobs

QUIET_S: Final = 1.0
"""How long no job has run and none was due: what jobs have just released comes within this time."""
POLL_S: Final = 0.05


async def end_when_idle(
    *, running: RunningJobs, dispatcher: Dispatcher, takeover: TakeOver, shutdown: Shutdown
) -> None:
    """Request the shutdown once no job runs or is due, and no dead pod is left to take over."""
    busy_at = trio.current_time()
    while True:
        await trio.sleep(POLL_S)
        if len(running):
            busy_at = trio.current_time()
            continue
        if dispatcher.claims_left <= 0:
            break
        if not takeover.has_nothing_to_take:
            busy_at = trio.current_time()  # what it takes over is due after that
            continue
        busy_at = max(busy_at, dispatcher.claimed_at)
        if dispatcher.found_nothing_at <= busy_at or trio.current_time() - busy_at < QUIET_S:
            continue
        if not await takeover.has_unjudged():
            break
        busy_at = trio.current_time()
    shutdown.request()
