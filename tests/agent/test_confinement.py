"""A hostile program gets nothing, by any means, under root and under another user."""

import json
import os
import platform
import py_compile
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cortex.agent.confinement import child as confined_child
from cortex.agent.confinement import means as confinement
from cortex.agent.confinement.means import Confiner, best_means, works
from cortex.domain.confinement import MEANS, NO_MEANS, Confinement
from cortex.domain.errors import RejectedError
from tests.support import intruder
from tests.support.eventually import WITHIN_S, eventually
from tests.support.pod_place import CANARY, PLANTED, Place, a_place

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="its calls have numbers")

HARMLESS = [
    *("database_socket", "database_socket_by_link", "abstract_socket", "tcp_on_loopback"),
    *("tcp_by_mapped_v6", "environment", "read_config", "read_data", "read_pgpass", "read_ssh_key"),
    *("read_token", "read_other_workspace", "list_data", "symlink_out", "up_from_here"),
    *("pod_environ", "pod_root", "pod_descriptors", "signal_pod", "pidfd_of_pod"),
    *("write_declared_folder", "git_hook_in_declared_folder", "many_descriptors", "much_memory"),
    *("cortex_as_module", "endless_computing"),
]


@pytest.mark.smoke("Programs of agents are confined", case="landlock-root")
def test_hostile_program_fails_in_every_attempt(confined: tuple[Confinement, Place]) -> None:
    means, place = confined
    script = place.workspace / "intruder.py"
    script.write_bytes(Path(intruder.__file__).read_bytes())
    facts = {**place.facts, "own_view": means is Confinement.BUBBLEWRAP}
    before = {name: Path(place.facts[name]).stat() for name in PLANTED}
    python = "python3"
    done = place.run(means, python, "intruder.py", json.dumps(facts), is_forked=False)
    assert done["exit_code"] == 0, done["stderr"]
    results = json.loads(done["stdout"])
    assert len(results) >= 60
    assert set(results) == set(intruder.ATTEMPTS)
    assert {name: got for name, got in results.items() if got is not None} == {}
    for name in PLANTED:
        found = Path(place.facts[name]).stat()
        assert (found.st_mode, found.st_uid, found.st_mtime, found.st_nlink) == (
            before[name].st_mode,
            before[name].st_uid,
            before[name].st_mtime,
            before[name].st_nlink,
        )
        assert Path(place.facts[name]).read_text() == CANARY
    assert {each.name for each in place.workspace.parent.iterdir()} == {"job", "other"}
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108
        assert not Path(folder, place.facts["mark"]).exists() or folder == str(place.root.parent)


def test_git_ignores_the_settings_of_the_machine(
    confined: tuple[Confinement, Place],
) -> None:
    means, place = confined
    settings = place.facts["config"]  # stands for /etc/gitconfig: it exists, and is not readable
    # Landlock has no chmod by path for a user who owns other files, which `git init` needs.
    is_initable = means is not Confinement.LANDLOCK or place.uid == 0
    by_hand = "mkdir -p r/.git/objects r/.git/refs && echo ref: refs/heads/x > r/.git/HEAD"
    init = "git init -q -b x r" if is_initable else by_hand
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    script = f"export GIT_CONFIG_SYSTEM={settings}; {init} && cd r && {commit} && git status"
    done = place.run(means, "/bin/sh", "-c", script)
    assert (done["exit_code"], done["stderr"]) == (0, "")
    assert "nothing to commit" in done["stdout"]


def test_harmless_attempts_succeed_unconfined(tmp_path: Path) -> None:
    """Unconfined, as the pod's own user, those that do no harm succeed: the suite can fail."""
    with a_place(os.geteuid()) as place:
        facts = {**place.facts, "own_view": False, "only": HARMLESS}
        done = subprocess.run(
            [sys.executable, intruder.__file__, json.dumps(facts)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={**os.environ, "CORTEX_DSN": CANARY},
        )
    results = json.loads(done.stdout)
    assert {name for name in HARMLESS if results[name] is None} == set()


def test_out_of_memory_killer_takes_the_program_before_its_supervisor(
    confined_as_me: tuple[Confinement, Place],
) -> None:
    """Its supervisor does not, so that nothing is left without one."""
    means, place = confined_as_me
    go = place.workspace / "go"
    os.mkfifo(go)
    os.chown(go, place.uid, place.uid)
    (place.workspace / "waiting.py").write_text("open('go').read()")
    with place.started(means, "python3", "waiting.py") as running:
        writer = os.open(go, os.O_WRONLY)  # opens when the program reads
        scores = {
            argv: int(Path(f"/proc/{pid}/oom_score_adj").read_text())
            for pid, argv in commands_below(running.pid)
        }
        os.close(writer)
        running.communicate(timeout=WITHIN_S)
    programs = [score for argv, score in scores.items() if argv == ("python3", "waiting.py")]
    assert programs == [1000]
    if means is not Confinement.BUBBLEWRAP:  # there, everything ends with the supervisor
        assert sorted(scores.values())[-2] < 1000


def commands_below(pid: int) -> list[tuple[int, tuple[str, ...]]]:
    found = []
    children = Path(f"/proc/{pid}/task").glob("*/children")
    for child in (word for file in children for word in file.read_text().split()):
        argv = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")[:-1]
        found += [(int(child), tuple(argv)), *commands_below(int(child))]
    return found


def test_killed_pod_leaves_no_process_of_a_program(confined: tuple[Confinement, Place]) -> None:
    """Also where the program has tried to stop those who would end it."""
    means, place = confined
    (place.workspace / "daemon.py").write_text(DAEMON)
    stop = "kill -STOP $PPID 2>/dev/null; kill -STOP 1 2>/dev/null"
    script = f"python3 daemon.py; ({stop}); touch begun; sleep 100"
    with place.started(means, "sh", "-c", script) as running:
        eventually((place.workspace / "beats").exists, what="the daemon runs")
        running.kill()
        running.communicate(timeout=WITHIN_S)
    beats = place.workspace / "beats"

    def is_still() -> bool:
        before = beats.stat().st_size
        return not mine_at(place.workspace) and beats.stat().st_size == before

    eventually(is_still, what="all of it has ended")


def mine_at(folder: Path) -> list[int]:
    """Processes that work in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if str(entry.readlink()) == str(folder):
                found.append(int(entry.parent.name))
    return found


DAEMON = """
import os, sys, time
os.fork() and os._exit(0)
os.setsid()
os.fork() and os._exit(0)
for number in (0, 1, 2):
    os.close(number)
while True:
    with open("beats", "a") as file:
        file.write("x")
    time.sleep(0.01)
"""


def test_a_daemon_ends_with_the_call(confined_as_me: tuple[Confinement, Place]) -> None:
    means, place = confined_as_me
    (place.workspace / "daemon.py").write_text(DAEMON)
    wait = "until [ -s beats ]; do sleep 0.02; done"
    done = place.run(means, "sh", "-c", f"python3 daemon.py; {wait}; echo begun")
    assert done["stdout"] == "begun\n", done
    mine = subprocess.run(["pgrep", "-f", "daemon.py"], capture_output=True, check=False)
    cwds = [str(Path(f"/proc/{pid}/cwd").readlink()) for pid in mine.stdout.decode().split()]
    assert str(place.workspace) not in cwds


EATER = """
import mmap, os
for _ in range(8):
    if os.fork() == 0:
        break
held = bytearray(400 << 20)
for at in range(0, len(held), 4096):
    held[at] = 1
import signal; signal.pause()
"""


def test_processes_that_eat_the_memory_together_are_ended() -> None:
    means = best_means()
    if means is Confinement.NONE:
        pytest.skip("this machine has no means to confine programs")
    with a_place(os.geteuid()) as place:
        (place.workspace / "eater.py").write_text(EATER)
        done = place.run(means, "python3", "eater.py")
    assert done["exit_code"] == -9
    assert "held more than 2,048 MiB of memory" in done["stderr"]


def test_a_compiled_supervisor_is_used_only_if_it_is_of_this_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [means for means in MEANS if works(means)]
    source = tmp_path / "confined_child.py"
    source.write_bytes(Path(confined_child.__file__).read_bytes())
    monkeypatch.setattr(confined_child, "__file__", str(source))
    chosen = confinement._child.__wrapped__
    assert chosen() == str(source), "it is not compiled"
    compiled = py_compile.compile(str(source), doraise=True)
    assert chosen() == compiled
    os.utime(source, (1, 1))
    assert chosen() == str(source), "it is of another source"
    compiled = py_compile.compile(str(source), doraise=True)
    monkeypatch.setattr(confinement, "_child", lambda: compiled)
    assert [means for means in MEANS if works(means)] == before


def test_a_means_that_does_not_work_gives_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no namespaces' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with capture_logs() as lines:
        assert not works(Confinement.BUBBLEWRAP)
    (line,) = lines
    assert (line["event"], line["error"]) == ("confinement does not work", "bwrap: no namespaces")


def test_program_does_not_start_without_a_means_of_confinement(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match=NO_MEANS) as raised:
        Confiner(means=Confinement.NONE).launch(
            workspace=tmp_path, folder=tmp_path, has_network=False
        )
    assert "unsafe_run_command" in str(raised.value.hint)
    assert "bubblewrap" in str(raised.value.hint)
