"""Fixtures of the runtime's tests: one pod's parts on a database of the test's own."""

from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from tests.support.records.factories import Bench
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import seeded_random
from tests.support.records.sending import SECRETS
from tests.support.servers.webhook_receiver import Receiver, receiving


@pytest.fixture(autouse=True)
def log_lines() -> Iterator[list[MutableMapping[str, Any]]]:
    """Log lines so far, one mapping each."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
async def port(database: str) -> AsyncIterator[FaultyPort]:
    """A pod's way to the database."""
    profile = Profile(dsn=database, hot_path=True)
    async with open_port(profile, rng=seeded_random()) as opened:
        yield FaultyPort(opened)


@pytest.fixture
async def bench(port: FaultyPort, nursery: trio.Nursery) -> Bench:
    """The parts of a pod; whatever runs ends with the test."""
    return Bench(port, nursery)


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Receiver]:
    """A receiver of webhooks; their secrets are set."""
    for name, secret in zip(("HOOK_OLD", "HOOK_NEW"), SECRETS, strict=True):
        monkeypatch.setenv(name, secret)
    async with receiving() as opened:
        yield opened
