"""`cortex tui` as a process on a terminal, on a real Postgres."""

import json
import re
import signal
import sys
import time
from base64 import b64encode
from pathlib import Path

import pytest

from cortex.postgres.database import Profile
from cortex.postgres.session import open_session
from tests.support.command_line import Cortex
from tests.support.hostile import HOSTILE, LINES
from tests.support.life import Life
from tests.support.people import me
from tests.support.pty_screen import PtyScreen
from tests.support.records.approvals import Askers
from tests.support.servers.postgres import migrate
from tests.support.servers.private_postgres import PrivatePostgres
from tests.support.terminal.tui_terminal import on_jobs, on_screen, shows

FORBIDDEN = (
    b"\x1b[2J\x1b]52",
    b"\x1b]52",
    b"\x1b]8;",
    b"\x9b2J",
    b"evil.test\x1b",
    b"\x1b]0;title",
)
"""What the hostile text would make a terminal do; Textual writes none of these itself."""
KEPT, GIVEN_BACK = b"\x1b[22;0t", b"\x1b[23;0t"
"""The terminal keeps the title that there is; it takes that one again."""
AGAIN_S = 2.0
"""The bar for a fresh screen once the database is back; a slow machine gets ten times that."""


@pytest.mark.smoke
def test_a_job_is_seen_and_cancelled(cortex: Cortex, life: Life) -> None:
    life.type()
    job = life.job()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.type("K")
        screen.until(lambda text: "○ pend?" in text, what="the question")
        screen.type("y")
        screen.until(lambda text: "✓ cancelled" in text and "⊘ canc" in text, what="what was done")
        screen.type("q")
        assert screen.end() == 0
        assert screen.is_as_found
    (row,) = life.sql("SELECT status, cancelled_by FROM cortex.job")
    assert tuple(row) == ("CANCELLED", me("ana"))


def test_text_of_jobs_cannot_reach_the_terminal(cortex: Cortex, life: Life) -> None:
    life.type()
    job = life.failed(LINES.replace("\0", ""))
    life.sql("UPDATE cortex.pod SET name = $1", HOSTILE)
    life.agent("researcher")
    with on_jobs(cortex) as screen:
        screen.until(lambda text: job.hex[-6:] in text and "⟦U+001B⟧" in text, what="the job")
        screen.type("\r")
        screen.until(lambda text: "attempt 1" in text, what="the job alone")
        screen.type("R")
        screen.until(lambda text: "a new job goes on" in text, what="the question")
        screen.type("\x1b")
        screen.until(shows("nothing was done"), what="the answer")
        screen.type("@")
        screen.until(shows("> log"), what="the log")
        screen.type("q")
        assert screen.end() == 0
        assert [bad for bad in FORBIDDEN if bad in screen.written] == []
        decoded = screen.written.decode("utf-8")
        assert [c for c in "\u202e\u2066\u200b\ufeff\u2028\x9b\x85" if c in decoded] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(
    cortex: Cortex, life: Life, number: signal.Signals
) -> None:
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "no jobs yet" in text, what="the empty list")
        screen.send(number)
        assert screen.end() == 128 + number
        assert screen.is_as_found


def test_app_goes_stale_without_the_database_and_recovers(
    tmp_path: Path, private_postgres: PrivatePostgres
) -> None:
    migrate(private_postgres.dsn)
    with open_session(Profile(dsn=private_postgres.dsn)) as call:
        life = Life(call, private_postgres.dsn)
        life.type()
        job = life.job()
    with on_jobs(Cortex(tmp_path, private_postgres.dsn)) as screen:
        screen.until(lambda text: job.hex[-6:] in text and "LIVE" in text, what="the job")
        private_postgres.stop()
        screen.until(lambda text: "STALE" in text, what="the badge")
        assert job.hex[-6:] in screen.text
        screen.type("K")
        screen.until(lambda text: "the database does not answer" in text, what="the refusal")
        private_postgres.start()
        began = time.monotonic()
        screen.until(lambda text: "LIVE" in text and "STALE" not in text, what="the link again")
        again_s = time.monotonic() - began
        sys.stdout.write(f"fresh {again_s:.2f} s after the database came back\n")
        assert again_s < 10 * AGAIN_S
        screen.type("K")
        screen.until(lambda text: "○ pend?" in text, what="the question")
        screen.type("y")
        screen.until(lambda text: "⊘ canc" in text, what="the job is cancelled")
        screen.type("q")
        assert screen.end() == 0


def test_no_color_disables_all_colours(cortex: Cortex, life: Life) -> None:
    life.failed()
    with on_jobs(cortex, env={"NO_COLOR": "1"}) as screen:
        screen.until(lambda text: "✗ fail" in text, what="the job")
        screen.type("q")
        screen.end()
        codes = {
            code
            for styles in re.findall(rb"\x1b\[([0-9;]*)m", screen.written)
            for code in styles.split(b";")
        }
        assert codes <= {b"", b"0", b"1", b"2", b"7", b"39", b"49"}


def test_title_counts_waiting_requests_and_is_restored(cortex: Cortex, life: Life) -> None:
    with open_session(Profile(dsn=life.dsn, hot_path=True)) as call:
        Askers(call, life.dsn).asked(said="I will.\x1b]2;evil\a")
    with on_screen(cortex) as screen:
        screen.until(lambda _: titles(screen)[-1:] == [b"(1) cortex"], what="the title")
        screen.type("3")
        screen.until(lambda text: "> approvals" in text and "EXPIRES" in text, what="the request")
        screen.type("\x1a")
        screen.until_stopped()
        kept, given_back = screen.written.count(KEPT), screen.written.count(GIVEN_BACK)
        assert (kept, given_back) == (1, 1), "the shell has its own again"
        screen.send(signal.SIGCONT)
        screen.until(lambda _: titles(screen)[2:] == [b"(1) cortex"], what="the title again")
        screen.type("q")
        assert screen.end() == 0
        assert titles(screen) == [b"cortex", b"(1) cortex", b"(1) cortex"]
        assert screen.written.count(KEPT) == screen.written.count(GIVEN_BACK) == 2
        assert screen.written.rindex(GIVEN_BACK) > screen.written.rindex(KEPT)


def test_unfocused_terminal_gets_a_desktop_notification(cortex: Cortex, life: Life) -> None:
    env = {"TERM_PROGRAM": "WezTerm"}
    with (
        open_session(Profile(dsn=life.dsn, hot_path=True)) as call,
        on_screen(cortex, "--notify", "osc", env=env) as screen,
    ):
        screen.until(lambda _: titles(screen)[-1:] == [b"cortex"], what="the title")
        screen.type("\x1b[O")
        askers = Askers(call, life.dsn)
        called = rb"\x1b\]777;notify;cortex;([^\x1b\x07]*)\x1b\\"
        # What is there at the first reading after the focus has gone is not news.
        for count in range(1, 20):
            askers.asked(said="I will.\x1b]2;evil\a")
            screen.until(
                lambda _: re.search(called, screen.written) or len(titles(screen)) > count,  # noqa: B023
                what="the call or the title",
            )
            if re.search(called, screen.written):
                break
        assert b"for approval" in re.findall(called, screen.written)[0]
        screen.type("q")
        assert screen.end() == 0


def test_a_console_without_a_title_gets_none(cortex: Cortex) -> None:
    with on_jobs(cortex, env={"TERM": "linux"}) as screen:
        screen.type("q")
        assert screen.end() == 0
        assert titles(screen) == []
        assert KEPT not in screen.written
        assert GIVEN_BACK not in screen.written


def titles(screen: PtyScreen) -> list[bytes]:
    """Return the titles that the window was given."""
    return re.findall(rb"\x1b\][012];([^\x07\x1b]*)\x07", screen.written)


@pytest.mark.parametrize("arguments", [[], ["--read-only"]])
def test_tui_without_a_terminal_is_refused(cortex: Cortex, arguments: list[str]) -> None:
    ended = cortex("tui", *arguments)
    assert ended.code == 2
    assert "needs a terminal" in ended.err
    assert "use cortex jobs watch" in ended.err


@pytest.mark.parametrize("term, output", [("dumb", "TERM is dumb"), ("", "TERM is not set")])
def test_a_dumb_terminal_is_refused(cortex: Cortex, term: str, output: str) -> None:
    with on_screen(cortex, env={"TERM": term}) as screen:
        assert screen.end() == 2
        assert output in screen.text
        assert "use cortex jobs watch" in screen.text
        assert b"\x1b[" not in screen.written


def test_all_that_fit_a_filter_are_cancelled_by_a_job(cortex: Cortex, life: Life) -> None:
    life.type()
    jobs = [life.job() for _ in range(3)]
    with on_jobs(cortex) as screen:
        screen.until(lambda text: all(each.hex[-6:] in text for each in jobs), what="the jobs")
        screen.type("*")
        screen.until(lambda text: "* all that fit" in text, what="the marks")
        screen.type("K")
        screen.until(lambda text: "cancel 3 jobs?" in text, what="the count")
        screen.type("twice\r")
        screen.until(lambda text: "y yes" in text, what="the question")
        screen.type("y")
        screen.until(lambda text: "does it, also without you" in text, what="what was done")
        screen.type("q")
        assert screen.end() == 0
    (row,) = life.sql("SELECT submitted_by, payload FROM cortex.job WHERE type = 'bulk'")
    request = json.loads(row["payload"])["request"]
    assert row["submitted_by"] == me("ana")
    assert (request["verb"], request["reason"]) == ("cancel", "twice")
    assert sorted(request["job_ids"]) == sorted(map(str, jobs)), "those that were counted"


def test_ctrl_space_and_ctrl_backslash_reach_the_list(cortex: Cortex, life: Life) -> None:
    life.type()
    for _ in range(4):
        life.job()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "4 jobs" in text, what="the jobs")
        screen.type(" j\0")
        screen.until(lambda text: "* 3 marked" in text, what="the range")
        screen.type("\x1c")
        screen.until(lambda text: "marked" not in text, what="no marks")
        screen.type("q")
        assert screen.end() == 0


def test_an_editor_is_lent_the_terminal(cortex: Cortex, life: Life, tmp_path: Path) -> None:
    life.type()
    job = life.job()
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import pathlib, sys\n"
        "text = pathlib.Path(sys.argv[1]).read_text()\n"
        "print('EDITOR HAS', len(text), flush=True)\n"
        "input()\n"
        "print(text[:2_000])\n"
    )
    with on_jobs(cortex, env={"EDITOR": f"{sys.executable} {editor}", "VISUAL": ""}) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.type("e")
        screen.until(lambda text: "EDITOR HAS" in text, what="the editor")
        screen.type("\n")
        screen.until(lambda text: "> jobs" in text, what="the list")
        screen.type("q")
        assert screen.end() == 0
        assert screen.modes_now == screen.modes
    assert f'"id": "{job}"'.encode() in screen.written


def test_ctrl_z_releases_the_terminal_and_the_app_resumes(cortex: Cortex, life: Life) -> None:
    with on_jobs(cortex) as screen:
        screen.until(lambda text: "no jobs yet" in text, what="the empty list")
        screen.type("\x1a")
        screen.until_stopped()
        assert screen.modes_now == screen.modes
        assert screen.written.rindex(b"\x1b[?1049l") > screen.written.rindex(b"\x1b[?1049h")
        life.type()
        job = life.job()
        screen.send(signal.SIGCONT)
        screen.until(lambda text: job.hex[-6:] in text, what="the list again")
        screen.type("q")
        assert screen.end() == 0


def test_missing_schema_is_reported_in_one_line(tmp_path: Path, empty_database: str) -> None:
    with on_screen(Cortex(tmp_path, empty_database)) as screen:
        assert screen.end() == 1
        assert "schema" in screen.text, "in other words where no database of the server has one"
        assert "cortex migrate" in screen.text
        assert b"\x1b[?1049h" not in screen.written, "no screen was begun"


def test_copied_text_goes_to_the_terminal_clipboard(cortex: Cortex, life: Life) -> None:
    life.type()
    job = life.job()
    with on_jobs(cortex) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.type("ci")
        screen.until(lambda text: f"copied {job}" in text, what="what was copied")
        screen.type("q")
        assert screen.end() == 0
    assert b"\x1b]52;c;" + b64encode(str(job).encode()) + b"\a" in screen.written


@pytest.mark.parametrize(
    "text, output",
    [
        ('"jobs.cancel" = "j"', "j would be both list.down and jobs.cancel"),
        ("jobs.cancel", "keys.toml"),
        ('"jobs.cancle" = "x"', "did you mean 'jobs.cancel'?"),
    ],
)
def test_a_wrong_keys_file_is_one_clear_line(
    cortex: Cortex, tmp_path: Path, text: str, output: str
) -> None:
    folder = tmp_path / "xdg" / "cortex"
    folder.mkdir(parents=True)
    (folder / "keys.toml").write_text(text)
    with on_screen(cortex, env={"XDG_CONFIG_HOME": str(tmp_path / "xdg")}) as screen:
        assert screen.end() == 2
        assert "".join(output.split()) in "".join(screen.text.split())  # wherever a line was broken
        assert "Traceback" not in screen.text
        assert b"\x1b[?1049h" not in screen.written


def test_other_keys_are_read_from_the_users_folder(
    cortex: Cortex, life: Life, tmp_path: Path
) -> None:
    folder = tmp_path / "xdg" / "cortex"
    folder.mkdir(parents=True)
    (folder / "keys.toml").write_text('"jobs.cancel" = "ctrl+k"\n"jobs.sort" = ["S", "s"]\n')
    life.type()
    job = life.job()
    with on_jobs(cortex, env={"XDG_CONFIG_HOME": str(tmp_path / "xdg")}) as screen:
        screen.until(lambda text: job.hex[-6:] in text, what="the job")
        screen.until(lambda text: "ctrl+k cancel" in text, what="the footer")
        screen.type("S")
        screen.until(
            lambda text: "oldest first" in text and job.hex[-6:] in text, what="the other order"
        )
        screen.type("\x0b")
        screen.until(lambda text: "○ pend?" in text, what="the question")
        screen.type("\x1b")
        screen.until(lambda text: "nothing was done" in text, what="the answer")
        screen.type("q")
        assert screen.end() == 0
