"""A decision that can still be taken back, and a terminal that is closed or killed meanwhile."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.holder import holding_task
from tests.support.pty_screen import PtyScreen
from tests.support.records.approvals import Askers, a_request
from tests.support.servers.postgres import sql

SILENCE_S = 2.0
"""Longer than any silence that a key needs before it counts."""

WAITING = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""
"""Somebody waits for a row."""


@pytest.fixture
def askers(database: str) -> Iterator[Askers]:
    with open_session(Profile(dsn=database, hot_path=True)) as store:
        yield Askers(store, database)


@contextmanager
def inbox(askers: Askers, folder: Path) -> Iterator[PtyScreen]:
    """A terminal of ana's that shows the inbox."""
    cortex = Cortex(folder, askers.dsn)
    tui = [sys.executable, "-m", "cortex", "tui", "--as", "ana"]
    with PtyScreen(tui, folder=cortex.folder, env=cortex.environ(None)) as screen:
        screen.until(lambda text: "> pulse" in text, what="the first screen")
        screen.type("A")
        screen.until(lambda text: "> approvals" in text, what="the inbox")
        yield screen


class Patient:
    """Types a key now and then, until something is shown."""

    def __init__(self, screen: PtyScreen, key: str) -> None:
        self._screen, self._key = screen, key
        self._typed_at = time.monotonic()

    def until(self, output: str) -> None:
        def probe(text: str) -> bool:
            if output in text:
                return True
            if time.monotonic() > self._typed_at + SILENCE_S:
                self._typed_at = time.monotonic()
                self._screen.type(self._key)
            return False

        self._screen.until(probe, what=output)


@pytest.mark.parametrize("how", ["ctrl+z", signal.SIGTSTP])
def test_the_shell_finds_a_decision_sent(
    askers: Askers, tmp_path: Path, how: str | signal.Signals
) -> None:
    request = askers.asked()
    with inbox(askers, tmp_path) as screen:
        Patient(screen, "a").until("y yes")
        Patient(screen, "y").until("u recalls")
        if isinstance(how, str):
            screen.type("\x1a")
        else:
            screen.send(how)
        screen.until_stopped()
        assert askers.row(request).status == "APPROVED"
        screen.send(signal.SIGCONT)
        screen.until(lambda text: "LIVE" in text, what="the inbox again")


@pytest.mark.parametrize("how", ["ctrl+z", signal.SIGTSTP])
def test_second_stop_signal_while_sending_stops_the_process_once(
    askers: Askers, tmp_path: Path, how: str | signal.Signals
) -> None:
    request = a_request()
    job = askers.ask(request)
    with inbox(askers, tmp_path) as screen:
        with holding_task(askers.dsn, job, table="cortex.job_record"):
            Patient(screen, "a").until("y yes")
            Patient(screen, "y").until("u recalls")
            if isinstance(how, str):
                screen.type("\x1a")
            else:
                screen.send(how)
            eventually(lambda: sql(askers.dsn, WAITING), what="the decision is being sent")
            screen.send(signal.SIGTSTP)
        screen.until_stopped()
        assert askers.row(request).status == "APPROVED"
        screen.send(signal.SIGCONT)
        screen.press_until("2", lambda text: "> jobs" in text, what="what a key does")


@pytest.mark.parametrize(
    "number, code, status",
    [(signal.SIGTERM, 143, "APPROVED"), (signal.SIGKILL, -9, "PENDING")],
)
def test_terminated_app_sends_its_decision_and_a_killed_one_does_not(
    askers: Askers, tmp_path: Path, number: signal.Signals, code: int, status: str
) -> None:
    request = askers.asked()
    with inbox(askers, tmp_path) as screen:
        Patient(screen, "a").until("y yes")
        Patient(screen, "y").until("u recalls")
        assert askers.row(request).status == "PENDING"
        screen.send(number)
        assert screen.end() == code
    assert askers.row(request).status == status
