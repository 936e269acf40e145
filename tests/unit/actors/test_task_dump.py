"""The dump of all tasks that a stuck process writes at a signal."""

import os

import pytest
import trio

from cortex.actors.task_dump import SIGNAL, dump_tasks_on_signal, task_tree
from tests.support.eventually import WITHIN_S, eventually_async


async def waits_for_a_letter(letter: trio.Event) -> None:
    await letter.wait()


async def test_task_tree_shows_where_each_task_waits(nursery: trio.Nursery) -> None:
    nursery.start_soon(waits_for_a_letter, trio.Event(), name="postman")
    await trio.testing.wait_all_tasks_blocked()
    lines = task_tree().splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.endswith("postman")]
    assert "test_task_dump.py" in lines[at + 1]
    assert lines[at + 1].endswith("waits_for_a_letter")


async def test_a_signal_writes_the_tasks_and_the_threads(
    nursery: trio.Nursery, capfd: pytest.CaptureFixture[str]
) -> None:
    await nursery.start(dump_tasks_on_signal)
    os.kill(os.getpid(), SIGNAL)
    written = ""
    with trio.fail_after(WITHIN_S):
        while "tasks:\n" not in written:
            await trio.testing.wait_all_tasks_blocked(0.01)
            written += capfd.readouterr().err
    assert "Current thread" in written
    assert "dump_tasks_on_signal" in written


class Broken:
    """A stream whose reader has gone."""

    def __init__(self) -> None:
        self.tried_count = 0

    def write(self, _: str) -> None:
        self.tried_count += 1
        raise BrokenPipeError


async def test_broken_stderr_does_not_end_the_dumper(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken()
    await nursery.start(dump_tasks_on_signal)  # the stacks of threads go where it was
    monkeypatch.setattr("sys.stderr", broken)
    for count in (1, 2):
        os.kill(os.getpid(), SIGNAL)
        await eventually_async(lambda count=count: broken.tried_count == count, what="it was tried")  # type: ignore[misc]
