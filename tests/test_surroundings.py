"""Tests see nothing of the user: a run between traps springs none of them."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.outside_programs import INSIST, OutsideProgram
from tests.support.surroundings import OURS

ROOT = Path(__file__).parent.parent
POISON = "no TOML, and no setting either"
SEEN_BY = (
    "tests/test_surroundings.py::test_tests_see_no_settings_of_the_user",
    "tests/test_surroundings.py::test_started_programs_ignore_no_signal",
    "tests/cli/test_doctor.py::test_a_server_that_does_not_answer_and_a_secret_that_does_not_show",
    "tests/unit/test_config.py",
    "tests/agent/test_model.py::test_key_and_address_come_from_the_environment",
    "tests/agent/test_model.py::test_without_a_key",
    "tests/e2e/test_start.py::test_a_newer_schema_is_refused",
)
"""Tests that look at settings, at a database, at the model's address and at the user's folders.

Few of each kind: none more would see another trap, and beside a whole run each takes long.
"""
TRAP: Final = "127.77.0.1"
"""This machine, at an address of the trap's own: others knock at ports of 127.0.0.1."""
IGNORED: Final = [int(n) for n in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)]
NEVER_THERE = "mount -t tmpfs traps /var/lib && mkdir -p /var/lib/cortex/pgdata && "
"""Root's data folder is the machine's: it is poisoned where only this run sees it."""


def files_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def poisoned_home(folder: Path) -> Path:
    for config in (".config/cortex", "config/cortex"):
        (folder / config).mkdir(parents=True)
        (folder / config / "config.toml").write_text(POISON)
        (folder / config / "keys.toml").write_text(POISON)
    for data in (".local/share/cortex/pgdata", "data/cortex/pgdata", "cortex/pgdata"):
        (folder / data).mkdir(parents=True)
    return folder


def own_mounts(command: list[str]) -> list[str]:
    """The command where /var/lib is poisoned, if this user may have mounts of its own."""
    probe = ["unshare", "--mount", "true"]
    try:
        may = os.geteuid() == 0 and subprocess.run(probe, check=False).returncode == 0
    except FileNotFoundError:
        may = False
    script = f"{NEVER_THERE}exec {shlex.join(command)}"
    return ["unshare", "--mount", "sh", "-c", script] if may else command


def test_tests_see_no_settings_of_the_user() -> None:
    settings = {
        name for name in os.environ if name.startswith(("ANTHROPIC_", "CORTEX_", "PG", "XDG_"))
    }
    assert {name for name in settings if not name.startswith(OURS)} == {"CORTEX_DATA"}
    assert Path.home().name.startswith("cortex-tests-home-")
    assert Path(os.environ["CORTEX_DATA"]).parent == Path.home()


def test_started_programs_ignore_no_signal() -> None:
    show = f"import signal; print(*[signal.getsignal(n) is signal.SIG_IGN for n in {IGNORED}])"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"] * len(IGNORED)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def ignoring(command: list[str]) -> list[str]:
    """The command as `nohup … &` of a script runs it."""
    return ["sh", "-c", f"trap '' INT QUIT HUP; exec {shlex.join(command)}"]


def test_a_missing_program_skips_its_test_unless_the_run_insists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    absent = OutsideProgram(("cortex-no-such-program",), "some-package")
    reason = "no cortex-no-such-program on this machine: apt-get install some-package"
    monkeypatch.delenv(INSIST, raising=False)
    with pytest.raises(pytest.skip.Exception, match=reason):
        absent.needed()
    monkeypatch.setenv(INSIST, "1")
    with pytest.raises(pytest.fail.Exception, match=reason):
        absent.needed()


@pytest.mark.timeout(300)
def test_a_run_between_traps_springs_none(tmp_path: Path) -> None:
    home = poisoned_home(tmp_path / "user")
    before = files_below(home)
    with socket.create_server((TRAP, 0)) as trap:
        host, port = trap.getsockname()
        traps = {
            "HOME": home,
            "XDG_CONFIG_HOME": home / "config",
            "XDG_DATA_HOME": home / "data",
            "XDG_STATE_HOME": home / "state",
            "CORTEX_CRASH_AT": "nowhere",
            "CORTEX_DATA": home / "cortex",
            "CORTEX_DSN": f"postgresql://trap@{host}:{port}/trap",
            "CORTEX_SLOTS": POISON,
            "PGHOST": host,
            "PGPORT": port,
            "PGPASSFILE": home,
            "PGSSLMODE": "verify-full",
            "ANTHROPIC_BASE_URL": f"http://{host}:{port}",
            "ANTHROPIC_API_KEY": "trap",
        }
        environ = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0"]
        unhurried = ["--timeout", "0"]  # this test's own limit bounds them all together
        done = subprocess.run(
            own_mounts(ignoring([*command, *unhurried, *SEEN_BY])),
            cwd=ROOT,
            env=environ | {name: str(value) for name, value in traps.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        trap.settimeout(0)
        with pytest.raises(BlockingIOError):
            trap.accept()
    assert done.returncode == 0, done.stdout
    assert files_below(home) == before
