"""`cortex tui` when its terminal goes, or is somebody else's for a while."""

import signal
import time

import pytest

from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.holder import holding_task
from tests.support.life import Life
from tests.support.tui_terminal import on_jobs

GONE_S = 10.0
"""It takes a tenth of that to notice; one that does not would never end."""
SESSIONS = """
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
"""
WATCHES = "SELECT FROM cortex.watch"


@pytest.mark.parametrize("ignores_hangup", [False, True])
@pytest.mark.parametrize("is_controlling", [False, True])
def test_it_ends_with_its_terminal(
    cortex: Cortex, life: Life, *, is_controlling: bool, ignores_hangup: bool
) -> None:
    """A window is closed: nobody but the controlling terminal's signal says so."""
    life.type()
    job = life.job()
    with on_jobs(cortex, is_controlling=is_controlling, ignores_hangup=ignores_hangup) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.vanish()
        began = time.monotonic()
        assert screen.end() == 128 + signal.SIGHUP
        assert time.monotonic() - began < GONE_S


def test_a_terminal_that_takes_nothing_cannot_hold_it(cortex: Cortex, life: Life) -> None:
    """Nobody reads what it writes: a connection that hangs. It still ends when it is told to."""
    life.type()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "no jobs yet" in text, what="the empty list")
        screen.choke("?\x1b")
        screen.send(signal.SIGTERM)
        assert screen.end(is_reading=False) == 128 + signal.SIGTERM
        assert screen.modes_now == screen.modes


@pytest.mark.parametrize("how", ["ctrl+z", signal.SIGTSTP, signal.SIGSTOP])
def test_it_comes_back_from_the_shell(
    cortex: Cortex, life: Life, how: str | signal.Signals
) -> None:
    life.type()
    job = life.job()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        if isinstance(how, str):
            screen.type("\x1a")
        else:
            screen.send(how)
        screen.until_stopped()
        assert screen.is_as_found or how is signal.SIGSTOP  # of which nobody hears
        screen.forget()
        screen.send(signal.SIGCONT)
        screen.until(lambda text: job.hex[-6:] in text and "LIVE" in text, what="the job again")
        screen.type("K")
        screen.until(lambda text: "○ pend?" in text, what="the question")
        screen.type("y")
        screen.until(lambda text: "⊘ canc" in text, what="the job is cancelled")
        screen.type("q")
        assert screen.end() == 0
        assert screen.is_as_found


def test_who_is_told_to_leave_tells_how_far_a_long_act_came(cortex: Cortex, life: Life) -> None:
    """The second batch waits for somebody who holds a row."""
    life.type()
    jobs = [life.job() for _ in range(201)]
    with (
        on_jobs(cortex) as screen,
        holding_task(life.dsn, jobs[0], table="cortex.job"),  # the oldest comes last
    ):
        screen.until(lambda text: jobs[-1].hex[-6:] in text, what="the jobs")
        screen.type("*K")
        screen.until(lambda text: "enter   esc no" in text, what="the question")
        screen.type("\r")
        screen.until(lambda text: "type 201" in text, what="the number")
        screen.type("201")
        screen.until(lambda text: "200 cancelled, 1 not begun" in text, what="the first batch")
        screen.send(signal.SIGTERM)
        assert screen.end() == 128 + signal.SIGTERM
        assert screen.is_as_found
        assert "cancel 201 jobs: " in screen.text
        assert "200 cancelled, 1 not begun" in screen.text


@pytest.mark.parametrize("how", ["q", signal.SIGTERM, signal.SIGKILL])
def test_no_session_and_no_watch_is_left_behind(
    cortex: Cortex, life: Life, how: str | signal.Signals
) -> None:
    """One looks, one hears of changes, one hears what the model says; then none does."""
    life.type()
    life.job()
    life.claim(life.pod())

    def sessions() -> int:
        return len(life.sql(SESSIONS))

    before = sessions()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "● run" in text, what="the job")
        screen.type("\r")
        eventually(lambda: life.sql(WATCHES), what="the watch")
        assert sessions() >= before + 3
        if isinstance(how, str):
            screen.type(how)
        else:
            screen.send(how)
        _ = screen.end()
        eventually(lambda: sessions() == before, what="its sessions have ended")
        assert how is signal.SIGKILL or life.sql(WATCHES) == [], "else it lapses by itself"
