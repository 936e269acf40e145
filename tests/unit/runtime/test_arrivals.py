"""What comes for jobs that run, as their pod notices it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from cortex.domain.errors import InvalidValueError
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


async def test_wait_that_cannot_be_is_an_error_of_its_own_job_alone() -> None:
    wrong, joined = SignalWait(name="\0"), trio.Event()

    async def look(_: object, wanted: Sequence[tuple[UUID, Wait]]) -> set[tuple[UUID, Wait]]:
        await joined.wait()
        if wrong in [wait for _, wait in wanted]:
            raise InvalidValueError("invalid byte sequence")
        return set(wanted)

    async def fail() -> None:
        with pytest.raises(InvalidValueError):
            await arrivals.come(a_claim(), [wrong])

    port: Any = look
    arrivals = StoreArrivals(port)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(2):  # the second one asks for all
                nursery.start_soon(arrivals.come, a_claim(), [GO])
                await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(fail)
            await trio.testing.wait_all_tasks_blocked()
            joined.set()
