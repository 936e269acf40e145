"""Starts one program confined, and ends it with everything that it started: a separate process.

Run by path as `python -I -S -B confined_child.py CONTROL REPORT PLAN PROGRAM ARGUMENT…`, inside
bubblewrap or without it. It must start within milliseconds, so it imports next to nothing.

CONTROL is a descriptor: `END_SOON` on it requests the program's orderly end (SIGTERM); `END_NOW`,
and the end of file, which means that the pod has died, kill it. One line of text goes to REPORT:
`code N REASON` or `errno N REASON`. PLAN is a marshalled dict in hexadecimal digits, made by
`confinement`.

The supervisor stays outside of the limits that it imposes, so that the program can neither signal
nor trace it. It adopts orphans, and returns only when nothing that the program started is left.
"""

import ctypes
import errno
import marshal
import os
import resource
import select
import stat
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than everything else
    from typing import Any

    Plan = dict[str, Any]

END_SOON, END_NOW = b"T", b"K"
POLL_MS = 100
"""Between two checks of the memory and the disk."""
COUNT_S, COUNT_SHARE = 1.0, 20.0
"""Between two counts of a folder: at least this long, and this multiple of the time of a count."""
COUNTED_BYTES = 64 << 20
"""When the disk has that much less, it is counted at once."""
FIRST = 3
"""The first descriptor after the standard streams."""
SIGKILL, SIGPIPE, SIGTERM, SIGSTOP, SIGXFSZ = 9, 13, 15, 19, 25

_libc = ctypes.CDLL(None, use_errno=True)

# As linux/prctl.h, linux/mount.h and linux/sched.h number them.
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38
SECCOMP_MODE_FILTER = 2
PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 28, 47, 2
SECBIT_NO_SETUID_FIXUP = 1 << 2
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAPABILITY_VERSION = 1, 2, 0x2008_0522
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWNET = 0x0002_0000, 0x0800_0000, 0x4000_0000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18


def call(name: str, *arguments: "Any") -> int:
    """Call a function of the C library. Raises `OSError`."""
    # As the kernel's own width: the upper half of the register above an int is not always zero.
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    done = int(getattr(_libc, name)(*wide))
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return done


def packed(*fields: "tuple[int, int]") -> bytes:
    """Return numbers, each with its size in bytes, as C lays them out without gaps."""
    return b"".join(value.to_bytes(size, sys.byteorder) for value, size in fields)


def install_filter(program: bytes) -> None:
    """Impose a seccomp filter on this thread and what it starts. Raises `OSError`."""
    held = ctypes.create_string_buffer(program, len(program))
    described = packed((len(program) // 8, 8), (ctypes.addressof(held), 8))
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(described), 0, 0)


# --- Landlock: which files are reachable

LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION = 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
MAKE_CHAR, MAKE_BLOCK, TRUNCATE, IOCTL_DEV = 1 << 6, 1 << 11, 1 << 14, 1 << 15
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
RIGHTS_NOW = (1 << 16) - 1
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
SCOPE_SOCKETS_AND_SIGNALS = 3
NET_SINCE, SCOPES_SINCE = 4, 6


def landlock_version() -> int:
    """Return the version of Landlock's interface; 0 where the kernel has none."""
    try:
        return call("syscall", LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    except OSError:
        return 0


def restrict_files(rules: "dict[str, list[str]]", ground: "dict[str, Any]") -> None:
    """Deny this thread, and what it starts, all files but these. Raises `OSError`.

    `ground`: paths relative to the open folder `number`, so that no link can be put in their way.
    """
    version = landlock_version()
    handled = RIGHTS.get(version, RIGHTS_NOW)
    scopes = SCOPE_SOCKETS_AND_SIGNALS if version >= SCOPES_SINCE else 0
    size = 24 if version >= SCOPES_SINCE else 16 if version >= NET_SINCE else 8
    described = packed((handled, 8), (0, 8), (scopes, 8))
    ruleset = call("syscall", LANDLOCK_CREATE, ctypes.c_char_p(described), size, 0)
    read = EXECUTE | READ_FILE | READ_DIR
    write = handled & ~(MAKE_CHAR | MAKE_BLOCK)
    for path in rules["read"]:
        _allow(ruleset, path, read)
    for path in rules["write"]:
        _allow(ruleset, path, write)
    for path in ground["read"]:
        _allow(ruleset, path, read, folder=ground["number"], flags=os.O_NOFOLLOW)
    for path in ground["write"]:
        _allow(ruleset, path, write, folder=ground["number"], flags=os.O_NOFOLLOW)
    call("syscall", LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _allow(
    ruleset: int, path: str, rights: int, folder: "int | None" = None, flags: int = 0
) -> None:
    try:
        there = os.open(path, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
    except FileNotFoundError:
        return
    try:
        kind = stat.S_IFMT(os.fstat(there).st_mode)
        if kind == stat.S_IFLNK:
            return
        if kind != stat.S_IFDIR:
            rights &= OF_FILES
        rule = packed((rights, 8), (there, 4))
        call("syscall", LANDLOCK_ADD, ruleset, 1, ctypes.c_char_p(rule), 0)
    finally:
        os.close(there)


# --- a mount view of its own for another user, where there is no bubblewrap


def hide(
    folders: "dict[str, str]",
    files: "list[str]",
    shown: "list[str]",
    ground: "dict[str, int]",
    *,
    has_network: bool,
) -> None:
    """Mount empty folders, each with its mode, and empty files over these, for this process alone.

    Folders in `shown` stay visible although a folder above them is hidden, and so does `ground`, an
    open folder. Raises `OSError`.
    """
    call("unshare", CLONE_NEWNS | CLONE_NEWIPC | (0 if has_network else CLONE_NEWNET))
    call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    held = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (*ground, *shown)}
    for (
        path,
        number,
    ) in ground.items():  # the folder itself is of the previous view, which cannot be mounted
        if not os.path.samestat(os.fstat(held[path]), os.fstat(number)):
            raise OSError(errno.ESTALE, "folder was replaced")
    links = os.open("/proc/self/fd", os.O_PATH | os.O_CLOEXEC)
    os.fchdir(links)  # to reach the links when /proc is hidden
    for folder, mode in folders.items():
        if os.path.isdir(folder):  # noqa: PTH112
            options = f"size=256m,mode={mode}".encode()
            call("mount", b"none", folder.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options)
    for path, number in held.items():
        if any(path.startswith(folder + "/") for folder in folders):
            os.makedirs(path, 0o755, exist_ok=True)  # noqa: PTH103
            call("mount", str(number).encode(), path.encode(), None, MS_BIND | MS_REC, None)
    for file in filter(os.path.isfile, files):
        call("mount", b"/dev/null", file.encode(), None, MS_BIND, None)
    os.chdir("/")
    for number in (links, *held.values()):
        os.close(number)


# --- the program


def begin(plan: "Plan", argv: "list[str]", report: int, proc: int) -> None:
    """In the child: accept all limits and become the program. Does not return."""
    try:
        os.setsid()
        if not plan["is_inside"]:  # inside bubblewrap this was done before, and is not writable
            go_first(proc)
        for number in (SIGPIPE, SIGXFSZ):  # Python ignores them, which would be inherited
            _libc.signal(number, None)
        os.nice(plan["nice"])
        for name, most in plan["limits"].items():
            which = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(which)[1]
            wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (wanted, wanted))
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if plan["rules"] is not None:
            restrict_files(plan["rules"], plan["ground"])
        if not plan["is_inside"]:
            become(plan["uid"], passes_by=plan["rules"] is not None, overrides=plan["overrides"])
        if plan["start"] is not None:  # only now: the program's user may pass there
            os.chdir(plan["start"])
        install_filter(plan["filter"])
        if report != FIRST:
            os.dup2(report, FIRST)
            report = FIRST
        os.set_inheritable(report, False)  # noqa: FBT003 -- that is how it is called
        os.closerange(FIRST + 1, 1 << 16)
        execute(argv)
    except OSError as error:
        write_report(report, "errno", error.errno or errno.EIO, str(error))
    except BaseException as error:  # noqa: BLE001 -- a child must not return into the parent's code
        write_report(report, "errno", errno.EIO, repr(error))
    os._exit(127)


def go_first(proc: int) -> None:
    """Be the first process to be killed when memory runs out: no limit counts that of sockets."""
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # else that file is root's
    file = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    os.write(file, b"1000")
    os.close(file)


def execute(argv: "list[str]") -> None:
    """Become the program, looked up on PATH unless it is a path. Raises `OSError`.

    Python's own function imports modules, which may be out of reach by now.
    """
    name = argv[0]
    folders = [""] if "/" in name else os.environ["PATH"].split(":")
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in folders:
        try:
            os.execve(f"{folder}/{name}" if folder else name, argv, os.environ)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:  # another folder may have an executable one
            problem = error
    raise problem


def become(uid: "int | None", *, passes_by: bool = False, overrides: bool = False) -> None:
    """Switch from root to this user, with no group but its own.

    `passes_by`: closed folders do not stop it, since another mechanism decides which files it may
    open, and with `overrides` which it may write.
    """
    if uid is None:
        return
    if passes_by:  # else access(2) would still deny it
        call("prctl", PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if not passes_by:
        return
    for capability in (CAP_DAC_OVERRIDE,) if overrides else (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        head = packed((CAPABILITY_VERSION, 4), (0, 4))
        only = 1 << capability
        sets = packed((only, 4), (only, 4), (only, 4), (0, 12))
        try:
            call("capset", ctypes.c_char_p(head), ctypes.c_char_p(sets))
            call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0)
        except OSError:  # a container may lack the first one
            continue
        return
    raise PermissionError(errno.EPERM, "no capability to pass closed folders")


def close_all_but(*numbers: int) -> None:
    """Close everything but the standard streams and `numbers`."""
    last = FIRST
    for number in (*sorted(numbers), 1 << 16):
        os.closerange(last, number)
        last = number + 1


def write_report(report: int, kind: str, number: int, reason: str) -> None:
    """Report how the program ended."""
    os.write(report, f"{kind} {number} {reason}\n".encode(errors="replace"))


# --- its supervisor


class Family:
    """The program and all its descendants, as listed by the kernel."""

    def __init__(self, proc: int) -> None:
        self._proc = proc
        self._me = os.getpid()

    def members(self) -> "list[int]":
        """Return the ids of all descendants."""
        children: dict[int, list[int]] = {}
        for name in os.listdir(self._proc):  # noqa: PTH208
            if name.isdigit() and (text := self._read(f"{name}/stat")):
                parent = int(text.rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
        descendants, rest = [], [self._me]
        while rest:
            young = children.get(rest.pop(), [])
            descendants += young
            rest += young
        return descendants

    def _read(self, path: str) -> bytes:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return b""
        try:
            return os.read(file, 4096)
        except OSError:
            return b""
        finally:
            os.close(file)

    def holds_more_than(self, most: int) -> bool:
        """Return whether all of them together hold more than `most` bytes of memory."""
        members = self.members()
        pages = 0
        for pid in members:
            words = self._read(f"{pid}/statm").split()
            pages += int(words[1]) if words else 0
        if pages * resource.getpagesize() <= most:
            return False
        # Memory shared by several was counted for each of them.
        return sum(map(self._own_share, members)) > most

    def _own_share(self, pid: int) -> int:
        for line in self._read(f"{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
        return 0

    def end(self) -> None:
        """Kill all, including processes that start meanwhile; return when none is left."""
        while True:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            for number in (SIGSTOP, SIGKILL):
                for pid in self.members():
                    send(pid, number)
            select.select([], [], [], 0.001)


def send(pid: int, number: int) -> None:
    """Send a signal to a process, or below 0 to a group, that may have ended."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


class Quota:
    """How much disk a folder takes: counted now and then, and at once when the disk fills."""

    def __init__(self, path: str, most: int, files_most: int) -> None:
        self._path, self._most, self._files_most = path, most, files_most
        self._next_s = 0.0
        self._free = _free(path)[0]

    def problem(self) -> str:
        """Return why the program must end; nothing while it may go on."""
        now_s = monotonic()
        free = _free(self._path)[0]
        if now_s < self._next_s and self._free - free < COUNTED_BYTES:
            return ""
        self._free = free
        nbytes, files, unread = _used(self._path, self._files_most)
        took_s = monotonic() - now_s
        self._next_s = now_s + max(COUNT_S, COUNT_SHARE * took_s)
        if unread:
            return "ended: closed a folder of the workspace, so that its size is unknown"
        if nbytes > self._most:
            return f"ended: its job's workspace took more than {self._most >> 20:,} MiB"
        if files > self._files_most:
            return f"ended: its job's workspace had more than {self._files_most:,} files"
        return ""


def _used(path: str, files_most: int) -> "tuple[int, int, bool]":
    """Return the bytes and the number of files below a folder, and whether some were unreadable."""
    nbytes = files = 0
    left = [path]
    while left and files <= files_most:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    files += 1
                    try:
                        nbytes += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            left.append(entry.path)
                    except FileNotFoundError:
                        continue
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return nbytes, files, True
    return nbytes, files, False


def supervise(plan: "Plan", pid: int, control: int, proc: int) -> "tuple[int, str]":
    """Wait for the program; return how it ended, and why it was ended."""
    family = Family(proc)
    quota = Quota(*plan["quota"])
    free = {path: _free(path) for path in plan["discs"]}
    watch = select.poll()
    ended = os.pidfd_open(pid)
    watch.register(ended, select.POLLIN)
    watch.register(control, select.POLLIN)
    while True:
        events = dict(watch.poll(POLL_MS))
        _reap_orphans(pid)
        if ended in events:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), ""
        if control in events:
            if os.read(control, 1) != END_SOON:
                return -SIGKILL, ""
            send(-pid, SIGTERM)
        if family.holds_more_than(plan["memory"]):
            return -SIGKILL, f"ended: held more than {plan['memory'] >> 20:,} MiB of memory"
        if problem := quota.problem():
            return -SIGKILL, problem
        for path, (nbytes, files) in free.items():
            least, least_files = plan["discs"][path]
            now, files_now = _free(path)
            if now < nbytes and now < least:
                return -SIGKILL, f"ended: left less than {least >> 20:,} MiB of disc"
            if files_now < files and files_now < least_files:
                return -SIGKILL, f"ended: left room for less than {least_files:,} files on the disc"


def _reap_orphans(program: int) -> None:
    """Reap adopted processes that have ended, but not the program itself."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == program:
            return
        os.waitpid(ended.si_pid, os.WNOHANG)


def _free(path: str) -> "tuple[int, int]":
    """Return how many bytes and files there is room for."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return 0, 0
    return disk.f_bavail * disk.f_frsize, disk.f_favail


def main(arguments: "list[str]") -> int:
    """Run the program; its end is written to REPORT, and nothing of it is left."""
    control, report, argv = int(arguments[0]), int(arguments[1]), arguments[3:]
    plan: Plan = marshal.loads(bytes.fromhex(arguments[2]))  # noqa: S302 -- from our own parent
    call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if plan["hidden"] is not None:
        hide(**plan["hidden"])
    if plan["is_inside"]:
        # Files that it must not read are not in view.
        become(plan["uid"], passes_by=True, overrides=plan["overrides"])
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    pid = os.fork()
    if pid == 0:
        begin(plan, argv, report, proc)
    close_all_but(control, report, proc)
    code, why = supervise(plan, pid, control, proc)
    Family(proc).end()
    write_report(report, "code", code, why)
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # an ordinary exit would take a millisecond to clean up nothing
