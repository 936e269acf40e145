"""The dispatcher's loop rests while it cannot claim."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from cortex.actors.ticker import Pacer
from cortex.runtime.jobs.dispatcher import Dispatcher
from cortex.runtime.running import RunningJob, RunningJobs
from cortex.runtime.self_fence import SelfFence
from cortex.store import tasks
from tests.support.records.rows import new_id, seeded_random

TICKS_MAX = 10_000


class Counted(Dispatcher):
    """A dispatcher that counts its ticks, and is stopped when it runs wild."""

    ticks = 0

    async def tick(self) -> float:
        self.ticks += 1
        assert self.ticks < TICKS_MAX, "it does not rest"
        return await super().tick()


async def nothing_there(method: object, **_: object) -> object:
    """A database without tasks: none to promote, no orphans, none to claim."""
    return 0 if method is tasks.promote else []


def never(nursery: trio.Nursery, job: RunningJob) -> None:
    raise AssertionError(f"no job runs that could be abandoned: {job}")


@pytest.mark.parametrize(
    "is_sure, is_held_up, per_minute",
    [(False, False, 70), (True, True, 70), (True, False, 3400)],
    ids=["not sure of itself", "unable to write", "without a slot"],
)
async def test_dispatcher_rests_when_it_cannot_claim(
    autojump_clock: object, is_sure: bool, is_held_up: bool, per_minute: int
) -> None:
    self_fence = SelfFence(fence_s=600.0, settle_s=0.0)
    if is_sure:
        self_fence.locked()
        self_fence.beaten(trio.current_time())
    port: Any = nothing_there
    actors: Any = SimpleNamespace(
        running=RunningJobs(slots=0),
        registry=SimpleNamespace(shared_names=("work",), isolated_names=()),
        committer=SimpleNamespace(is_held_up=is_held_up),
        rng=seeded_random(),
        abandon=never,
    )
    async with trio.open_nursery() as nursery:
        dispatcher = Counted(
            port,
            pod_id=new_id(),
            config_id=1,
            actors=actors,
            jobs_nursery=nursery,
            self_fence=self_fence,
            pacer=Pacer(rng=seeded_random()),
            poll_s=1.0,
        )
        dispatcher.hint(promote=True)
        with trio.move_on_after(60):
            await dispatcher.run()
        nursery.cancel_scope.cancel()
    assert dispatcher.ticks <= per_minute
