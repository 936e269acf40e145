"""What comes for jobs that run, as their pod notices it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import trio

from cortex.domain.waits import SignalWait, Wait
from cortex.runtime.calls.arrivals import StoreArrivals
from tests.support.records.factories import a_claim

GO = SignalWait(name="go")


async def test_hint_that_comes_while_a_pod_looks_is_not_missed() -> None:
    looks: list[Sequence[tuple[UUID, Wait]]] = []

    async def look(_: object, wanted: Sequence[tuple[UUID, Wait]]) -> set[tuple[UUID, Wait]]:
        looks.append(wanted)
        if len(looks) > 1:
            return set(wanted)
        arrivals.wake()  # too late for this look
        return set()

    port: Any = look
    arrivals = StoreArrivals(port)
    with trio.fail_after(5):
        await arrivals.come(a_claim(), [GO])
    assert len(looks) == 2
