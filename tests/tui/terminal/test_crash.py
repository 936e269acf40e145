"""A fault of the UI itself: one line, a report without values of variables, a clean terminal."""

import re
import signal
import stat
from pathlib import Path

import pytest

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.pty_screen import MODULE, PtyScreen
from tests.support.terminal.faulty_tui import SECRET

LEFT = b"\x1b[?1049l"
"""Leaves the alternate screen: later text is in the shell."""


def run(cortex: Cortex, where: str, *more: str) -> PtyScreen:
    env = cortex.environ({"XDG_STATE_HOME": str(cortex.folder / "state")})
    command = [*MODULE, "tests.support.terminal.faulty_tui", where, *more, "tui", "--as", "ana"]
    return PtyScreen(command, folder=cortex.folder, env=env, size=(240, 40))


def crash(screen: PtyScreen, life: Life) -> str:
    """Provoke the fault; return what is printed afterwards."""
    life.type()
    job = life.job()
    screen.until(lambda text: "> pulse" in text, what="the first screen")
    screen.type("2")
    screen.until(lambda text: job.hex[-6:] in text, what="the job")
    screen.type("s")
    assert screen.end() == 1
    assert screen.is_as_found
    assert SECRET.encode() not in screen.written
    output = screen.written.rpartition(LEFT)[2].decode("utf-8")
    return re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", output).replace("\r", "")


@pytest.mark.parametrize("where", ["a key", "looking", "drawing"])
def test_fault_is_reported_in_one_line(cortex: Cortex, life: Life, where: str) -> None:
    with run(cortex, where) as screen:
        lines = [each for each in crash(screen, life).splitlines() if each]
    assert len(lines) == 1, lines
    (line,) = lines
    assert line.startswith("error: a fault in cortex tui ended it: LookupError")
    assert SECRET[::-1] not in line, "what the error says may hold anything"
    assert "start cortex tui again" in line
    found = re.search(r"report: (\S+);", line)
    assert found is not None
    report = Path(found[1])
    text = report.read_text("utf-8")
    assert "Traceback" in text
    assert f"LookupError: no {SECRET[::-1]}" in text
    assert SECRET not in text
    assert stat.S_IMODE(report.stat().st_mode) == 0o600


def test_fault_in_an_action_after_leaving_is_reported(cortex: Cortex, life: Life) -> None:
    life.type()
    job = life.job()
    with run(cortex, "leaving") as screen:
        screen.until(lambda text: "> pulse" in text, what="the first screen")
        screen.type("2")
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.type("K")
        screen.until(lambda text: "○ pend?" in text, what="the question")
        screen.type("y")
        screen.until(lambda text: "○ pend …" in text, what="it is under way")
        screen.send(signal.SIGTERM)
        assert screen.end() == 1
        output = screen.written.rpartition(LEFT)[2].decode("utf-8")
    assert "? outcome unknown" in output
    found = re.search(r"fault in cortex tui ended it: LookupError in .*report: (\S+);", output)
    assert found is not None, output
    assert "LookupError" in Path(found[1]).read_text("utf-8")


def test_debug_prints_the_traceback(cortex: Cortex, life: Life) -> None:
    with run(cortex, "a key", "--debug") as screen:
        output = crash(screen, life)
    assert "Traceback" in output
    assert "error: a fault in cortex tui ended it: LookupError" in output


def test_a_folder_that_cannot_be_written_is_named(cortex: Cortex, life: Life) -> None:
    (cortex.folder / "state").write_text("no folder")
    with run(cortex, "a key") as screen:
        output = crash(screen, life)
    assert "no report could be written to" in output
    assert "--debug shows it" in output
