"""`cortex up --tui`: one terminal, two processes; whichever ends, the other knows."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from cortex.postgres.embedded.socket import Postmaster
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S, eventually
from tests.support.life import Life
from tests.support.pods import APP, QUICK, until_pods
from tests.support.pty_screen import PtyScreen
from tests.support.servers.postgres import sql
from tests.support.terminal.tui_terminal import shows

Up = Callable[..., PtyScreen]
QUESTION = ("k keep running", "d drain and stop", "esc cancel")
ENDED = 0
KILLED = 128 + signal.SIGKILL


@pytest.fixture
def up(cortex: Cortex) -> Up:
    """Starts it on the test's database."""

    def started(*arguments: str, env: dict[str, str] | None = None, **terminal: Any) -> PtyScreen:
        command = [sys.executable, "-m", "cortex", "up", "--tui", *arguments]
        environ = cortex.environ(QUICK | (env or {}))
        return PtyScreen(command, folder=cortex.folder, env=environ, **terminal)

    return started


def child_of(screen: PtyScreen) -> psutil.Process:
    """The pod, once the UI is there."""
    screen.until(shows("> pulse", "pods 1/1"), what="the UI and its pod")
    (pod,) = psutil.Process(screen.pid).children()
    return pod


def log_in(folder: Path) -> str:
    (log,) = (folder / ".local" / "state" / "cortex" / "log").glob("pod-*.log")
    assert log.stat().st_mode & 0o077 == 0
    return log.read_text("utf-8")


def until_gone(pod: psutil.Process) -> None:
    eventually(
        lambda: not pod.is_running() or pod.status() == psutil.STATUS_ZOMBIE,
        what="the pod's process is gone",
    )


def test_up_tui_starts_everything_and_drains_it_again(tmp_path: Path, server_home: Path) -> None:
    """The pod creates the embedded database, and a job that comes early waits for it."""
    cortex = Cortex(tmp_path)
    command = [sys.executable, "-m", "cortex", "up", "--tui", "--data", str(server_home)]
    with PtyScreen(command, folder=tmp_path, env=cortex.environ(QUICK)) as screen:
        pod = child_of(screen)
        submitting = cortex.start("jobs", "submit", "sweep_zombies", "--data", str(server_home))
        job_id, message = submitting.communicate(timeout=WITHIN_S)
        assert submitting.returncode == 0, message
        assert UUID(job_id.strip()).version == 7
        screen.type("@")
        screen.until(shows(f":{pod.pid} runs with this screen", "its log: "), what="what runs")
        screen.type("q")
        screen.until(shows(*QUESTION), what="the question")
        screen.type("\x1b")
        screen.until(lambda text: "k keep running" not in text, what="it stays")
        assert pod.is_running()
        screen.type("q")
        screen.until(shows(*QUESTION), what="the question again")
        screen.type("d")
        assert screen.end() == ENDED
        assert screen.is_as_found
        text = screen.text
        assert "has ended; its log: " in text
        assert not pod.is_running()  # not even its zombie
        assert b'"event"' not in screen.written  # its logs are elsewhere
    assert '"pod ready"' in log_in(tmp_path)
    assert not (server_home / "pgdata" / "postmaster.pid").exists()


def test_app_survives_a_killed_embedded_database(tmp_path: Path, server_home: Path) -> None:
    cortex = Cortex(tmp_path)
    command = [sys.executable, "-m", "cortex", "up", "--tui", "--data", str(server_home)]

    def server() -> Postmaster:
        found = Postmaster.read(server_home / "pgdata" / "postmaster.pid")
        assert found is not None
        return found

    def its_users() -> set[str]:
        """Names of the sessions on the server that runs now."""
        found = Postmaster.read(server_home / "pgdata" / "postmaster.pid")
        if found is None or found.pid == killed.pid or not found.is_ready():
            return set()
        rows = sql(found.dsn("cortex"), "SELECT application_name AS name FROM pg_stat_activity")
        return {row["name"] for row in rows if (row["name"] or "").startswith("cortex")}

    with PtyScreen(command, folder=tmp_path, env=cortex.environ(QUICK)) as screen:
        child_of(screen)
        killed = server()
        killed.send(signal.SIGKILL)
        eventually(lambda: len(its_users()) > 1, what="pod and screen are on the new server")
        screen.until(shows("LIVE", "pods 1/1"), what="fresh")
        screen.type("q")
        screen.until(shows(*QUESTION), what="the question")
        screen.type("d")
        assert screen.end() == ENDED


@pytest.mark.smoke
def test_pod_keeps_running_after_the_screen_ends(up: Up, database: str) -> None:
    with up() as screen:
        pod = child_of(screen)
        screen.type("q")
        screen.until(shows(*QUESTION), what="the question")
        screen.type("k")
        screen.until(shows("keeps running, its log: ", "Ctrl-C drains it"), what="what is left")
        assert screen.is_as_found
        until_pods(database, READY=1)
        screen.send(signal.SIGINT)
        assert screen.end() == ENDED
        until_gone(pod)
    until_pods(database, READY=0, STOPPED=1)


def test_two_signals_hand_back_at_once(up: Up, life: Life, tmp_path: Path) -> None:
    """A job that would hold the drain for as long as it may."""
    with up("--app", APP) as screen:
        pod = child_of(screen)
        job = life.job("gated", payload=f'{{"gate": "{tmp_path / "never"}"}}')
        query = "SELECT FROM cortex.job_step WHERE job_id = $1"
        eventually(lambda: life.sql(query, job), what="the job has begun")
        screen.type("q")
        screen.until(shows(*QUESTION), what="the question")
        screen.type("d")
        screen.until(shows("drains; Ctrl-C hands its jobs back at once"), what="the drain")
        until_pods(life.dsn, DRAINING=1)
        screen.send(signal.SIGINT)
        assert screen.end() == 128 + signal.SIGTERM
        until_gone(pod)
    (task,) = life.sql("SELECT locked_by FROM cortex_worker.task")
    assert task["locked_by"] is None


def test_killed_pod_is_reported_without_a_drain_question(up: Up) -> None:
    with up() as screen:
        pod = child_of(screen)
        screen.type("q")
        screen.until(shows(*QUESTION), what="the question")
        pod.kill()
        output = screen.until(shows("pod ENDED", "was ended by SIGKILL"), what="the loss")
        assert "drains" not in output
        screen.type("\x1b")
        screen.until(lambda text: "esc continue" not in text, what="keys are keys again")
        screen.type("@")
        screen.until(shows("> log", "was ended by SIGKILL", "its log: "), what="where to look")
        screen.type("q")
        assert screen.end() == KILLED
        assert screen.is_as_found
        assert "was ended by SIGKILL; its log: " in screen.text


def test_pod_whose_screen_was_killed_drains(up: Up, database: str, tmp_path: Path) -> None:
    with up() as screen:
        pod = child_of(screen)
        screen.send(signal.SIGKILL)
        assert screen.end() == -signal.SIGKILL
        until_gone(pod)
    until_pods(database, READY=0, DRAINING=0, STOPPED=1)
    assert "terminal UI gone: pod drains" in log_in(tmp_path)


def test_workers_are_one_pod_on_the_screen_and_drain_with_it(
    up: Up, database: str, tmp_path: Path
) -> None:
    with up("--workers", "2") as screen:
        pod = child_of(screen)
        until_pods(database, READY=2)
        workers = pod.children()
        screen.send(signal.SIGKILL)
        assert screen.end() == -signal.SIGKILL
        for each in (pod, *workers):
            until_gone(each)
    until_pods(database, READY=0, DRAINING=0, STOPPED=2)
    assert log_in(tmp_path).count("terminal UI gone: pod drains") == 1


@pytest.mark.parametrize("is_controlling, is_left", [(False, False), (True, True)])
def test_closed_terminal_ends_screen_and_pod(
    up: Up, database: str, *, is_controlling: bool, is_left: bool
) -> None:
    """A window is closed, with the screen in it or after that."""
    with up(is_controlling=is_controlling) as screen:
        pod = child_of(screen)
        if is_left:
            screen.type("q")
            screen.until(shows(*QUESTION), what="the question")
            screen.type("k")
            screen.until(shows("keeps running, its log: "), what="what is left")
        screen.vanish()
        assert screen.end() == ENDED
        until_gone(pod)
    until_pods(database, READY=0, STOPPED=1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_drains_the_pod_and_restores_the_terminal(
    up: Up, database: str, number: signal.Signals
) -> None:
    with up() as screen:
        pod = child_of(screen)
        screen.send(number)
        assert screen.end() == ENDED
        assert screen.is_as_found
        until_gone(pod)
    until_pods(database, READY=0, STOPPED=1)


def test_a_signal_of_the_terminal_does_not_reach_the_pod(up: Up) -> None:
    with up(is_controlling=True) as screen:
        pod = child_of(screen)
        assert os.getsid(pod.pid) == pod.pid != os.getsid(screen.pid)
        screen.type("\x03")
        screen.until(shows("press q to quit"), what="what Ctrl-C says")
        assert pod.is_running()


def test_pod_keeps_running_when_the_terminal_is_too_small_to_ask(up: Up) -> None:
    with up(size=(50, 10)) as screen:
        screen.until(shows("50 by 10 is too small"), what="why nothing is shown")
        screen.type("q")
        screen.until(shows("keeps running"), what="what is left")
        screen.send(signal.SIGTERM)
        assert screen.end() == ENDED


def test_pod_that_fails_to_start_prints_its_error(up: Up, cortex: Cortex) -> None:
    with up("--app", "no/such.py") as screen:
        assert screen.end() == 2
        assert "error: app 'no/such.py' does not exist" in screen.text
        assert b"\x1b[?1049h" not in screen.written
    (cortex.folder / "occupied").write_text("")
    with up(env={"XDG_STATE_HOME": str(cortex.folder / "occupied")}) as screen:
        assert screen.end() == 2
        assert "cannot write the pod's log" in screen.text


def test_up_tui_without_a_terminal_is_refused(cortex: Cortex, database: str) -> None:
    ended = cortex("up", "--tui")
    assert ended.code == 2
    assert "cortex up --tui needs a terminal" in ended.err
    assert "leave out --tui" in ended.err
    assert sql(database, "SELECT FROM cortex.pod") == []


def test_a_dumb_terminal_is_refused(up: Up) -> None:
    with up(env={"TERM": "dumb"}) as screen:
        assert screen.end() == 2
        assert "leave out --tui" in screen.text


def test_dev_tui_restarts_its_pod_behind_the_screen(cortex: Cortex) -> None:
    app = cortex.folder / "shop.py"
    app.write_text("import cortex\n")
    command = [sys.executable, "-m", "cortex", "dev", "shop.py", "--tui", "--http", "127.0.0.1:0"]
    with PtyScreen(command, folder=cortex.folder, env=cortex.environ(QUICK)) as screen:
        child_of(screen)
        app.write_text("import cortex  # again\n")
        eventually(lambda: "reloaded in " in log_in(cortex.folder), what="the new pod")
        screen.until(shows("> pulse", "pods 1/1"), what="the screen stays")
        screen.type("q")
        screen.until(shows("Quit. Pod for development", *QUESTION), what="the question")
        screen.type("d")
        assert screen.end() == ENDED
    assert sql(str(cortex.dsn), "SELECT FROM cortex.pod WHERE ended_at IS NULL") == []
