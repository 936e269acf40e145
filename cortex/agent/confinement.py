"""How programs of agents are confined on this machine: chosen once, by trying it.

A program sees its job's workspace, which it may write, the folder that it starts in, the system's
programs and the interpreter. It does not see the pod: neither its data, database, settings, tokens,
processes nor network. `confined_child` imposes that and ends whatever the program started.
"""

import functools
import hashlib
import marshal
import os
import platform
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import which
from typing import Any, Final, Self

import attrs

from cortex.agent import confined_child
from cortex.agent.syscall_filter import ARCHITECTURES, filter_program
from cortex.domain.confinement import MEANS, NO_MEANS, WAY_OUT, Confinement
from cortex.domain.errors import RejectedError, UsageError

LIMITS: Final = {
    "NPROC": 256,
    "FSIZE": 1 << 30,
    "CPU": 600,
    "NOFILE": 1024,
    "DATA": 2 << 30,
    "CORE": 0,
}
"""Of each process, as `setrlimit` names them; processes of all together."""
MEMORY_MAX: Final = 2 << 30
"""Of all processes of one program together."""
DISC_FREE: Final = 1 << 30
"""A program ends that takes the disc further than that."""
DISC_FREE_PART: Final = 0.02
"""On a small disc: this part of it."""
SCRATCH_BYTES: Final = 512 << 20
NICE: Final = 5
UMASK: Final = 0o022
"""For bubblewrap, too: another user passes the folders that it makes."""
PROBE_S: Final = 10.0

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
ETC: Final = (
    *("alternatives", "ssl", "pki", "passwd", "group", "nsswitch.conf", "localtime"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
)
"""Of /etc: names, certificates and where libraries are. No settings, which may hold passwords."""
ETC_OF_NETWORK: Final = ("resolv.conf", "hosts", "host.conf", "gai.conf")
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
WORLD_WRITABLE: Final = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108
CHILD: Final = "/run/cortex/confined_child"
# An allow-list: Cortex's own environment holds keys, tokens and the database's password.
PASSED_ON: Final = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|TERM|TZ")
UIDS_MAX: Final = 1 << 27
UID_END: Final = 0x7800_0000
"""Ids of programs lie below; nobody else's do, as a rule."""
SIGNALS_SCOPED_SINCE: Final = 6
"""Version of Landlock from which a program cannot signal its user's other processes."""
TRUNCATION_JUDGED_SINCE: Final = 3
"""Version of Landlock from which it cannot empty what it may not write."""


@attrs.frozen(kw_only=True)
class Launch:
    """How to start one program: the arguments before it, its environment and where it starts."""

    prefix: tuple[str, ...]
    plan: str
    environment: Mapping[str, str]
    folder: Path
    scratch: "tempfile.TemporaryDirectory[str] | None" = None
    """Removed when the program has ended."""

    def argv(self, argv: list[str], *, control: int, report: int) -> list[str]:
        """Return what to execute; the two descriptors are passed on."""
        return [*self.prefix, str(control), str(report), self.plan, *argv]


@attrs.frozen(kw_only=True)
class Confiner:
    """Confines programs by one means; `hidden` are paths that no program may see."""

    means: Confinement
    hidden: tuple[Path, ...] = ()

    @classmethod
    def chosen(cls, *, hidden: tuple[Path, ...] = (), is_unsafe: bool = False) -> Self:
        """Return the best that works here. Blocks for some 30 ms at the first call."""
        return cls(means=Confinement.UNSAFE if is_unsafe else best_means(), hidden=hidden)

    def launch(self, *, workspace: Path, folder: Path, has_network: bool) -> Launch:
        """Prepare a start in `folder`. Blocks; raises `RejectedError` where there is no means."""
        if self.means is Confinement.NONE:
            raise RejectedError(NO_MEANS, hint=WAY_OUT)
        if self.means is Confinement.UNSAFE:
            raise AssertionError("what is not confined has no launch")
        self._refuse_hidden(workspace, folder)
        uid = _uid_of(workspace) if os.geteuid() == 0 else None
        if uid is not None:
            hand_over(workspace, uid)
        view = _View(workspace=workspace, folder=folder, hidden=self.hidden, uid=uid)
        match self.means:
            case Confinement.BUBBLEWRAP:
                return _by_bubblewrap(view, has_network=has_network)
            case Confinement.LANDLOCK:
                return _by_landlock(view, has_network=has_network)
            case _:
                return _by_user(view, has_network=has_network)

    def _refuse_hidden(self, workspace: Path, folder: Path) -> None:
        for path in self.hidden:
            is_ours = folder == workspace or folder.is_relative_to(workspace)
            if folder.is_relative_to(path) and not is_ours:
                raise RejectedError(
                    f"folder {folder} belongs to Cortex itself: no program starts there",
                    hint="submit the job with another folder",
                )


@attrs.frozen(kw_only=True)
class _View:
    """What one program is to see."""

    workspace: Path
    folder: Path
    hidden: tuple[Path, ...]
    uid: int | None

    @property
    def hidden_inside(self) -> Iterator[Path]:
        """What lies in the folder and must not be seen."""
        return (each for each in self.hidden if each.is_relative_to(self.folder) and each.exists())

    def plan(self, *, families: list[str], owns_others: bool = False, **terms: Any) -> str:
        """Return what `confined_child` is to impose."""
        disc = str(self.workspace)
        found = os.statvfs(disc)
        total = found.f_blocks * found.f_frsize
        plan = {
            "limits": LIMITS,
            "filter": _filter(tuple(families), owns_others),
            "uid": self.uid,
            "rules": None,
            "hidden": None,
            "is_inside": False,
            "start": None,
            "nice": NICE,
            "memory": MEMORY_MAX,
            "discs": [disc],
            "disc_free": min(DISC_FREE, int(total * DISC_FREE_PART)),
            **terms,
        }
        return marshal.dumps(plan).hex()


def _by_bubblewrap(view: _View, *, has_network: bool) -> Launch:
    program = which("bwrap", path=os.environ.get("PATH", os.defpath)) or "bwrap"
    python = _python()
    arguments = [program, "--new-session"]
    arguments += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    arguments += [] if has_network else ["--unshare-net"]
    if view.uid is None:
        arguments += ["--unshare-user", "--cap-drop", "ALL"]
    else:  # they last until it becomes another user, before it runs the program
        arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_DAC_READ_SEARCH"]
        arguments += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        arguments += ["--cap-add", "CAP_SETPCAP"]
    arguments += ["--hostname", "confined", "--proc", "/proc", "--dev", "/dev"]
    size = ["--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs"]
    arguments += [*size, "/dev/shm", *size, "/tmp", "--symlink", "/tmp", "/var/tmp"]  # noqa: S108
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    arguments += _way("/etc/passwd")
    for each in _etc(has_network=has_network):
        if Path(each).exists():  # each costs bubblewrap a millisecond
            arguments += ["--ro-bind", each, each]
    for each in python.folders:
        arguments += [*_way(each), "--ro-bind", each, each]
    arguments += _folder_for_bubblewrap(view)
    arguments += [*_way(view.workspace), "--bind", str(view.workspace), str(view.workspace)]
    arguments += [*_way(CHILD), "--ro-bind", confined_child.__file__, CHILD]
    for each in ("/", "/dev", "/proc"):
        arguments += ["--remount-ro", each]
    arguments += ["--", *python.command, CHILD]
    families = ["inet", "inet6", "netlink", *([] if has_network else ["unix"])]
    return Launch(
        prefix=tuple(arguments),
        plan=view.plan(families=families, is_inside=True, start=str(view.folder)),
        environment=_environment(python, scratch="/tmp"),  # noqa: S108
        folder=Path("/"),
    )


def _folder_for_bubblewrap(view: _View) -> Iterator[str]:
    """The folder where the program starts, read-only, without what is hidden in it."""
    if view.folder == view.workspace:
        return
    yield from (*_way(view.folder), "--ro-bind", str(view.folder), str(view.folder))
    for hidden in view.hidden_inside:
        yield from ["--tmpfs"] if hidden.is_dir() else ["--ro-bind", "/dev/null"]
        yield str(hidden)


def _etc(*, has_network: bool) -> list[str]:
    return [f"/etc/{name}" for name in (*ETC, *(ETC_OF_NETWORK if has_network else ()))]


def _way(path: str | Path) -> Iterator[str]:
    """Make the folders above `path` so that another user passes: bubblewrap makes them 0700."""
    for parent in list(Path(path).parents)[-2::-1]:
        yield from ("--perms", "0755", "--dir", str(parent))


def _by_landlock(view: _View, *, has_network: bool) -> Launch:
    python = _python()
    scratch = _scratch(view.uid)
    rules: dict[str, list[str]] = {
        "read": [*SYSTEM, *_etc(has_network=has_network), *python.folders],
        "write": [str(view.workspace), scratch.name, *DEVICES],
    }
    _let_read(view.folder, tuple(view.hidden_inside), rules)
    limits = dict(LIMITS)
    if view.uid is None:  # it counts all of the user's
        limits["NPROC"] += _processes_of_mine()
    return Launch(
        prefix=(*python.command, confined_child.__file__),
        plan=view.plan(
            families=["inet", "inet6", "netlink"] if has_network else [],
            owns_others=True,
            rules=rules,
            limits=limits,
            discs=[str(view.workspace), scratch.name],
        ),
        environment=_environment(python, scratch=scratch.name),
        folder=view.folder,
        scratch=scratch,
    )


def _by_user(view: _View, *, has_network: bool) -> Launch:
    python = _python()
    folders = dict.fromkeys(WORLD_WRITABLE, "1777")
    folders |= {str(each): "0755" for each in view.hidden if each.is_dir()}
    shown = [str(view.folder), str(view.workspace), *python.folders]
    for path in map(Path, shown):
        folders |= {str(each): "0755" for each in path.parents if not _is_open(each)}
    return Launch(
        prefix=(*python.command, confined_child.__file__),
        plan=view.plan(
            families=["inet", "inet6", "netlink"] if has_network else [],
            start=str(view.folder),
            hidden={
                "folders": {**dict(sorted(folders.items())), "/proc": "0555"},
                "files": [str(each) for each in view.hidden if each.is_file()],
                "shown": shown,
                "has_network": has_network,
            },
        ),
        environment=_environment(python, scratch="/tmp"),  # noqa: S108
        folder=Path("/"),
    )


def _is_open(folder: Path) -> bool:
    """Whether another user may pass it."""
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _let_read(folder: Path, hidden: tuple[Path, ...], rules: dict[str, list[str]]) -> None:
    """Allow all of `folder` but what is hidden: Landlock takes nothing back."""
    if not hidden:
        rules["read"].append(str(folder))
        return
    for path in folder.iterdir():
        inside = tuple(each for each in hidden if each.is_relative_to(path))
        if path in inside or path.is_symlink():
            continue
        _let_read(path, inside, rules)


@attrs.frozen
class _Python:
    """The interpreter that starts programs, which they may use, too; without Cortex's packages."""

    command: tuple[str, ...]
    folders: tuple[str, ...]
    bin: str


@functools.cache
def _python() -> _Python:
    base = Path(sys.base_prefix)
    program = base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not program.exists():
        program = Path(sys.executable).resolve()
    folders = () if any(base.is_relative_to(each) for each in SYSTEM) else (str(base),)
    if base in (Path("/"), Path.home(), *Path.home().parents):
        raise UsageError(f"Python in {base} cannot be shown to programs: all of that is in there")
    return _Python((str(program), "-I", "-S", "-B"), folders, str(base / "bin"))


def _environment(python: _Python, *, scratch: str) -> dict[str, str]:
    shown = (*SYSTEM, *python.folders)
    paths = [
        path
        for path in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if any(Path(path).is_relative_to(each) for each in shown)
    ]
    if python.bin not in paths:
        paths.insert(0, python.bin)
    return {
        **{name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)},
        "PATH": os.pathsep.join(paths),
        "HOME": scratch,
        "TMPDIR": scratch,
        # Of the folder and the workspace another user is the owner.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


@functools.cache
def _filter(families: tuple[str, ...], owns_others: bool) -> bytes:  # noqa: FBT001
    return filter_program(platform.machine(), families=families, owns_others=owns_others)


def _scratch(uid: int | None) -> "tempfile.TemporaryDirectory[str]":
    made = tempfile.TemporaryDirectory(prefix="cortex-", ignore_cleanup_errors=True)
    if uid is not None:
        os.chown(made.name, uid, uid)
    return made


def _processes_of_mine() -> int:
    """Return how many threads this user has."""
    count, me = 0, os.geteuid()
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and entry.stat().st_uid == me:
                count += sum(1 for _ in os.scandir(f"/proc/{entry.name}/task"))
        except OSError:
            continue  # it has ended
    return count


def _uid_of(workspace: Path) -> int:
    """Return the user of the programs of one job, always the same."""
    end = UID_END
    for line in Path("/proc/self/uid_map").read_text("ascii").splitlines():
        first, _, count = map(int, line.split())
        end = min(UID_END, first + count)
    span = min(UIDS_MAX, end // 2)
    digest = hashlib.sha256(os.fsencode(workspace)).digest()
    return end - span + int.from_bytes(digest[:6], "big") % span


def hand_over(workspace: Path, uid: int) -> None:
    """Make the user the owner of what is in the workspace: a pod of root writes there, too.

    Symlinks are not followed; a file that also stands elsewhere stays as it is.
    """
    for _, folders, files, here in os.fwalk(workspace, follow_symlinks=False):
        if os.fstat(here).st_uid != uid:
            os.fchown(here, uid, uid)
        for name in (*folders, *files):
            found = os.lstat(name, dir_fd=here)
            is_elsewhere = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
            if found.st_uid != uid and not is_elsewhere:
                os.chown(name, uid, uid, dir_fd=here, follow_symlinks=False)


# --- what works here


@functools.cache
def best_means() -> Confinement:
    """Return the best means by which a trivial program ran."""
    if platform.machine() not in ARCHITECTURES or sys.platform != "linux":
        return Confinement.NONE
    return next((means for means in MEANS if works(means)), Confinement.NONE)


def works(means: Confinement) -> bool:
    """Whether a program really runs by this means."""
    if not _may_work(means):
        return False
    with tempfile.TemporaryDirectory(prefix="cortex-probe-", ignore_cleanup_errors=True) as made:
        workspace = Path(made).resolve() / "workspace"
        workspace.mkdir()
        if os.geteuid() == 0:  # tempfile's own folder is closed to the user of the program
            Path(made).chmod(0o711)
        try:
            launch = Confiner(means=means).launch(
                workspace=workspace, folder=workspace, has_network=False
            )
            return _probe(launch).startswith("code 0 ")
        except (OSError, ValueError, UsageError, subprocess.SubprocessError):
            return False


def _may_work(means: Confinement) -> bool:
    is_root = os.geteuid() == 0
    match means:
        case Confinement.BUBBLEWRAP:
            return which("bwrap") is not None
        case Confinement.LANDLOCK:
            version = confined_child.landlock_version()
            return version >= (TRUNCATION_JUDGED_SINCE if is_root else SIGNALS_SCOPED_SINCE)
        case Confinement.USER:
            return is_root
        case _:
            return False


def _probe(launch: Launch) -> str:
    """Run a program that does nothing; return what is reported of it."""
    (control, control_end), (report_end, report) = os.pipe(), os.pipe()
    try:
        with subprocess.Popen(  # noqa: S603 -- our own programs
            launch.argv(["true"], control=control, report=report),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(control, report),
            umask=UMASK,
            cwd=launch.folder,
            env=dict(launch.environment),
            start_new_session=True,
        ) as child:
            try:
                child.wait(PROBE_S)
            finally:
                child.kill()
        os.close(report)
        report = -1
        return os.read(report_end, 4096).decode(errors="replace")
    finally:
        for each in (control, control_end, report_end, report):
            if each >= 0:
                os.close(each)
        if launch.scratch is not None:
            launch.scratch.cleanup()
