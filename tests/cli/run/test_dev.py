"""`cortex dev`: a pod that restarts when its code changes, while jobs go on."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cortex.cli.run.sources import Sources, changed_at
from tests.support.command_line import Cortex
from tests.support.eventually import WITHIN_S, eventually
from tests.support.life import Life

APP = """
from pathlib import Path

import trio
from cortex import Context, job


@job
async def ship(ctx: Context) -> list[str]:
    return [await ctx.step("pack", pack), await ctx.step("send", send)]


async def pack() -> str:
    return "VERSION"


async def send() -> str:
    while not await trio.Path("go").exists():
        await trio.sleep(0.02)
    return "VERSION"
"""
HANDED_BACK = "SELECT FROM cortex.job_attempt WHERE outcome = 'handed_back'"
OF_FIRST = "; waiting for a change"
OF_LATER = "; the pod goes on with the code before"


@pytest.mark.usefixtures("pods")
def test_jobs_go_on_while_the_code_changes(cortex: Cortex, life: Life) -> None:
    app, log = cortex.folder / "shop.py", cortex.folder / "log"

    def until(pattern: str) -> None:
        eventually(lambda: re.search(pattern, log.read_text()), what=pattern)

    app.write_text("def (\n")
    with log.open("w") as stream:
        developing = subprocess.Popen(
            [sys.executable, "-m", "cortex", "dev", "shop.py", "--http", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd=cortex.folder,
            env=cortex.environ({"CORTEX_POLL_S": "0.5"}),
        )
    try:
        until(rf"error: shop\.py:1: .*{OF_FIRST}\n")
        app.write_text(APP.replace("VERSION", "first"))
        until(r"shop\.py runs as pod .*, and restarts when you save\nthe API is at http://")
        job = cortex("submit", "ship", "-o", "name").out.strip()
        steps = "SELECT FROM cortex.job_step WHERE key = 'pack'"
        eventually(lambda: life.sql(steps), what="the first step")
        app.write_text(APP.replace("VERSION", "second"))
        until(r"reloaded in \d+\.\d\d s: shop\.py changed\n")
        app.write_text(APP + "\ndef (\n")
        until(rf"error: shop\.py:\d+: .*{OF_LATER}\n")
        eventually(lambda: life.sql(HANDED_BACK), what="the new pod's attempt")
        (cortex.folder / "go").touch()
        assert cortex("wait", job).code == 0
        shown = cortex("show", job, "--json").document
        assert shown["job"]["result"] == ["first", "second"]
        assert [each["outcome"] for each in shown["attempts"]] == ["handed_back"]
        assert shown["job"]["retry_count"] == 0
        developing.send_signal(signal.SIGINT)
        assert developing.wait(WITHIN_S) == 0, log.read_text()
        assert life.sql("SELECT FROM cortex.pod WHERE ended_at IS NULL") == []
    finally:
        developing.kill()
        developing.wait(WITHIN_S)


def test_changes_of_an_applications_files_are_seen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app, other = tmp_path / "app.py", tmp_path / "shop" / "orders.py"
    other.parent.mkdir()
    app.write_text("a = 1\n")
    other.write_text("b = 1\n")
    sources = Sources(["app.py"])
    assert sources.changed() == [str(app)]
    sources.add([str(other)])
    assert sources.changed() == []
    other.write_text("b = 10\n")
    assert sources.changed() == [str(other)]
    assert changed_at([str(other), str(tmp_path / "none.py")]) is not None
    saved = tmp_path / "app.py~"
    saved.write_text("a = 2\n")
    saved.replace(app)  # as editors save
    new = tmp_path / "new.py"
    new.touch()
    assert sources.changed() == [str(app), str(new)]
    app.unlink()
    assert sources.changed() == [str(app)]
    assert sources.changed() == []


@pytest.mark.parametrize(
    "words, message",
    [
        ("", "dev needs an application\nhint: name its file: cortex dev app.py\n"),
        ("nothere.py", "app 'nothere.py' does not exist\nhint: "),
        ("shop.py --http 192.0.2.1:8080", "cannot serve HTTP on 192.0.2.1:8080: "),
        ("shop.py --tui", "cortex dev --tui needs a terminal for its input and its output\n"),
    ],
)
def test_wrong_calls_name_the_way_out(cortex_nowhere: Cortex, words: str, message: str) -> None:
    (cortex_nowhere.folder / "shop.py").touch()
    ended = cortex_nowhere("dev", *words.split())
    assert ended.code == 2
    assert ended.err.startswith(f"error: {message}")
