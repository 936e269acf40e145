"""`cortex demo --approve` on the embedded Postgres, decided by the commands that it prints."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import attrs
import pytest

from chaos.cluster.fork_server import Process
from cortex.postgres.embedded.install import packaged
from cortex.postgres.embedded.socket import Postmaster
from tests.support.eventually import WITHIN_S, eventually
from tests.support.people import me
from tests.support.pods import FORKS
from tests.support.pty_screen import PtyScreen
from tests.support.servers.postgres import remove_servers, sql
from tests.support.servers.private_postgres import copy_of_original

ROOT = Path(__file__).parents[2]
WAITS = "waits    for you: send_mail"
BOTH = "team@example.org, customers@example.org"


@attrs.define
class Demo:
    """One reader's machine: a folder to inspect, and runs of the demo on it."""

    home: Path
    data: Path
    runs: list["Process | subprocess.Popen[bytes]"] = attrs.field(factory=list)

    @property
    def folder(self) -> Path:
        return self.home / "folder"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
            "PYTHONWARNINGS": "error",
        }

    @property
    def dsn(self) -> str:
        """The address of its database; only while a demo runs."""
        found = Postmaster.read(self.data / "pgdata" / "postmaster.pid")
        assert found is not None, "no server is running"
        return found.dsn("cortex")

    def run(self, *, is_forked: bool = True) -> "Run":
        """Start the demo; it is a process group of its own, as in a terminal."""
        log = self.home / f"demo-{len(self.runs)}.log"
        words = ["demo", str(self.folder), "--approve", "--data", str(self.data)]
        with log.open("wb") as out:
            if is_forked:
                process: Process | subprocess.Popen[bytes] = FORKS.start(
                    words, cwd=self.home, env=self.environ, stdout=out, stderr=out
                )
            else:
                process = subprocess.Popen(
                    [*CORTEX, *words],
                    cwd=self.home,
                    env=self.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        self.runs.append(process)
        return Run(self, process, log)

    def command(self, line: str, *more: str) -> None:
        """Run a command that the demo printed, word by word."""
        printed = words(line)
        assert printed[: len(CORTEX)] == [*CORTEX]
        ran = FORKS.run(
            [*printed[len(CORTEX) :], *more],
            cwd=self.home,
            env=self.environ,
            timeout=WITHIN_S,
        )
        assert ran.returncode == 0, ran.stderr

    def mails(self) -> list[EmailMessage]:
        """The mails that were sent."""
        files = (self.data / "workspaces").glob("*/outbox/*.eml")
        return [message_from_bytes(each.read_bytes(), policy=policy.default) for each in files]


CORTEX = (sys.executable, "-m", "cortex")


def words(line: str) -> list[str]:
    """The words of a printed command, with `python` replaced by this interpreter."""
    python, *rest = shlex.split(line)
    assert python == "python"
    return [sys.executable, *rest]


@attrs.define
class Run:
    """One run of the demo."""

    demo: Demo
    process: "Process | subprocess.Popen[bytes]"
    log: Path

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8")

    def value_of(self, label: str, *, containing: str = "") -> str:
        """The text behind a label."""
        found = re.findall(rf"^{label} +(.*{re.escape(containing)}.*)$", self.text, re.MULTILINE)
        assert found, f"{label}: {self.text}"
        return str(found[0])

    def until_it_waits(self) -> None:
        def look() -> bool:
            assert self.process.poll() is None, self.text
            return WAITS in self.text and "deny" in self.text

        eventually(look, what="it waits for a person")

    def end(self) -> int:
        try:
            return self.process.wait(WITHIN_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.text}") from None


@pytest.fixture
def demo(run_dir: Path, tmp_path: Path) -> Iterator[Demo]:
    """A machine whose database has been made already."""
    data = copy_of_original(run_dir, bindir=packaged().root / "bin")
    started = Demo(tmp_path, data)
    started.folder.mkdir()
    (started.folder / "README.md").write_text("# Lighthouse\n\nKeeps ships off the rocks.\n")
    (started.folder / "lamp.py").write_text('"""Turns the lamp."""\n' + "x = 1\n" * 40)
    yield started
    for process in started.runs:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    remove_servers(data)


def test_demo_is_approved_in_the_terminal_ui(demo: Demo) -> None:
    run = demo.run()
    run.until_it_waits()
    name = run.value_of("or", containing="approve ").split(" approve ")[1].split()[0]
    tui = [*words(run.value_of("type")), "--as", "li"]
    with PtyScreen(tui, folder=demo.home, env=demo.environ) as screen:
        screen.until(lambda text: "1 approval" in text, what="that something waits")
        screen.type("A")
        screen.until(lambda text: name in text and "customers@" in text, what="all of it")
        screen.press_until("a", lambda text: "y yes" in text, what="the question")
        screen.press_until("y", lambda text: "✓ approved" in text, what="what was done")
        assert run.end() == 0, run.text
        screen.type("q")
        assert screen.end() == 0
    assert re.match(
        rf"send_mail approved by {re.escape(me('li'))} on tui after \d", run.value_of("decided")
    )
    assert [mail["To"] for mail in demo.mails()] == [BOTH]


def test_denied_or_expired_demo_ends_and_sends_nothing(demo: Demo) -> None:
    run = demo.run()
    run.until_it_waits()
    demo.command(run.value_of("or", containing=" deny "), "--as", "ana")
    assert run.end() == 6, run.text
    decided = run.value_of("decided")
    assert re.match(
        rf"send_mail denied by {re.escape(me('ana'))} on cli after \S+( \S+)?: not to customers;",
        decided,
    )
    assert decided.endswith("; nothing was sent")
    assert "failed " not in run.text.split("decided")[1]
    run = demo.run()
    run.until_it_waits()
    sql(demo.dsn, "UPDATE cortex.approval SET expires_at = cortex.now() WHERE status = 'PENDING'")
    assert run.end() == 6, run.text
    assert re.match(
        r"send_mail expired after .*: nobody decided, nothing was", run.value_of("decided")
    )
    assert not demo.mails()


def test_interrupted_demo_waits_at_the_same_request_and_sends_once(demo: Demo) -> None:
    run = demo.run(is_forked=False)
    run.until_it_waits()
    how = run.value_of("or", containing="approve ")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 0, run.text
    assert " demo --approve " in run.value_of("paused")
    again = demo.run()
    again.until_it_waits()
    os.killpg(again.process.pid, signal.SIGKILL)
    again.end()
    last = demo.run()
    last.until_it_waits()
    assert [each.value_of("or", containing="approve ") for each in (again, last)] == [how] * 2
    jobs = {each.value_of("job").split()[0] for each in (run, again, last)}
    assert len(jobs) == 1
    assert not demo.mails()
    demo.command(how, "--yes", "--as", "ana")
    assert last.end() == 0, last.text
    assert re.match(
        rf"send_mail approved by {re.escape(me('ana'))} on cli after \d", last.value_of("decided")
    )
    (mail,) = demo.mails()
    assert mail["To"] == BOTH
    assert Path(last.value_of("mail")).read_bytes()
    attached = next(mail.iter_attachments())
    assert "# Inspection of Lighthouse" in attached.get_content()
