"""The terminal UI on a fake cluster and a clock that only the test moves."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from tests.support.tui import FakeBackend, ManualClock, Seat, sitting

Sit = Callable[..., AbstractAsyncContextManager[Seat]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> FakeBackend:
    """A cluster without jobs, whose time is the clock's."""
    return FakeBackend(clock)


@pytest.fixture
def sit(cluster: FakeBackend) -> Sit:
    """Opens the app on the cluster: an async context manager that gives the seat."""

    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Seat]:
        async with sitting(cluster, **options) as seat:
            yield seat

    return opened
