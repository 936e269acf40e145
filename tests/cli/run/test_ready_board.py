"""The memory in which the workers of a pod write whether they take jobs."""

from functools import partial

import pytest

from cortex.cli.run.ready_board import COUNTS_FOR_S, ReadyBoard
from cortex.domain.drain import ReadyChecks

checks = partial(ReadyChecks, database=True, claiming=True, not_draining=True)


def test_pod_is_ready_while_all_its_workers_are() -> None:
    board = ReadyBoard(workers=2)
    assert not board.are_all_ready()
    board.write(1, checks())
    assert not board.are_all_ready(), "the other one has not started"
    board.write(2, checks())
    assert board.are_all_ready()
    board.clear(2)
    assert not board.are_all_ready()


@pytest.mark.parametrize("failed", ["database", "claiming", "not_draining"])
def test_a_worker_that_fails_one_check_is_not_ready(failed: str) -> None:
    board = ReadyBoard(workers=1)
    board.write(1, checks(**{failed: False}))
    assert not board.are_all_ready()


def test_readiness_of_a_worker_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    board = ReadyBoard(workers=1)
    now = 100.0
    monkeypatch.setattr("cortex.cli.run.ready_board.time.monotonic", lambda: now)
    board.write(1, checks())
    now += COUNTS_FOR_S - 0.01
    assert board.are_all_ready()
    now += 0.02
    assert not board.are_all_ready()
