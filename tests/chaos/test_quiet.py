"""Waiting for quiet: it ends when nothing is open, and reports when nothing moves any more."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from chaos.cluster.quiet import Patience, StuckError, until_quiet
from chaos.history import History
from tests.support.servers.postgres import run_asyncio, sql

SOON = Patience(idle_s=0.4, whole_s=20.0)


@frozen
class Server:
    """The parts of a stage that these tests use."""

    dsn: str

    async def sql(self, query: str, *args: object) -> list[dict[str, Any]]:
        return [dict(row) for row in sql(self.dsn, query, *args)]


@frozen
class Stage:
    """A stage without pods: nothing moves by itself."""

    postgres: Server
    history: History
    pods: list[Any] = field(factory=list)


@pytest.fixture
def stage(database: str, tmp_path: Path) -> Iterator[Stage]:
    history = History(tmp_path / "history.jsonl")
    yield Stage(Server(database), history)
    history.close()


def wait(stage: Any, patience: Patience) -> None:
    run_asyncio(lambda: until_quiet(stage, patience=patience))


def submit(stage: Stage) -> None:
    sql(stage.postgres.dsn, "SELECT cortex.submit_job('noop')")


def test_wait_without_open_work_returns_at_once(stage: Stage) -> None:
    wait(stage, SOON)


def test_open_job_without_progress_is_stuck(stage: Stage) -> None:
    submit(stage)
    with pytest.raises(StuckError, match=r"nothing moved for 0.4 s: 1 jobs are open, 1 tasks left"):
        wait(stage, SOON)


def test_job_due_later_is_awaited_for_a_bounded_time(stage: Stage) -> None:
    submit(stage)
    sql(stage.postgres.dsn, "UPDATE cortex_worker.task SET run_at = cortex.now() + '1 s'")
    began_s = stage.history.now_s
    with pytest.raises(StuckError, match="nothing moved"):
        wait(stage, SOON)
    assert stage.history.now_s - began_s > 1


def test_wait_for_quiet_has_a_total_limit(stage: Stage) -> None:
    submit(stage)
    with pytest.raises(StuckError, match="not at rest after 0 s"):
        wait(stage, Patience(idle_s=20.0, whole_s=0.0))


def test_progress_postpones_stuck(stage: Stage) -> None:
    submit(stage)

    async def move_and_wait() -> None:
        waiting = asyncio.create_task(until_quiet(stage, patience=SOON))  # type: ignore[arg-type]
        for _ in range(4):
            await asyncio.wait({waiting}, timeout=0.25)
            submit(stage)
        assert not waiting.done()
        with pytest.raises(StuckError, match="5 jobs"):
            await waiting

    run_asyncio(move_and_wait)
