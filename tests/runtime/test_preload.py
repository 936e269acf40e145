"""The model client is imported beside the first jobs, not before them."""

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from cortex.agent.models.providers import ModelTrouble
from cortex.config import Settings
from cortex.domain.clock import system_chance
from cortex.runtime.liveness.drain import Shutdown
from cortex.runtime.pod import run_pod
from cortex.runtime.pod_parts import standard_parts
from tests.support.eventually import WITHIN_S


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    """A pod sets it for its whole process."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


async def test_a_pod_is_ready_before_its_slow_imports_are(database: str, tmp_path: Path) -> None:
    shutdown, is_ready = Shutdown(), threading.Event()

    def slow() -> tuple[ModelTrouble, ...]:
        assert is_ready.wait(WITHIN_S)
        trio.from_thread.run_sync(shutdown.request)
        return ()

    with trio.fail_after(WITHIN_S):
        log = await run_pod(
            Settings(),
            dsn=database,
            parts=attrs.evolve(standard_parts(workspaces=tmp_path), preload=slow),
            chance=system_chance(),
            shutdown=shutdown,
            on_ready=lambda _: is_ready.set(),
        )
    assert log.is_clean
