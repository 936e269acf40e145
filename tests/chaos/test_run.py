"""`python -m chaos run` as a person types it: its last words, exit code, and what it leaves."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from chaos.__main__ import main
from chaos.cluster.guard import PREFIX
from chaos.cluster.pods import CannotStartError
from chaos.cluster.stage import Stage
from chaos.commands import carry_out
from chaos.run import _check_job_type
from tests.support.eventually import eventually
from tests.support.life import Life
from tests.support.servers.postgres import run_asyncio, sql

WITHIN_S = 100.0
ROOT = Path(__file__).parent.parent.parent
APP = """
from cortex import Context, job

@job("greet")
async def greet(ctx: Context, name: str) -> str:
    return f"hello {name}"
"""


@contextmanager
def chaos(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a command; killed at the end of the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def in_process(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command here; its exit code."""
    monkeypatch.setattr(sys, "argv", ["chaos", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def folder_of(run: "subprocess.Popen[str]") -> Path:
    """The directory of a run, once a pod of it works there."""

    def find() -> Path | None:
        folders = [_folder(child) for child in psutil.Process(run.pid).children(recursive=True)]
        ready = (f for f in folders if f and any(p.stat().st_size for p in f.glob("p1.*.out")))
        return next(ready, None)

    folder = eventually(find, what="a pod is ready", within_s=WITHIN_S)
    assert folder is not None
    return folder


def _folder(process: psutil.Process) -> Path | None:
    """Where a process works, if that is the directory of a run."""
    with suppress(psutil.Error):
        cwd = Path(process.cwd())
        return cwd if cwd.name.startswith(PREFIX) else None
    return None


def is_left(folder: Path) -> list[psutil.Process] | bool:
    """Whether processes of a run still work in its directory, or the directory exists."""
    working = psutil.process_iter(["cwd", "name"])
    found = [p for p in working if (p.info["cwd"] or "").startswith(str(folder))]
    return found or folder.exists()


def test_killed_run_leaves_no_process_behind(tmp_path: Path) -> None:
    asked = ["--seed", "1", "--pods", "1", "--faults", "kill", "--report", str(tmp_path)]
    with chaos("run", *asked) as run:
        folder = folder_of(run)
        assert is_left(folder)
        run.kill()
        assert "Traceback" not in run.communicate(timeout=WITHIN_S)[0]
        eventually(lambda: not is_left(folder), what="nothing is left", within_s=WITHIN_S)


def test_a_job_type_that_no_pod_has_is_named(
    life: Life, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Postgres:
        async def sql(self, query: str) -> list[Any]:
            return sql(life.dsn, query)

    life.type("greet")
    stage = cast("Stage", SimpleNamespace(postgres=Postgres()))
    run_asyncio(lambda: _check_job_type(stage, "greet"))
    with pytest.raises(CannotStartError, match=r"no pod has job type 'digest'; known: .*greet"):
        run_asyncio(lambda: _check_job_type(stage, "digest"))

    async def fail(*_: object, **__: object) -> None:
        raise CannotStartError("no pod has it")

    monkeypatch.setattr(carry_out, "run", fail)
    assert in_process(monkeypatch, "run", "--seed", "1") == 2
    assert capsys.readouterr().err == "error: no pod has it\n"


def test_own_jobs_are_run_in_place_of_programs(tmp_path: Path) -> None:
    app = tmp_path / "mine.py"
    app.write_text(APP)
    asked = ["--app", str(app), "--duration", "2", "--pods", "1", "--intensity", "0", "--seed", "1"]
    with chaos("run", *asked, "--job", "greet", "--payload", '{"name": "Ann"}') as run:
        message = run.communicate(timeout=WITHIN_S)[0]
    assert run.returncode == 0, message
    assert "COMPLETED 8" in message


@pytest.mark.parametrize(
    "asked,message",
    [
        (["--faults", "flood"], "there is no fault 'flood'; known: kill,"),
        (["--app", "mine.py"], "--app and --job belong together"),
        (["--app", "nosuch.py", "--job", "greet"], "app 'nosuch.py' does not exist"),
        (
            ["--deploy", "--app", "mine.py", "--job", "greet"],
            "--deploy has an application of its own",
        ),
        (["--payload", "[]"], "--payload is not a JSON object"),
    ],
)
def test_invalid_options_are_reported_in_one_line(
    asked: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert in_process(monkeypatch, "run", *asked) == 2
    output = capsys.readouterr()
    assert output.err.startswith(f"error: {message}")
    assert (output.out, output.err.count("\n")) == ("", 1)
