"""How programs of agents are confined on this machine: chosen once, by trying it.

A program sees its job's workspace, which it may write, the folder that it starts in, the system's
programs and the interpreter. It does not see the pod: neither its data, database, settings, tokens,
processes nor network. `confined_child` imposes that and ends everything that the program started.

Long because each means is a list of what one program sees.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from shutil import which
from typing import Any, Final, Self

import attrs

from cortex.agent.confinement import child as confined_child
from cortex.agent.confinement.interrupted import Mark, owned
from cortex.agent.confinement.kept_names import leftovers, quarantine
from cortex.agent.confinement.quota import WRITABLE_MIN, Quota, used_by
from cortex.agent.confinement.secret_paths import secret_paths
from cortex.agent.confinement.syscall_filter import ARCHITECTURES, filter_program
from cortex.agent.confinement.writable import Ground, opened
from cortex.domain.confinement import MEANS, NO_MEANS, WAY_OUT, Confinement
from cortex.domain.errors import RejectedError, UsageError
from cortex.logger import Logger

LIMITS: Final = {
    "NPROC": 256,
    "FSIZE": 1 << 30,
    "CPU": 600,
    "NOFILE": 1024,
    "DATA": 2 << 30,
    "CORE": 0,
}
"""Of each process, as `setrlimit` names them; `processes` counts all together."""
MEMORY_MAX: Final = 2 << 30
"""Of all processes of one program together."""
DISC_FREE: Final = 1 << 30
"""A program that leaves less free disk space than this is ended."""
DISC_FREE_PART: Final = 0.02
"""On a small disk, and for the number of files: this share."""
SCRATCH_BYTES: Final = 512 << 20
NICE: Final = 5
UMASK: Final = 0o022
"""For bubblewrap, too: another user passes through the folders that it makes."""
PROBE_S: Final = 10.0

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
ETC: Final = (
    *("alternatives", "passwd", "group", "localtime", "ld.so.cache"),
    *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "pki/ca-trust", "pki/java"),
    *("pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf"),
)
"""In /etc: names, certificates and library paths. No settings, which may contain passwords, and no
keys: the programs of a root pod read everything that they see."""
ETC_OF_NETWORK: Final = ("nsswitch.conf", "resolv.conf", "hosts", "host.conf", "gai.conf")
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
WORLD_WRITABLE: Final = ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock")  # noqa: S108
CHILD: Final = "/run/cortex/confined_child"
# An allow-list: Cortex's own environment holds keys, tokens and the database's password.
PASSED_ON: Final = re.compile(r"LANG|LANGUAGE|LC_[A-Z]+|TZ")
# Of programs without confinement, and of git.
PASSED_ON_UNCONFINED: Final = re.compile(
    rf"{PASSED_ON.pattern}|PATH|HOME|TERM|TMPDIR|USER|LOGNAME|SHELL"
)
EASILY_KILLED: Final = (
    *("/bin/sh", "-c", 'echo 1000 > /proc/self/oom_score_adj; exec "$@"', "sh"),
)
"""When the machine is out of memory, this is killed first: no limit counts the memory of
sockets."""
UIDS_MAX: Final = 1 << 27
UID_END: Final = 0x7800_0000
"""User ids of programs lie below this; other users' ids usually do not."""
SIGNALS_SCOPED_SINCE: Final = 6
"""Version of Landlock from which a program cannot signal its user's other processes."""
TRUNCATION_JUDGED_SINCE: Final = 3
"""Version of Landlock from which it cannot truncate files that it may not write."""

_log = Logger(__name__)


@attrs.frozen(kw_only=True)
class Launch:
    """How to start one program: the arguments before it, its environment and where it starts."""

    prefix: tuple[str, ...]
    plan: str
    environment: Mapping[str, str]
    folder: Path
    scratch: "tempfile.TemporaryDirectory[str] | None" = None
    """Removed when the program has ended."""
    descriptors: tuple[int, ...] = ()
    """Passed on, and closed when the program has ended: the folder, and files for the program."""
    note: str = ""
    """Shown when the program has failed."""
    after: Callable[[], str] = lambda: ""
    """Called when nothing of the program runs any more; returns what the model is to know."""
    mark: Mark | None = None
    """Says that a program runs in a folder that it may write."""

    def argv(self, argv: list[str], *, control: int, report: int) -> list[str]:
        """Return the command to execute; the two descriptors are passed on."""
        return [*self.prefix, str(control), str(report), self.plan, *argv]

    def end(self) -> None:
        """Release what was only for this program."""
        for each in self.descriptors:
            os.close(each)
        if self.scratch is not None:
            self.scratch.cleanup()
        if self.mark is not None:
            self.mark.end()


@attrs.frozen(kw_only=True)
class Confiner:
    """Confines programs by one means; `hidden` are paths that no program may see."""

    means: Confinement
    hidden: tuple[Path, ...] = ()
    hides_secrets: bool = True
    """Files with declared secrets are hidden, too."""

    @classmethod
    def chosen(cls, *, hidden: tuple[Path, ...] = (), is_unsafe: bool = False) -> Self:
        """Return the best means that works here. Blocks for some 30 ms at the first call."""
        return cls(means=Confinement.UNSAFE if is_unsafe else best_means(), hidden=hidden)

    def environment(self) -> dict[str, str]:
        """Return a program's environment, as people see it before they approve a command.

        A confined program has a temporary folder besides, and settings that keep git and wget from
        files of the machine.
        """
        if self.means is Confinement.UNSAFE:
            return {k: v for k, v in os.environ.items() if PASSED_ON_UNCONFINED.fullmatch(k)}
        python = _python()
        shown = (*SYSTEM, *python.folders)
        paths = [
            path
            for path in os.environ.get("PATH", os.defpath).split(os.pathsep)
            if any(Path(path).is_relative_to(each) for each in shown)
        ]
        if python.bin not in paths:
            paths.insert(0, python.bin)
        passed = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        return {**passed, "PATH": os.pathsep.join(paths), "TERM": "dumb"}

    def launch(
        self,
        *,
        workspace: Path,
        folder: Path,
        has_network: bool,
        writes: bool = True,
        environment: Mapping[str, str] | None = None,
        quota: Quota | None = None,
        shown: tuple[Path, ...] = (),
    ) -> Launch:
        """Prepare a start in `folder`, writable if `writes` and nothing speaks against it.

        `environment`: the one that people approved; None: the pod's. `quota`: of the workspace; one
        that is exceeded already may not grow. `shown`: further folders that it may read. Blocks;
        raises `RejectedError` without a means, and for a shown folder that holds what is hidden.
        """
        if self.means is Confinement.NONE:
            raise RejectedError(NO_MEANS, hint=WAY_OUT)
        if self.means is Confinement.UNSAFE:
            raise AssertionError("an unconfined program has no launch")
        with ExitStack() as held:
            self._refuse_hidden(folder, workspace)
            ground = None
            secrets = secret_paths((folder, workspace)) if self.hides_secrets else ()
            _refuse_shown(shown, (*self.hidden, *secrets))
            if inside := [each for each in secrets if each.is_relative_to(workspace.resolve())]:
                raise RejectedError(f"{inside[0]} holds a declared secret: no program sees it")
            if not folder.is_relative_to(workspace):
                ground = opened(folder, self.hidden, secrets)
                held.callback(os.close, ground.number)
                self._refuse_hidden(ground.real, workspace)
                if ground.read_only is None:
                    kept = owned(ground.survey, ground.real, workspace.parent, base=ground.path)
                    ground = attrs.evolve(ground, survey=kept)
            view = _View(
                workspace=workspace,
                folder=folder,
                hidden=(*self.hidden, *secrets),
                ground=ground,
                environment=self.environment() if environment is None else environment,
                quota=Quota() if quota is None else quota,
                shown=tuple(map(str, shown)),
            )
            view = attrs.evolve(view, writes=writes and self._may_write(ground))
            if os.geteuid() == 0:
                hand_over(workspace, view.uid_of_root)
                view = attrs.evolve(view, uid=view.uid_of_root)
            launch = self._launched(view, has_network=has_network)
            held.pop_all()
            return launch

    def _launched(self, view: "_View", *, has_network: bool) -> Launch:
        match self.means:
            case Confinement.BUBBLEWRAP:
                launch = _by_bubblewrap(view, has_network=has_network)
            case Confinement.LANDLOCK:
                launch = _by_landlock(view, has_network=has_network)
            case _:
                launch = _by_user(view, has_network=has_network)
        if view.ground is None:
            return launch
        why = view.ground.read_only
        if why is None:
            why = (
                f"confined by {self.means}" if not self._may_write(view.ground) else "by its agent"
            )
        note = "" if view.writes else f"folder {view.folder} is read-only: {why}"
        descriptors = (*launch.descriptors, view.ground.number)
        launch = attrs.evolve(launch, descriptors=descriptors, note=note)
        if not view.writes:
            return launch
        mark = Mark.made(view.workspace, view.ground.real, view.ground.survey)
        after = partial(_swept, view.ground, view.workspace, mark)
        return attrs.evolve(launch, after=after, mark=mark)

    def _may_write(self, ground: Ground | None) -> bool:
        if ground is None or ground.read_only is not None:
            return False
        if self.means is Confinement.LANDLOCK:  # else it could signal the owner's processes
            return confined_child.landlock_version() >= SIGNALS_SCOPED_SINCE
        return self.means is Confinement.BUBBLEWRAP

    def _refuse_hidden(self, folder: Path, workspace: Path) -> None:
        is_ours = folder.is_relative_to(workspace)
        if not is_ours and any(folder.is_relative_to(path) for path in self.hidden):
            raise RejectedError(
                f"folder {folder} belongs to Cortex itself: no program starts there",
                hint="submit the job with another folder",
            )


def _refuse_shown(shown: tuple[Path, ...], hidden: tuple[Path, ...]) -> None:
    for each in shown:
        if not each.is_dir():
            raise RejectedError(f"{each} is not a folder on this machine")
        real = each.resolve()
        for kept in hidden:
            if kept.is_relative_to(real) or real.is_relative_to(kept):
                raise RejectedError(
                    f"{each} cannot be shown to a program: {kept} must not be seen",
                    hint="name a folder that holds only what the program needs",
                )


def _swept(ground: Ground, workspace: Path, mark: Mark) -> str:
    """Move what a program may not leave in the folder to the workspace. Blocks."""
    try:
        found = leftovers(ground.path, ground.survey)
        note = quarantine(ground.number, str(workspace), found) if found else ""
        mark.is_settled = True
        return note
    except OSError as error:
        _log.error("folder not searched", folder=str(ground.real), error=error.strerror)
        return f"the folder could not be searched for names that are not allowed: {error.strerror}"


@attrs.frozen(kw_only=True)
class _View:
    """The view of the file system for one program."""

    workspace: Path
    folder: Path
    hidden: tuple[Path, ...]
    ground: Ground | None
    """The folder, open; None for the workspace and folders inside it."""
    environment: Mapping[str, str]
    quota: Quota
    shown: tuple[str, ...] = ()
    """Further folders that the program may read."""
    writes: bool = False
    """Programs may write there."""
    uid: int | None = None

    @property
    def uid_of_root(self) -> int:
        """The user of a root pod's programs: the folder's owner, who then owns new files.

        In root's own folder programs run as user "nobody" with write access, since root has
        no limits.
        """
        own = _uid_of(self.workspace)
        return own if self.ground is None or not self.writes else self.ground.owner or own

    @property
    def hidden_inside(self) -> list[Path]:
        """Hidden paths inside the folder, relative to it."""
        if self.ground is None:
            return []
        real = self.ground.real
        inside = [each for each in self.hidden if each.is_relative_to(real) and each.exists()]
        return [each.relative_to(real) for each in inside]

    @property
    def shares_user(self) -> bool:
        """Return whether other processes count against its limit."""
        return self.uid is None or (self.ground is not None and self.uid == self.ground.owner)

    def plan(
        self,
        *,
        families: list[str],
        scratch: Sequence[str] = (),
        owns_others: bool = False,
        is_inside: bool = False,
        **terms: Any,
    ) -> str:
        """Return the plan for `confined_child`; `is_inside`: inside bubblewrap."""
        discs = [str(self.workspace), *([str(self.folder)] if self.writes else []), *scratch]
        keep = {}
        for disc in discs:
            usage = os.statvfs(disc)
            total = usage.f_blocks * usage.f_frsize
            files = int(usage.f_files * DISC_FREE_PART)
            keep[disc] = (min(DISC_FREE, int(total * DISC_FREE_PART)), files)
        limits = dict(LIMITS)
        used = used_by(self.workspace, files_max=self.quota.files_max)
        left = self.quota.bytes_max - used.bytes
        limits["FSIZE"] = min(limits["FSIZE"], max(left, WRITABLE_MIN))
        quota = (
            str(self.workspace),
            max(self.quota.bytes_max, used.bytes),
            max(self.quota.files_max, used.files),
        )
        if self.shares_user and not (self.uid is None and is_inside):
            limits["NPROC"] += _processes_of(os.geteuid() if self.uid is None else self.uid)
        plan = {
            "limits": limits,
            "filter": _filter(tuple(families), owns_others),
            "uid": self.uid,
            "overrides": self.writes and self.ground is not None and self.ground.owner == 0,
            "rules": None,
            "hidden": None,
            "is_inside": is_inside,
            "ground": None,
            "start": None,
            "nice": NICE,
            "memory": MEMORY_MAX,
            "discs": keep,
            "quota": quota,
            **terms,
        }
        return marshal.dumps(plan).hex()


def _in_system(view: _View, python: "_Python", *, has_network: bool) -> list[Path]:
    """Return the hidden paths among the files of the machine that programs see."""
    shown = [*SYSTEM, *_etc(has_network=has_network), *python.folders, *view.shown]
    return [each for each in view.hidden if any(map(each.is_relative_to, shown)) and each.exists()]


def _by_bubblewrap(view: _View, *, has_network: bool) -> Launch:
    program = which("bwrap", path=os.environ.get("PATH", os.defpath)) or "bwrap"
    python = _python()
    # As the first process there the supervisor cannot be stopped or killed from inside.
    arguments = [*EASILY_KILLED, program, "--new-session", "--as-pid-1"]
    arguments += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    arguments += [] if has_network else ["--unshare-net"]
    if view.uid is None:
        arguments += ["--unshare-user", "--cap-drop", "ALL"]
    else:  # kept until it becomes another user, before it runs the program
        arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_DAC_READ_SEARCH"]
        arguments += ["--cap-add", "CAP_DAC_OVERRIDE"] if view.writes else []
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
    etc = [each for each in map(Path, _etc(has_network=has_network)) if each.exists()]
    folders = (*python.folders, *view.shown)
    for each in (*(str(path) for path in etc if path.is_dir()), *folders):
        arguments += [*_way(each), "--ro-bind", each, each]
    for hidden in _in_system(view, python, has_network=has_network):
        arguments += ["--tmpfs"] if hidden.is_dir() else ["--ro-bind", "/dev/null"]
        arguments.append(str(hidden))
    arguments += _folder_for_bubblewrap(view)
    arguments += [*_way(view.workspace), "--bind", str(view.workspace), str(view.workspace)]
    families = ["inet", "inet6", "netlink", *([] if has_network else ["unix"])]
    plan = view.plan(families=families, is_inside=True, start=str(view.folder))
    descriptors = []
    files = {_child(): CHILD} | {str(each): str(each) for each in etc if each.is_file()}
    for source, target in files.items():  # a separate mount costs bubblewrap a millisecond
        descriptors.append(os.open(source, os.O_RDONLY | os.O_CLOEXEC))
        arguments += [*_way(target), "--perms", "0444", "--file", str(descriptors[-1]), target]
    for each in ("/", "/dev", "/proc"):
        arguments += ["--remount-ro", each]
    return Launch(
        prefix=(*arguments, "--", *python.command, CHILD),
        plan=plan,
        environment=_environment(view, scratch="/tmp"),  # noqa: S108
        folder=Path("/"),
        descriptors=tuple(descriptors),
    )


def _folder_for_bubblewrap(view: _View) -> Iterator[str]:
    """The arguments for the folder where the program starts, without its hidden parts."""
    if view.ground is None:
        return
    bind = "--bind" if view.writes else "--ro-bind"
    yield from (*_way(view.folder), bind, view.ground.path, str(view.folder))
    if view.writes:
        for name in view.ground.kept:
            yield from ("--ro-bind", f"{view.ground.path}/{name}", str(view.folder / name))
    for hidden in view.hidden_inside:
        yield from (
            ["--tmpfs"] if (view.ground.real / hidden).is_dir() else ["--ro-bind", "/dev/null"]
        )
        yield str(view.folder / hidden)


def _etc(*, has_network: bool) -> list[str]:
    return [f"/etc/{name}" for name in (*ETC, *(ETC_OF_NETWORK if has_network else ()))]


def _way(path: str | Path) -> Iterator[str]:
    """Make the folders above `path` so that another user passes: bubblewrap makes them 0700."""
    for parent in list(Path(path).parents)[-2::-1]:
        yield from ("--perms", "0755", "--dir", str(parent))


def _by_landlock(view: _View, *, has_network: bool) -> Launch:
    python = _python()
    if in_system := _in_system(view, python, has_network=has_network):
        raise RejectedError(
            f"{in_system[0]} must not be seen, and Landlock cannot hide it",
            hint="keep it elsewhere, or install bubblewrap",
        )
    scratch = _scratch(view.uid)
    rules: dict[str, list[str]] = {
        "read": [*SYSTEM, *_etc(has_network=has_network), *python.folders, *view.shown],
        "write": [str(view.workspace), scratch.name, *DEVICES],
    }
    ground: dict[str, Any] = {"number": None, "read": [], "write": []}
    if view.ground is not None:
        ground["number"] = view.ground.number
        ground["read"] = list(_readable(view.ground.real, view.hidden_inside))
        ground["write"] = view.ground.others if view.writes else []
    return Launch(
        prefix=(*python.command, _child()),
        plan=view.plan(
            families=["inet", "inet6", "netlink"] if has_network else [],
            owns_others=view.shares_user,
            rules=rules,
            ground=ground,
            scratch=[scratch.name],
        ),
        environment=_environment(view, scratch=scratch.name),
        folder=view.folder,
        scratch=scratch,
    )


def _by_user(view: _View, *, has_network: bool) -> Launch:
    python = _python()
    folders = dict.fromkeys(WORLD_WRITABLE, "1777")
    folders |= {str(each): "0755" for each in view.hidden if each.is_dir()}
    shown = [str(view.workspace), *python.folders, *view.shown]
    ground = {} if view.ground is None else {str(view.folder): view.ground.number}
    for path in map(Path, [*ground, *shown]):
        folders |= {str(each): "0755" for each in path.parents if not _is_open(each)}
    return Launch(
        prefix=(*python.command, _child()),
        plan=view.plan(
            families=["inet", "inet6", "netlink"] if has_network else [],
            start=str(view.folder),
            hidden={
                "folders": {**dict(sorted(folders.items())), "/proc": "0555"},
                "files": [str(each) for each in view.hidden if each.is_file()],
                "shown": shown,
                "ground": ground,
                "has_network": has_network,
            },
        ),
        environment=_environment(view, scratch="/tmp"),  # noqa: S108
        folder=Path("/"),
    )


def _is_open(folder: Path) -> bool:
    """Return whether another user may pass it."""
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _readable(folder: Path, hidden: list[Path], here: Path = Path()) -> Iterator[str]:
    """Yield the parts of a folder except the hidden ones: Landlock cannot subtract."""
    if not hidden:
        yield str(here)
        return
    for path in (folder / here).iterdir():
        name = path.relative_to(folder)
        if name not in hidden and not path.is_symlink():
            yield from _readable(
                folder, [each for each in hidden if each.is_relative_to(name)], name
            )


@attrs.frozen
class _Python:
    """The interpreter that starts programs and is available to them, without Cortex's packages."""

    command: tuple[str, ...]
    folders: tuple[str, ...]
    bin: str


@functools.cache
def _child() -> str:
    """Return the supervisor's program, compiled if the compiled file is up to date: it saves 5 ms.

    Python does not check whether a compiled file that it runs by path is out of date.
    """
    source = confined_child.__file__
    cached = cache_from_source(source)
    try:
        source_stat = Path(source).stat()
        with Path(cached).open("rb") as file:
            head = file.read(16)
    except OSError:
        return source
    made_from = [int(source_stat.st_mtime) & 0xFFFF_FFFF, source_stat.st_size & 0xFFFF_FFFF]
    wanted = MAGIC_NUMBER + b"".join(each.to_bytes(4, "little") for each in (0, *made_from))
    return cached if head == wanted else source


@functools.cache
def _python() -> _Python:
    base = Path(sys.base_prefix)
    program = base / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not program.exists():
        program = Path(sys.executable).resolve()
    folders = () if any(base.is_relative_to(each) for each in SYSTEM) else (str(base),)
    if base in (Path("/"), Path.home(), *Path.home().parents):
        raise UsageError(f"Python in {base} cannot be shown to programs: hidden files are in there")
    return _Python((str(program), "-I", "-S", "-B"), folders, str(base / "bin"))


def _environment(view: _View, *, scratch: str) -> dict[str, str]:
    return {
        **view.environment,
        "HOME": scratch,
        "TMPDIR": scratch,
        # Settings of the machine may hold passwords. Where programs see but cannot read them, git
        # ends with 128 and wget complains, so both leave them out by every means.
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "SYSTEM_WGETRC": "/dev/null",
        # The folder and the workspace belong to another user.
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


def _processes_of(uid: int) -> int:
    """Return how many threads a user has."""
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208 -- of many
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:  # noqa: PTH116 -- of many
                count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208 -- of many
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
    """Make the user the owner of the files in the workspace: a root pod writes there, too.

    Symlinks are not followed; a file with a second hard link stays as it is.
    """
    for _, folders, files, here in os.fwalk(workspace, follow_symlinks=False):
        if os.fstat(here).st_uid != uid:
            os.fchown(here, uid, uid)
        for name in (*folders, *files):
            status = os.lstat(name, dir_fd=here)
            is_elsewhere = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
            if status.st_uid != uid and not is_elsewhere:
                os.chown(name, uid, uid, dir_fd=here, follow_symlinks=False)


# --- which means work here


@functools.cache
def best_means() -> Confinement:
    """Return the best means by which a trivial program ran."""
    if platform.machine() not in ARCHITECTURES or sys.platform != "linux":
        return Confinement.NONE
    with suppress(FileNotFoundError):  # there is no folder for temporary files
        return next((means for means in MEANS if works(means)), Confinement.NONE)
    return Confinement.NONE


def works(means: Confinement) -> bool:
    """Return whether a program really runs by this means."""
    if not _may_work(means):
        return False
    with tempfile.TemporaryDirectory(prefix="cortex-probe-", ignore_cleanup_errors=True) as made:
        workspace = Path(made).resolve() / "workspace"
        workspace.mkdir()
        if os.geteuid() == 0:  # tempfile's own folder is closed to the user of the program
            Path(made).chmod(0o711)
        try:
            launch = Confiner(means=means, hides_secrets=False).launch(
                workspace=workspace, folder=workspace, has_network=False
            )
            report, complaint = _probe(launch)
        except (OSError, ValueError, UsageError, subprocess.SubprocessError) as error:
            report, complaint = "", str(error)
    if report.startswith("code 0 "):
        return True
    _log.info("confinement does not work", means=means.value, error=complaint or report)
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


def _probe(launch: Launch) -> tuple[str, str]:
    """Run a trivial program; return its report, and the last line of its standard error."""
    (control, control_end), (report_end, report) = os.pipe(), os.pipe()
    try:
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(  # noqa: S603 -- our own programs
                launch.argv(["true"], control=control, report=report),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(control, report, *launch.descriptors),
                umask=UMASK,
                cwd=launch.folder,
                env=dict(launch.environment),
                start_new_session=True,
            ) as child,
        ):
            try:
                child.wait(PROBE_S)
            finally:
                child.kill()
                child.wait()
            errors.seek(0)
            complaint = errors.read(4096).decode(errors="replace").strip()
        os.close(report)
        report = -1
        return os.read(report_end, 4096).decode(errors="replace"), complaint.rpartition("\n")[2]
    finally:
        for each in (control, control_end, report_end, report):
            if each >= 0:
                os.close(each)
        launch.end()
