"""Dead letters on a real Postgres: an operation continues when its terminal is gone."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.people import me
from tests.support.pods import Pods
from tests.support.pty_screen import PtyScreen
from tests.support.records.dead_letters import fail
from tests.support.records.rows import assert_one_truth, job_count
from tests.support.servers.postgres import sql

LETTERS = 120


@pytest.fixture
def pods(database: str, tmp_path: Path) -> Iterator[Pods]:
    started = Pods(database, tmp_path)
    yield started
    started.close()


def at_dead(cortex: Cortex) -> PtyScreen:
    screen = PtyScreen(
        [sys.executable, "-m", "cortex", "tui", "--as", "ana"],
        folder=cortex.folder,
        env=cortex.environ(None),
    )
    screen.until(lambda text: "> pulse" in text, what="the first screen")
    screen.type("5")
    screen.until(lambda text: "> dead" in text, what="the dead letters")
    return screen


def test_a_killed_terminal_leaves_the_act_going_on(
    database: str, tmp_path: Path, pods: Pods
) -> None:
    cortex = Cortex(tmp_path, database)
    fail(database, LETTERS)
    with at_dead(cortex) as screen:
        screen.until(lambda text: "it broke" in text, what="the error")
        screen.type("R")
        screen.until(lambda text: f"retry {LETTERS} from" in text, what="the dry run")
        screen.type("provider back\r")
        screen.until(lambda text: f"type {LETTERS}" in text, what="the question")
        screen.type(str(LETTERS))
        screen.until(lambda text: "does it, also without you" in text, what="that it is asked")
        screen.send(signal.SIGKILL)
        screen.end()
    assert job_count(database, "origin_id IS NOT NULL") == 0
    pods.start()
    done = "type = 'bulk' AND status = 'COMPLETED'"
    eventually(lambda: job_count(database, done) == 1, what="it is done")
    assert job_count(database, "origin_id IS NOT NULL") == LETTERS
    (row,) = sql(database, "SELECT DISTINCT resolved_by, reason FROM cortex.dead_letter")
    assert tuple(row) == (me("ana"), "provider back")
    with at_dead(cortex) as screen:
        screen.type("\t")
        screen.until(lambda text: "bulk" in text and "✓ done" in text, what="what came of it")
        screen.type("q")
        assert screen.end() == 0
    assert_one_truth(database)
