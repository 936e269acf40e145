"""Run the units under systemd: `python -m pytest -n 0 packaging/systemd/check_systemd.py`.

Needs root, uv, mmdebstrap and cgroup v2; takes some minutes. systemd is process 1 in namespaces of
its own, on a Debian 13 into which Cortex is installed as docs/guides/hosts.md says. That root file
system is kept below the temporary directory for the next run, without Cortex.
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

import attrs
import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.manual.blocks import blocks
from tests.support.shipping.debian import kept_debian

TREE: Final = Path(__file__).parents[2]
KEPT: Final = Path(tempfile.gettempdir()) / "cortex-systemd"
UNITS: Final = Path(__file__).parent
GUIDE: Final = "docs/guides/hosts.md"
PACKAGES: Final = "bubblewrap,ca-certificates,passwd,python3,systemd,systemd-sysv"
RESTARTS: Final = 5
CLIENTS: Final = 4
EXPOSURE_MAX: Final = 35  # tenths, of what `systemd-analyze security` counts
API: Final = "http://127.0.0.1:8080/healthz"
WITHIN_S: Final = 120.0
BOOT: Final = """
set -e
mount --make-rprivate /
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for each in null zero full random urandom tty; do
    touch dev/$each
    mount --bind /dev/$each dev/$each
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
pivot_root . mnt
cd /
umount -l /mnt
exec env -i container=cortex PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --log-target=journal \
    --unit=multi-user.target
"""

pytestmark = pytest.mark.timeout(900)


@attrs.frozen
class Host:
    """A machine whose process 1 is systemd."""

    root: Path
    pid: int
    """Of its systemd, as this machine counts."""

    def run(self, *words: str, code: int = 0) -> str:
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-r", "-w"]
        environ = [
            "env",
            "-i",
            "HOME=/root",
            "LANG=C.UTF-8",
            "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
            "UV_CACHE_DIR=/opt/cache",
            "UV_LINK_MODE=copy",
            "UV_PYTHON_DOWNLOADS=never",
            "PATH=/usr/local/bin:/usr/sbin:/usr/bin",
        ]
        done = subprocess.run(
            [*enter, *environ, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    @property
    def inside(self) -> Path:
        """Its files, mounts included."""
        return Path(f"/proc/{self.pid}/root")

    def shown(self, name: str, unit: str = "cortex.service") -> str:
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def log(self) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", "--unit=cortex.service")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A Debian with Cortex, as the guide says."""
    assert os.geteuid() == 0, "needs root, for namespaces"
    folder = tmp_path_factory.mktemp("host")
    root = folder / "root"
    root.mkdir()
    with ExitStack() as stack:
        layers = f"lowerdir={debian()},upperdir={folder / 'upper'},workdir={folder / 'scratch'}"
        for each in ("upper", "scratch"):
            (folder / each).mkdir(mode=0o755)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(root)], check=True)
        stack.callback(subprocess.run, ["umount", "-l", str(root)], check=True)
        for place in (KEPT / "cache", root / "opt/cache"):
            place.mkdir(exist_ok=True)
        subprocess.run(
            ["mount", "--bind", str(KEPT / "cache"), str(root / "opt/cache")], check=True
        )
        stack.callback(subprocess.run, ["umount", "-l", str(root / "opt/cache")], check=True)
        shutil.copytree(TREE / "packaging", root / "opt/checkout/packaging")
        build = [
            "uv",
            "build",
            "--quiet",
            "--wheel",
            "--out-dir",
            str(root / "opt/wheel"),
            str(TREE),
        ]
        subprocess.run(build, check=True)
        for name in ("resolv.conf", "ssl/certs/ca-certificates.crt"):
            if (source := Path("/etc") / name).exists():
                (root / "etc" / name).unlink(missing_ok=True)
                shutil.copy(source, root / "etc" / name)
        made = stack.enter_context(booted(root, folder / "boot.log"))
        (wheel,) = (root / "opt/wheel").glob("*.whl")
        uv = shutil.which("uv")
        assert uv
        shutil.copy(uv, root / "usr/local/bin/uv")
        install = "UV_TOOL_DIR=" + block("pipx install --global").partition("UV_TOOL_DIR=")[2]
        install = install.replace("/path/to/checkout", f"/opt/wheel/{wheel.name}")
        made.run("sh", "-ec", f"cd /opt/checkout\n{install}\n{block('useradd ')}")
        yield made


def debian() -> Path:
    return kept_debian("trixie", "--variant=apt", f"--include={PACKAGES}", name=KEPT.name)


def block(start: str) -> str:
    """Return the block of the guide that begins so."""
    return next(each.text for each in blocks(GUIDE) if each.text.startswith(start))


def cgroups() -> Path:
    for line in Path("/proc/self/mounts").read_text("utf-8").splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    pytest.skip("no cgroup v2 on this machine")


@contextmanager
def booted(root: Path, log_path: Path) -> Iterator[Host]:
    """Start systemd on a root file system; at the end kill all that runs there."""
    group = cgroups() / f"cortex-check-{os.getpid()}"
    group.mkdir()
    namespaces = ["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
    boot = ["unshare", *namespaces, "bash", "-c", BOOT, "boot", str(root)]
    join = ["bash", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "join"]
    with log_path.open("wb") as log:
        unshare = subprocess.Popen([*join, *boot], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:

        def systemd() -> int | None:
            assert unshare.poll() is None, log_path.read_text("utf-8")
            for child in psutil.Process(unshare.pid).children():
                if "systemd" in child.name():
                    return child.pid
            return None

        pid = eventually(systemd, what="systemd runs", within_s=WITHIN_S)
        assert pid
        made = Host(root, pid)

        def has_started() -> bool:
            # Degraded is normal: kernel modules, for example, cannot be loaded from namespaces.
            state = made.run("sh", "-c", "systemctl is-system-running || true")
            return state in {"degraded\n", "running\n"}

        eventually(has_started, what="systemd has started", within_s=WITHIN_S)
        yield made
    finally:
        unshare.kill()
        unshare.wait()
        eventually(lambda: remove(group), what="all that ran there has ended", within_s=WITHIN_S)


def remove(group: Path) -> bool:
    """Remove a control group and those below it; false while something runs there."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
    except OSError:
        return False
    return True


def test_units_are_valid_and_hardened(host: Host) -> None:
    units = [
        f"/etc/systemd/system/{each.name}" for each in sorted(UNITS.iterdir()) if is_unit(each)
    ]
    assert len(units) == 4
    assert host.run("systemd-analyze", "verify", *units) == ""
    for service in ("cortex.service", "cortex-tick.service"):
        host.run("systemd-analyze", "security", f"--threshold={EXPOSURE_MAX}", service)


def is_unit(path: Path) -> bool:
    return path.suffix in {".service", ".socket", ".timer"}


def test_started_pod_runs_jobs_that_root_can_list(host: Host) -> None:
    host.run("systemctl", "start", "cortex.service")
    assert re.fullmatch(r"pod \S+ takes jobs", host.shown("StatusText"))
    assert " READY " in host.run("cortex", "pods", "ls", "--no-headers").replace("\t", " ")
    doctor = host.run("cortex", "doctor")
    assert "agents' programs are confined by bubblewrap" in doctor
    assert doctor.endswith("healthy\n")


def test_restart_refuses_no_connection(host: Host) -> None:
    is_over = threading.Event()
    answers: Counter[str] = Counter()

    def ask() -> None:
        while not is_over.is_set():
            try:
                with urlopen(API, timeout=WITHIN_S) as answer:
                    answers[str(answer.status)] += 1
            except OSError as error:
                answers[repr(error)] += 1

    asking = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for each in asking:
        each.start()
    try:
        for _ in range(RESTARTS):
            host.run("systemctl", "restart", "cortex.service")
    finally:
        is_over.set()
        for each in asking:
            each.join()
    assert {*answers} == {"200"}, answers


def test_connection_starts_a_stopped_pod(host: Host) -> None:
    host.run("systemctl", "stop", "cortex.service")
    assert host.shown("ActiveState") == "inactive"
    assert host.shown("Result") == "success"
    assert host.shown("ExecMainStatus") == "0"
    assert '"phase": "pool", "outcome": "clean"' in host.log()
    with urlopen(API, timeout=WITHIN_S) as answer:
        assert answer.status == 200
    assert host.shown("ActiveState") == "active"


def test_stuck_pod_is_replaced(host: Host) -> None:
    host.run("mkdir", "-p", "/run/systemd/system/cortex.service.d")
    short = "[Service]\nWatchdogSec=20\n"  # a pod on a busy machine reports late
    (host.inside / "run/systemd/system/cortex.service.d/short.conf").write_text(short)
    host.run("systemctl", "daemon-reload")
    host.run("systemctl", "restart", "cortex.service")
    stuck = host.shown("MainPID")
    host.run("sh", "-c", f"kill -STOP {stuck}")  # a program of this name is not in each Debian
    eventually(
        lambda: host.shown("NRestarts") == "1" and host.shown("ActiveState") == "active",
        what="another pod runs",
        within_s=WITHIN_S,
    )
    assert host.shown("MainPID") != stuck
    assert "Watchdog timeout" in host.log()


def test_tick_runs_beside_the_pod(host: Host) -> None:
    host.run("systemctl", "start", "cortex-tick.service")
    assert host.shown("Result", "cortex-tick.service") == "success"
    eventually(
        lambda: host.run("cortex", "doctor").endswith("\n\nhealthy\n"),
        what="nothing needs attention once the pod that was stuck is known to be dead",
        within_s=WITHIN_S,
    )


def test_disabled_units_leave_nothing_behind(host: Host) -> None:
    host.run("systemctl", "disable", "--now", "cortex.socket", "cortex.service")
    with pytest.raises(URLError, match="refused"):
        urlopen(API, timeout=WITHIN_S)
    running = host.run("sh", "-c", "cat /proc/[0-9]*/cmdline")
    assert "cortex up" not in running.replace("\0", " ")
    assert "postgres" not in running
