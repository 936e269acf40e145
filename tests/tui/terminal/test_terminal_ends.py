"""`cortex tui` when its terminal goes away, or another program has it for a while."""

import shlex
import signal
import time
from functools import partial

import psutil
import pytest

from tests.support.command_line import Cortex
from tests.support.eventually import eventually
from tests.support.life import Life
from tests.support.pty_screen import PtyScreen
from tests.support.terminal.tui_terminal import TUI, on_jobs

GONE_S = 10.0
"""It takes a tenth of that to notice; one that does not would never end."""
SESSIONS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
"""
WATCHES = "SELECT FROM cortex.watch"


@pytest.mark.parametrize("ignores_hangup", [False, True])
@pytest.mark.parametrize("is_controlling", [False, True])
def test_app_ends_with_its_terminal(
    cortex: Cortex, life: Life, *, is_controlling: bool, ignores_hangup: bool
) -> None:
    """A window is closed: only the controlling terminal's signal says so."""
    life.type()
    job = life.job()
    with on_jobs(cortex, is_controlling=is_controlling, ignores_hangup=ignores_hangup) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.vanish()
        began = time.monotonic()
        assert screen.end() == 128 + signal.SIGHUP
        assert time.monotonic() - began < GONE_S


def test_blocked_terminal_does_not_delay_a_signal(cortex: Cortex, life: Life) -> None:
    """Nobody reads its output, as on a hanging connection. It still ends on a signal."""
    life.type()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "no jobs yet" in text, what="the empty list")
        screen.choke("?\x1b")
        screen.send(signal.SIGTERM)
        assert screen.end(is_reading=False) == 128 + signal.SIGTERM
        assert screen.modes_now == screen.modes


@pytest.mark.parametrize("how", ["ctrl+z", signal.SIGTSTP, signal.SIGSTOP])
def test_app_resumes_from_the_shell(cortex: Cortex, life: Life, how: str | signal.Signals) -> None:
    life.type()
    job = life.job()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        if isinstance(how, str):
            screen.type("\x1a")
        else:
            screen.send(how)
        screen.until_stopped()
        assert screen.is_as_found or how is signal.SIGSTOP  # without any notification
        screen.forget()
        screen.until_resumed(
            lambda text: job.hex[-6:] in text and "LIVE" in text, what="the job again"
        )
        screen.type("K")
        screen.until(lambda text: "○ pend?" in text, what="the question")
        screen.type("y")
        screen.until(lambda text: "⊘ canc" in text, what="the job is cancelled")
        screen.type("q")
        assert screen.end() == 0
        assert screen.is_as_found


KEYS = "abcdefghijklmnopqrstuvwxyz" * 3


def test_signals_that_come_at_once_leave_one_reader(cortex: Cortex, life: Life) -> None:
    """Each restarts it; two at once must not restart it twice."""
    life.type()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "no jobs yet" in text, what="the empty list")
        before = psutil.Process(screen.pid).num_threads()
        for number in [signal.SIGCONT] * 40 + [signal.SIGSTOP, signal.SIGCONT, signal.SIGCONT] * 10:
            screen.send(number)
        screen.type("\x1a")
        screen.until_stopped()
        screen.send(signal.SIGCONT)
        screen.until_resumed(lambda text: "LIVE" in text, what="the list again")
        types_in_order(screen)
        assert psutil.Process(screen.pid).num_threads() <= before
        screen.type("q")
        assert screen.end() == 0
        assert screen.is_as_found


def test_shell_returns_the_app_to_the_foreground(cortex: Cortex, life: Life) -> None:
    life.type()
    shell = ["bash", "--norc", "--noprofile", "-i"]
    env = cortex.environ({"PS1": "shell> "})
    with PtyScreen(shell, folder=cortex.folder, env=env, is_controlling=True) as screen:
        screen.until(lambda text: "shell>" in text, what="the shell")
        screen.type(f"{shlex.join(TUI)}\n")
        for how in ("ctrl+z", "kill -STOP", "kill -STOP, -CONT"):
            screen.until(lambda text: "LIVE" in text, what="the first screen")
            (tui,) = [
                each
                for each in psutil.Process(screen.pid).children(recursive=True)
                if "tui" in each.cmdline()
            ]
            if how == "ctrl+z":
                screen.type("\x1a")
            else:
                tui.send_signal(signal.SIGSTOP)
            screen.until(lambda text: "Stopped" in text, what="the shell again")
            if "-CONT" in how:
                tui.send_signal(signal.SIGCONT)
                eventually(partial(is_stopped, tui), what="it stops again in the background")
            screen.type("echo mine\n")
            screen.until(lambda text: "\nmine" in text, what="the shell has the keys")
            screen.forget()
            screen.type("fg\n")
        screen.until(lambda text: "LIVE" in text, what="the first screen")
        types_in_order(screen)
        screen.type("q")
        screen.until(lambda _: not tui.is_running(), what="the end")


def is_stopped(process: psutil.Process) -> bool:
    return process.status() == psutil.STATUS_STOPPED


def types_in_order(screen: PtyScreen) -> None:
    screen.press_until("2", lambda text: "> jobs" in text, what="the jobs")
    screen.type("/")
    screen.until(lambda text: "> jobs" in text, what="the line for a filter")
    for at in range(0, len(KEYS), 3):
        screen.type(KEYS[at : at + 3])
    screen.until(lambda text: KEYS in text, what="all keys in their order")
    screen.type("\x15")
    screen.until(lambda text: KEYS not in text, what="an empty filter")
    screen.type("\r")
    screen.press_until("1", lambda text: "> pulse" in text, what="the first screen")


@pytest.mark.parametrize("how", ["q", signal.SIGTERM, signal.SIGKILL])
def test_no_session_and_no_watch_is_left_behind(
    cortex: Cortex, life: Life, how: str | signal.Signals
) -> None:
    """One polls, one listens for changes, one streams the model; then none does."""
    life.type()
    life.job()
    life.claim(life.pod())

    def sessions() -> set[int]:
        return {row["pid"] for row in life.sql(SESSIONS)}

    before = sessions()  # some of those may be about to end
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "● run" in text, what="the job")
        screen.type("\r")
        eventually(lambda: life.sql(WATCHES), what="the watch")
        eventually(lambda: len(sessions() - before) >= 3, what="its sessions")
        if isinstance(how, str):
            screen.type(how)
        else:
            screen.send(how)
        _ = screen.end()
        eventually(lambda: sessions() <= before, what="its sessions have ended")
        assert how is signal.SIGKILL or life.sql(WATCHES) == [], "else it lapses by itself"
