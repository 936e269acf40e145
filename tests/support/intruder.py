"""Attempts of a hostile program: run confined, it reports which ones succeeded.

Run as `python intruder.py FACTS`: FACTS is JSON of what the test planted outside. Prints a JSON
object from the name of each attempt to null, or to what it got hold of. No attempt may harm the
machine if it succeeds. It imports the standard library only.
"""
# ruff: noqa: PLW0108, S108

import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = {}
ATTEMPTS: dict[str, Callable[[], object]] = {}
REFUSED = (OSError, subprocess.SubprocessError, ValueError)
libc = ctypes.CDLL(None, use_errno=True)

Attempt = Callable[[], object]


def attempt(function: Attempt) -> Attempt:
    ATTEMPTS[function.__name__] = function
    return function


def output(name: str, what: Attempt) -> None:
    ATTEMPTS[name] = what


def kernel(number: int, *arguments: Any) -> int:
    """Call the kernel by number (x86_64). Raises `OSError`."""
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    done = int(libc.syscall(ctypes.c_long(number), *wide))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def program(*argv: str) -> str | None:
    """Return what a program printed if it ended well."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    return (done.stdout or "ended with 0") if done.returncode == 0 else None


def connect(family: int, address: Any) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.settimeout(2)
        link.connect(address)
        return f"connected to {address}"


def canary(text: str | bytes | None) -> str | None:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    return shown[:60] if FACTS["canary"] in shown else None


def read(path: str) -> str | None:
    return canary(Path(path).read_bytes()[:65536])


# --- the database, and the pod's API

output("database_socket", lambda: connect(socket.AF_UNIX, FACTS["socket"]))
output("database_socket_by_link", lambda: _by_link(FACTS["socket"]))
output("abstract_socket", lambda: connect(socket.AF_UNIX, "\0" + FACTS["abstract"]))
output("tcp_on_loopback", lambda: connect(socket.AF_INET, ("127.0.0.1", FACTS["port"])))
output("tcp_on_loopback_v6", lambda: connect(socket.AF_INET6, ("::1", FACTS["port"])))
output("tcp_by_mapped_v6", lambda: connect(socket.AF_INET6, ("::ffff:127.0.0.1", FACTS["port"])))
output("tcp_on_own_address", lambda: connect(socket.AF_INET, (FACTS["address"], FACTS["port"])))
output(
    "http_api_by_curl", lambda: program("curl", "-sm", "2", f"http://127.0.0.1:{FACTS['port']}/")
)
output("metadata_address", lambda: connect(socket.AF_INET, ("169.254.169.254", 80)))
output("public_address", lambda: connect(socket.AF_INET, ("1.1.1.1", 443)))
output("dns", lambda: socket.getaddrinfo("example.org", 443))


def _by_link(path: str) -> str:
    link = Path("way")
    with suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(path)
    return connect(socket.AF_UNIX, "way")


@attempt
def raw_packets() -> object:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
        return "has a packet socket"


@attempt
def vsock() -> object:
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM):
        return "has a socket to the hypervisor"


@attempt
def kernel_crypto_socket() -> object:
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET):
        return "has a socket of the kernel's cryptography"


@attempt
def inherited_descriptors() -> object:
    numbers = []
    for number in range(3, 256):
        with suppress(OSError):
            os.fstat(number)
            numbers.append(number)
    return numbers or None


@attempt
def environment() -> object:
    return canary(json.dumps(dict(os.environ)))


@attempt
def terminal() -> object:
    for number in (0, 1, 2):
        with suppress(OSError):
            fcntl.ioctl(number, 0x5412, b"x")
            return "typed a character"
    with suppress(OSError):
        return os.open("/dev/tty", os.O_RDWR)
    return None


# --- files

output("list_data", lambda: set(os.listdir(FACTS["data_folder"])) - {"workspaces"} or None)  # noqa: PTH208
for _name in ("config", "data", "pgpass", "ssh_key", "token", "other_workspace"):
    output(f"read_{_name}", lambda path=_name: read(FACTS[path]))  # type: ignore[misc]
    output(f"change_{_name}", lambda path=_name: _change(FACTS[path]))  # type: ignore[misc]
output("remove_data", lambda: os.unlink(FACTS["data"]))  # noqa: PTH108
output("open_up_data", lambda: _did(lambda: os.chmod(FACTS["data"], 0o777)))  # noqa: PTH101, S103
output("own_data", lambda: _did(lambda: os.chown(FACTS["data"], os.getuid(), -1)))
output("stamp_data", lambda: _did(lambda: os.utime(FACTS["data"], (1, 1))))
output("truncate_data", lambda: _did(lambda: os.truncate(FACTS["data"], 0)))
output("hardlink_data", lambda: _did(lambda: os.link(FACTS["data"], "stolen")))
output("rename_data", lambda: _did(lambda: os.rename(FACTS["data"], "stolen")))  # noqa: PTH104
output("private_keys", lambda: os.listdir("/etc/ssl/private"))  # noqa: PTH208
output("private_keys_too", lambda: os.listdir("/etc/pki/tls/private"))  # noqa: PTH208
output("dbus", lambda: connect(socket.AF_UNIX, "/run/dbus/system_bus_socket"))
output("docker", lambda: connect(socket.AF_UNIX, "/var/run/docker.sock"))
output("agents_of_keys", lambda: os.environ.get("SSH_AUTH_SOCK"))
output("terminals", lambda: [each for each in _opened("/dev/pts") or () if each != "ptmx"] or None)
output("read_gshadow", lambda: Path("/etc/gshadow").read_text())
output("swap_then_read", lambda: _swapped())
output("remove_workspace", lambda: _did(lambda: os.rename(os.getcwd(), "../gone")))  # noqa: PTH104, PTH109
output("open_by_mount", lambda: os.open("/proc/self/mountinfo", os.O_WRONLY))
output("hardlink_passwd", lambda: os.link("/etc/passwd", "passwd"))
output("hardlink_of_descriptor", lambda: _linked())
output("own_processes_survive_oom", lambda: _spared())


def _swapped() -> object:
    """A folder and a link to outside change places while it is read."""
    os.makedirs("swap/a", exist_ok=True)  # noqa: PTH103
    with suppress(FileExistsError):
        Path("swap/b").symlink_to(Path(FACTS["data"]).parent)
    return read(f"swap/b/{Path(FACTS['data']).name}")


def _linked() -> object:
    held = os.open("/etc/passwd", os.O_PATH)
    os.link(f"/proc/self/fd/{held}", "passwd2", follow_symlinks=True)
    return "linked"


def _spared() -> object:
    value = int(Path("/proc/self/oom_score_adj").read_text())
    return value if value < 1000 else None


output("read_shadow", lambda: Path("/etc/shadow").read_text())
output("write_passwd", lambda: _did(lambda: Path("/etc/passwd").open("a").close()))
output("write_preload", lambda: Path("/etc/ld.so.preload").write_text(""))
output("write_usr_bin", lambda: Path("/usr/bin/cortex-was-here").write_text(""))
output("write_interpreter", lambda: Path(FACTS["stdlib"], "sitecustomize.py").write_text(""))
output("write_site_packages", lambda: Path(FACTS["site_packages"], "evil.pth").write_text(""))
output("write_cron", lambda: Path("/etc/cron.d/evil").write_text(""))


def _change(path: str) -> None:
    """Leave it to the test whether the file changed: this may write to a private place."""
    Path(path).write_text("taken")


def _did(what: Callable[[], object]) -> str:
    what()
    return "did"


@attempt
def write_temporary_folder_of_host() -> object:
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        with suppress(OSError):
            Path(folder, FACTS["mark"]).write_text("x")
    return None  # the test looks for the files


@attempt
def make_beside() -> object:
    """In a view of its own that may be its own temporary folder."""
    for what in (lambda: Path("../evil").mkdir(), lambda: Path("beside").rename("../beside")):
        Path("beside").touch()
        with suppress(OSError):
            what()
    return None  # the test looks for them


@attempt
def write_declared_folder() -> object:
    return Path(FACTS["folder"], "evil").write_text("x")


@attempt
def git_hook_in_declared_folder() -> object:
    return Path(FACTS["folder"], ".git", "hooks", "pre-commit").write_text("x")


@attempt
def symlink_out() -> object:
    with suppress(FileExistsError):
        Path("out").symlink_to(Path(FACTS["data"]).parent)
    return read(f"out/{Path(FACTS['data']).name}")


@attempt
def up_from_here() -> object:
    above = os.open(".", os.O_RDONLY)
    for _ in range(40):
        above = os.open("..", os.O_RDONLY, dir_fd=above)
    file = os.open(FACTS["data"].lstrip("/"), os.O_RDONLY, dir_fd=above)
    return canary(os.read(file, 4096))


@attempt
def by_handle() -> object:
    handle = (ctypes.c_char * 136)()
    ctypes.memmove(handle, (128).to_bytes(4, "little"), 4)
    mount = ctypes.c_int()
    kernel(303, -100, FACTS["folder"].encode(), handle, ctypes.byref(mount), 0)
    return kernel(304, os.open("/", os.O_RDONLY), handle, os.O_RDONLY)


@attempt
def setuid_copy() -> object:
    copied = Path("mine")
    copied.write_bytes(Path("/bin/true").read_bytes())
    os.chown(copied, 0, 0) if os.getuid() else None
    copied.chmod(0o4755)
    return "owns a program of root" if copied.stat().st_uid == 0 and os.getuid() else None


output("sudo", lambda: program("sudo", "-n", "true"))
output("su", lambda: program("su", "root", "-c", "true"))
output("become_root", lambda: _did(lambda: os.setuid(0)) if os.getuid() else None)
output("capabilities", lambda: _capabilities())


def _capabilities() -> object:
    class Head(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    data = (ctypes.c_uint32 * 6)()
    kernel(125, ctypes.byref(Head(0x20080522, 0)), data)
    passes_by = 1 << 2  # CAP_DAC_READ_SEARCH: what it may open is decided by the view
    return [hex(each) for each in data] if data[0] & ~passes_by or data[3] else None


# --- processes


def _pod() -> int:
    return int(FACTS["pod"])


output("pod_environ", lambda: read(f"/proc/{_pod()}/environ"))
output("pod_cmdline", lambda: read(f"/proc/{_pod()}/cmdline"))
output("pod_root", lambda: read(f"/proc/{_pod()}/root{FACTS['data']}"))
output("pod_cwd", lambda: os.listdir(f"/proc/{_pod()}/cwd"))  # noqa: PTH208
output("pod_descriptors", lambda: os.listdir(f"/proc/{_pod()}/fd"))  # noqa: PTH208
output("pod_memory", lambda: os.open(f"/proc/{_pod()}/mem", os.O_RDWR))
output("pod_maps", lambda: Path(f"/proc/{_pod()}/maps").read_text() or None)
output("ptrace_pod", lambda: _did(lambda: kernel(101, 16, _pod(), 0, 0)))
output("seize_pod", lambda: _did(lambda: kernel(101, 0x4206, _pod(), 0, 0)))
output("read_pod", lambda: _transfer(310))
output("write_pod", lambda: _transfer(311))
output("signal_pod", lambda: _did(lambda: os.kill(_pod(), 0)))
output("continue_pod", lambda: _did(lambda: os.kill(_pod(), signal.SIGCONT)))
output(
    "signal_parent", lambda: None if FACTS["own_view"] else _did(lambda: os.kill(os.getppid(), 0))
)
output("pidfd_of_pod", lambda: _did(lambda: signal.pidfd_send_signal(os.pidfd_open(_pod()), 0)))
output("descriptor_of_pod", lambda: kernel(438, os.pidfd_open(_pod()), 1, 0))
output("limits_of_pod", lambda: resource.prlimit(_pod(), resource.RLIMIT_CORE, (0, 0)))
output("priority_of_pod", lambda: _did(lambda: os.setpriority(os.PRIO_PROCESS, _pod(), 19)))
output("processors_of_pod", lambda: _did(lambda: os.sched_setaffinity(_pod(), {0})))
output("kcmp_pod", lambda: kernel(312, _pod(), os.getpid(), 1, 0, 0))


# --- its supervisor, which ends it


def _parents(name: str) -> str:
    return f"/proc/{os.getppid()}/{name}"


output("parent_environ", lambda: Path(_parents("environ")).read_bytes() or None)
output("parent_descriptors", lambda: _opened(_parents("fd")))
output("parent_memory", lambda: os.open(_parents("mem"), os.O_RDWR))
output("parent_root", lambda: os.listdir(_parents("root")))  # noqa: PTH208
output("parent_limits", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE))
output("trace_parent", lambda: _did(lambda: kernel(101, 0x4206, os.getppid(), 0, 0)))


def _opened(folder: str) -> list[str] | None:
    numbers = []
    for link in Path(folder).iterdir():
        with suppress(OSError):
            os.close(os.open(link, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY))
            numbers.append(link.name)
    return numbers or None


@attempt
def stop_supervisor() -> object:
    """Stopped, it would neither see the end of the time nor that of the pod."""
    for _ in range(20):
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(0.001)
        if Path(_parents("stat")).read_text().rpartition(")")[2].split()[0] == "T":
            os.kill(os.getppid(), signal.SIGCONT)
            return "stopped it"
    return None


@attempt
def leave_by_any_descriptor() -> object:
    """Any process: a folder that was opened outside leads out of the view."""
    way = FACTS["data"].lstrip("/")
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        for up in ("", "../", "../../", "../../../../../../"):
            with suppress(OSError):
                if found := read(f"{link}/{up}{way}"):
                    return found
    return None


@attempt
def leave_by_any_root() -> object:
    for name in ("root", "cwd"):
        for link in Path("/proc").glob(f"[0-9]*/{name}"):
            with suppress(OSError):
                if found := read(f"{link}/{FACTS['data'].lstrip('/')}"):
                    return found
    return None


@attempt
def anybodys_secrets() -> object:
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if found := read(str(file)):
                return found
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            text = file.read_bytes()
            if canary(text) and b"intruder.py" not in text:
                return text
    return None


@attempt
def signal_by_descriptor() -> object:
    """A signal that the kernel sends when there is something to read."""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, _pod())
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")
    return None  # the test looks whether the pod is there


@attempt
def every_signal_by_group() -> object:
    """-1 means all processes that this one may reach: 0 asks only."""
    here = os.listdir("/proc") if FACTS["own_view"] else []  # noqa: PTH208
    return [each for each in here if each.isdigit() and int(each) == _pod()] or None


def _transfer(number: int) -> object:
    held = ctypes.create_string_buffer(8)
    mine = (ctypes.c_size_t * 2)(ctypes.addressof(held), 8)
    theirs = (ctypes.c_size_t * 2)(FACTS["secret_at"], 8)
    return kernel(number, _pod(), mine, 1, theirs, 1, 0)


# --- the kernel

for _name, _number, _arguments in (
    ("mount", 165, (b"none", b"/tmp", b"tmpfs", 0, None)),
    ("bind_mount", 165, (b"/", b"/tmp", None, 4096, None)),
    ("remount", 165, (None, b"/usr", None, 32 | 4096, None)),
    ("umount", 166, (b"/usr", 2)),
    ("pivot_root", 155, (b"/tmp", b"/tmp")),
    ("chroot", 161, (b"/",)),
    ("fsopen", 430, (b"tmpfs", 0)),
    ("open_tree", 428, (-100, b"/", 1)),
    ("unshare_user", 272, (0x10000000,)),
    ("unshare_mount", 272, (0x00020000,)),
    ("clone3", 435, (None, 0)),
    ("setns", 308, (0, 0)),
    ("mknod_disc", 133, (b"disc", 0o60600, 0x800)),
    ("mknod_mem", 133, (b"mem", 0o20600, 0x101)),
    ("keyctl_session", 250, (0, -3, 0)),
    ("keyctl_user", 250, (0, -4, 1)),
    ("add_key", 248, (b"user", b"evil", b"x", 1, -4)),
    ("request_key", 249, (b"user", b"evil", None, 0)),
    ("bpf", 321, (0, None, 0)),
    ("perf_event_open", 298, (None, 0, -1, -1, 0)),
    ("io_uring", 425, (1, (ctypes.c_char * 120)())),
    ("userfaultfd", 323, (0,)),
    ("kexec", 246, (0, 0, None, 0)),
    ("load_module", 313, (0, b"", 0)),
    ("delete_module", 176, (b"evil", 0)),
    ("swapon", 167, (b"swap", 0)),
    ("swapoff", 168, (b"swap",)),
    ("set_clock", 227, (0, (ctypes.c_long * 2)(int(time.clock_gettime(time.CLOCK_REALTIME)), 0))),
    ("adjust_clock", 159, ((ctypes.c_char * 208)(),)),
    ("reboot", 169, (0, 0, 0, None)),
    ("sethostname", 170, (b"evil", 4)),
    ("accounting", 163, (None,)),
    ("syslog", 103, (2, ctypes.create_string_buffer(8), 8)),
    ("ports", 172, (3,)),
    ("shared_memory", 29, (0, 4096, 0o1600)),
    ("semaphores", 64, (0, 1, 0o1600)),
    ("message_queue", 68, (0, 0o1600)),
    ("posix_queue", 240, (b"evil", os.O_CREAT | os.O_RDWR, 0o600, None)),
    ("posix_queue_away", 241, (b"evil",)),
    ("modify_mount", 467, (-100, b"/", 0, None, 0)),
    ("mount_by_list", 458, ((ctypes.c_char * 24)(b"\x18"), (ctypes.c_char * 8)(), 1, 0)),
    ("unknown_call", 480, (0,)),
    ("old_call_32", 0x40000000 + 101, (16, 1, 0, 0)),
    ("unowned_memory", 319, (b"evil", 0)),
    ("fanotify", 300, (0, 0)),
    ("quota", 179, (0x800002 << 8, None, 0, None)),
):
    output(_name, lambda n=_number, a=_arguments: _did(lambda: kernel(n, *a)))  # type: ignore[misc]

output("clone_namespace", lambda: _namespace())
output("nsenter", lambda: program("nsenter", "-t", str(_pod()), "-m", "true"))
output("unshare_program", lambda: program("unshare", "-Urm", "true"))
output("bwrap_inside", lambda: program("bwrap", "--bind", "/", "/", "true"))
output("dev_mem", lambda: os.open("/dev/mem", os.O_RDONLY))
output("dev_kmsg", lambda: os.open("/dev/kmsg", os.O_WRONLY))
output("disc_itself", lambda: [os.open(str(each), os.O_RDONLY) for each in _discs()] or None)
output("sysrq", lambda: os.open("/proc/sysrq-trigger", os.O_WRONLY))
output("core_pattern", lambda: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
output("sysctl", lambda: os.open("/proc/sys/kernel/pid_max", os.O_WRONLY))
output("sys", lambda: os.open("/sys/kernel/mm/transparent_hugepage/enabled", os.O_WRONLY))
output("cgroup", lambda: _did(lambda: Path("/sys/fs/cgroup/pids/evil").mkdir()))
output("cgroup_v2", lambda: _did(lambda: Path("/sys/fs/cgroup/evil").mkdir()))
output("shutdown", lambda: program("shutdown", "-k", "now"))
output("cortex", lambda: program("cortex", "--version"))
output("cortex_as_module", lambda: program(sys.executable, "-c", "import cortex"))
output(
    "cortex_by_path", lambda: program(FACTS["cortex"], "pods", "ls", "--data", FACTS["data_folder"])
)
output("psql", lambda: program("psql", "-h", os.path.dirname(FACTS["socket"]), "-c", "SELECT 1"))  # noqa: PTH120


def _namespace() -> object:
    pid = kernel(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "has a child in a namespace of its own"


def _discs() -> list[Path]:
    return [each for each in Path("/dev").iterdir() if each.is_block_device()]


# --- limits


@attempt
def fork_bomb() -> object:
    """More processes than anybody needs; all of them wait, and are killed with this one."""
    count, reading, writing = 0, *os.pipe()
    try:
        while (count := count + 1) < 2000:
            if os.fork() == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
    finally:
        os.close(writing)
        os.close(reading)
        with suppress(ChildProcessError):
            while True:
                os.wait()
    return f"{count} processes"


@attempt
def huge_file() -> object:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Path("huge").open("wb") as file:
        file.truncate(1 << 40)
    return "made a file of a terabyte"


@attempt
def much_memory() -> object:
    return len(mmap.mmap(-1, 3 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


@attempt
def many_descriptors() -> object:
    held: list[int] = []
    try:
        held.extend(os.open(".", os.O_RDONLY) for _ in range(5000))
    finally:
        for each in held:
            os.close(each)
    return f"{len(held)} open files"


@attempt
def endless_computing() -> object:
    seconds = resource.getrlimit(resource.RLIMIT_CPU)[0]
    return None if 0 < seconds <= 600 else seconds


@attempt
def raised_limits() -> object:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most + 1, most + 1))
    return "raised"


@attempt
def higher_priority() -> object:
    return os.nice(-5)


def main() -> None:
    FACTS.update(json.loads(sys.argv[1]))
    results: dict[str, str | None] = {}
    for name in FACTS.get("only", ATTEMPTS):
        try_it = ATTEMPTS[name]
        try:
            got = try_it()
        except REFUSED:
            got = None
        results[name] = None if got is None else repr(got)[:200]
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
