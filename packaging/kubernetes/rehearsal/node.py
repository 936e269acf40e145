"""A machine that runs containers as processes of this one, in namespaces made by bubblewrap.

A container sees a read-only root, its volumes at their paths, its user, and no other process; its
first process gets signals, and killing it kills all, as Kubernetes does. The network is shared:
a port of a container becomes a free one, in its arguments.
"""

import itertools
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from rehearsal.manifests import Container, PodTemplate

HIDDEN: Final = frozenset({"dev", "proc", "run", "srv", "sys", "tmp", "var"})
"""Folders below / that a container has of its own."""
PROGRAMS: Final = (sys.base_prefix, sys.prefix, str(Path(__file__).parents[3]))
COMMAND_S: Final = 120.0
APP: Final = "/srv/app"
"""Where an image made from Cortex's has its own jobs and tools."""
READINGS: Final = 3
READING_S: Final = 0.02
TICKS: Final = os.sysconf("SC_CLK_TCK")


@attrs.define
class Running:
    """A container that runs; `first` is its process 1, as seen from here."""

    process: "subprocess.Popen[bytes]"
    first: int
    log: Path
    """What it wrote to stderr; `out` has the rest."""
    out: Path

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def text(self) -> str:
        """All that it wrote."""
        return "".join(each.read_text("utf-8", errors="replace") for each in (self.out, self.log))

    def signal(self, number: int) -> None:
        if not self.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.first, number)

    def kill(self) -> None:
        """SIGKILL to process 1: the kernel kills all others of the container with it."""
        self.signal(9)
        self.process.wait()

    def pids(self) -> list[int]:
        with suppress(OSError):
            space = Path(f"/proc/{self.first}/ns/pid").readlink()
            return [pid for pid in _all_pids() if _space_of(pid) == space]
        return []

    def memory(self) -> int:
        """Bytes that its processes use; what they share counts once.

        Files that a program maps count once for it, even if others have them in memory. Of several
        readings the smallest holds: a child that is about to run another program has its parent's
        memory for a moment, and counts it again.
        """
        smallest = self._memory_now()
        for _ in range(READINGS - 1):
            time.sleep(READING_S)
            smallest = min(smallest, self._memory_now())
        return smallest

    def _memory_now(self) -> int:
        pids = self.pids()
        mapped: dict[str, int] = {}
        for program, size in map(_mapped, pids):
            mapped[program] = max(mapped.get(program, 0), size)
        return sum(map(_own, pids)) + sum(mapped.values())

    def cpu_s(self) -> float:
        """CPU seconds of its processes, with those that have ended."""
        return sum(_cpu_ticks(pid) for pid in self.pids()) / TICKS


def _all_pids() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


def _space_of(pid: int) -> Path | None:
    with suppress(OSError):
        return Path(f"/proc/{pid}/ns/pid").readlink()
    return None


def _own(pid: int) -> int:
    """Return the bytes of a process that come from no file; shared ones in proportion."""
    with suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines[1:])
        return sum(int(fields[each].split()[0]) for each in ("Pss_Anon", "Pss_Shmem")) * 1024
    return 0


def _mapped(pid: int) -> tuple[str, int]:
    """Return a process's program, and the bytes of files that it has mapped."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssFile:"):
                program = Path(f"/proc/{pid}/exe").readlink()
                return str(program), int(line.split()[1]) * 1024
    return "", 0


def _cpu_ticks(pid: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15]))
    return 0


@attrs.define(kw_only=True)
class Node:
    """Where pods run, with the secrets and claims of their namespace below `folder`."""

    folder: Path
    entry: Sequence[str]
    """The command of the image."""
    secrets: Mapping[str, Mapping[str, str]]
    app: Path | None = None
    runs: list[Running] = attrs.field(factory=list)
    _numbers: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))

    def pod(self, template: PodTemplate, *, extra: Sequence[str] = ()) -> "Pod":
        """Make a pod, with its volumes; `extra` goes to the arguments of its main container."""
        name = f"cortex-{next(self._numbers)}"
        volumes = {volume: self._volume(name, volume, template) for volume in template.volumes}
        return Pod(node=self, template=template, name=name, volumes=volumes, extra=tuple(extra))

    def _volume(self, pod: str, name: str, template: PodTemplate) -> Path:
        given = template.volumes[name]
        if "persistentVolumeClaim" in given:
            folder = self.folder / "claims" / str(given["persistentVolumeClaim"]["claimName"])
            folder.mkdir(parents=True, exist_ok=True)
            _open_to_group(folder)
            return folder
        folder = self.folder / "pods" / pod / name
        folder.mkdir(parents=True)
        if "secret" in given:
            for key, value in self.secrets[given["secret"]["secretName"]].items():
                (folder / key).write_text(value)
        elif "emptyDir" not in given:
            raise SystemExit(f"volume {name} is of a kind that this cannot make: {given}")
        return folder

    def environment(self, container: Container) -> dict[str, str]:
        found: dict[str, str] = {}
        for secret, must_exist in container.secrets.items():
            if must_exist and secret not in self.secrets:
                raise SystemExit(f"container {container.name} needs the secret {secret}")
            found.update(self.secrets.get(secret, {}))
        for name, (secret, key) in container.from_secrets.items():
            if key not in self.secrets.get(secret, {}):
                raise SystemExit(f"container {container.name} needs the key {key} of {secret}")
            found[name] = self.secrets[secret][key]
        return {**found, **container.environment}

    def start(
        self,
        words: Sequence[str],
        *,
        name: str,
        environment: Mapping[str, str],
        mounts: Mapping[str, Path],
        user: int,
        group: int,
    ) -> Running:
        log = self.folder / f"{name}-{next(self._numbers)}.log"
        out = log.with_suffix(".out")
        users = self.folder / f"users-{user}"
        users.write_text(f"cortex:x:{user}:{group}::/var/lib/cortex:/usr/sbin/nologin\n")
        reading, writing = os.pipe()
        options = [
            *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
            *("--uid", str(user), "--gid", str(group), "--hostname", name),
            *("--as-pid-1", "--die-with-parent", "--clearenv", "--info-fd", str(writing)),
            *_root(),
            *("--ro-bind", str(users), "/etc/passwd"),
        ]
        for path, folder in mounts.items():
            options += ["--bind", str(folder), path]
        # What this machine has elsewhere than an image: the programs themselves.
        for path in dict.fromkeys((*PROGRAMS, self.entry[0])):
            if Path(path).parts[1] in HIDDEN:
                options += ["--ro-bind", path, path]
        options += ["--remount-ro", "/", "--chdir", "/"]
        # As in the image, but for the path.
        base = {"HOME": "/var/lib/cortex", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
        for key, value in {**base, **environment}.items():
            options += ["--setenv", key, value]
        with log.open("wb") as errors, out.open("wb") as output:
            process = subprocess.Popen(
                ["bwrap", *options, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                pass_fds=[writing],
                # As in a cluster, each container gets its own share of a busy processor.
                start_new_session=True,
            )
        os.close(writing)
        with os.fdopen(reading) as information:
            text = information.read()
        if not text:
            raise SystemExit(f"bubblewrap cannot start a container: {log.read_text()}")
        run = Running(process, json.loads(text)["child-pid"], log, out)
        self.runs.append(run)
        return run

    def close(self) -> None:
        for run in self.runs:
            if not run.has_ended:
                run.kill()


def _open_to_group(volume: Path) -> None:
    """Do what `fsGroup` does when a pod mounts a volume: its group may write all that is there.

    The policy `OnRootMismatch` spares a volume that a pod has used before, but not a restored one,
    and not every kind of volume.
    """
    for path in (volume, *volume.rglob("*")):
        with suppress(FileNotFoundError):  # another pod is at work there
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                path.chmod(stat.S_IMODE(mode) | stat.S_ISGID | 0o770)
            elif stat.S_ISREG(mode):
                path.chmod(stat.S_IMODE(mode) | 0o660)


def _root() -> Iterator[str]:
    for path in sorted(Path("/").iterdir()):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.name not in HIDDEN:
            yield from ("--ro-bind", str(path), str(path))
    yield from ("--proc", "/proc", "--dev", "/dev")


@attrs.define(kw_only=True)
class Pod:
    """A pod and its volumes; `main` is the container that stays."""

    node: Node
    template: PodTemplate
    name: str
    volumes: Mapping[str, Path]
    extra: tuple[str, ...]
    port: int = 0
    main: Running | None = None

    def start(self) -> Running:
        """Run the init containers, one after the other, and start the main one."""
        for container in self.template.first:
            done = self.run(container)
            if done.process.wait(COMMAND_S):
                raise SystemExit(f"init container {container.name} failed: {done.text}")
        return self.start_main()

    def start_main(self) -> Running:
        self.main = self.run(self.template.main, extra=self.extra)
        return self.main

    def run(self, container: Container, *, extra: Sequence[str] = ()) -> Running:
        """Start one of its containers."""
        words = [*self.node.entry, *self._with_free_ports(container), *extra]
        return self._start(container, words)

    def command(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """Run a command beside the main container, as `kubectl exec` does; return its output."""
        run = self._start(self.template.main, [*self.node.entry, *words], environment)
        code = run.process.wait(COMMAND_S)
        if code:
            raise SystemExit(f"cortex {' '.join(words)}: exit code {code}: {run.text}")
        return run.out.read_text("utf-8")

    def _start(
        self, container: Container, words: list[str], environment: Mapping[str, str] | None = None
    ) -> Running:
        mounts = {path: self.volumes[volume] for path, volume in container.mounts.items()}
        if self.node.app is not None:
            mounts[APP] = self.node.app
        return self.node.start(
            words,
            name=self.name,
            environment={**self.node.environment(container), **(environment or {})},
            mounts=mounts,
            user=self.template.user,
            group=self.template.group,
        )

    def _with_free_ports(self, container: Container) -> Iterator[str]:
        taken = {}
        for number in container.ports.values():
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = taken[number] = free.getsockname()[1]
        for word in container.arguments:
            host, colon, end = word.rpartition(":")
            is_port = bool(colon) and end.isdigit() and int(end) in taken
            yield f"{host}:{taken[int(end)]}" if is_port else word


def until(is_so: Callable[[], bool], what: str, *, within_s: float, poll_s: float = 0.1) -> float:
    """Poll until a condition holds; return how many seconds that took."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > within_s:
            raise SystemExit(f"not within {within_s:g} s: {what}")
        time.sleep(poll_s)
    return time.monotonic() - began


def required(*programs: str) -> None:
    missing = [each for each in programs if shutil.which(each) is None]
    if missing:
        raise SystemExit(f"not on PATH: {', '.join(missing)}")
