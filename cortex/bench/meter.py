"""CPU time and write-ahead log that a measured span costs, for the figures beside a rate.

The pod's side is this process, unless others are named. The server's side is the postmaster and
all its children, whatever database they work for: a measurement needs a server that is otherwise
idle.
"""

import os
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import attrs

from cortex.postgres import scratch
from cortex.postgres.bridge import Port

T = TypeVar("T")

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
"""Unit of `/proc/PID/stat`."""


@attrs.frozen
class Cost:
    """The cost of a span."""

    pod_s: float
    postgres_s: float | None
    """None if the server's processes cannot be seen from here: another machine, or not Linux."""
    wal_bytes: int

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum of two spans."""
        postgres_s = None
        if self.postgres_s is not None and other.postgres_s is not None:
            postgres_s = self.postgres_s + other.postgres_s
        return Cost(self.pod_s + other.pod_s, postgres_s, self.wal_bytes + other.wal_bytes)

    def per(self, unit: str, count: int) -> dict[str, Any]:
        """Return the figures of a measurement for each of `count` units."""
        postgres_us = None if self.postgres_s is None else round(1e6 * self.postgres_s / count, 1)
        return {
            f"pod_us_per_{unit}": round(1e6 * self.pod_s / count, 1),
            f"postgres_us_per_{unit}": postgres_us,
            f"wal_bytes_per_{unit}": round(self.wal_bytes / count),
        }


async def metered(
    work: Callable[[Port], Awaitable[T]],
    port: Port,
    *,
    pod_cpu_s: Callable[[], float] | None = None,
) -> tuple[T, Cost]:
    """Do the work; return its result and its cost. `pod_cpu_s`: of a pod in other processes."""
    pod_cpu_s = pod_cpu_s or _own_cpu_s
    backend, database = await port(scratch.backend)
    server = _Server.of(backend=backend, database=database)
    wal_before = await port(scratch.wal_position)
    # The pod's clock starts last and stops first: reading the server's takes time.
    server_before = server.cpu_s() if server else 0.0
    pod_before = pod_cpu_s()
    result = await work(port)
    pod_s = pod_cpu_s() - pod_before
    postgres_s = server.cpu_s() - server_before if server else None
    wal_bytes = await port(scratch.wal_position) - wal_before
    return result, Cost(pod_s, postgres_s, wal_bytes)


@attrs.frozen
class _Server:
    """The processes of a Postgres server on this machine."""

    pid: int

    @classmethod
    def of(cls, *, backend: int, database: str) -> Self | None:
        """Find the server of a session by its process; None if that cannot be seen."""
        try:
            title = Path(f"/proc/{backend}/cmdline").read_text("utf-8", "replace")
            if database not in title:  # a process of this machine, the server is on another one
                return None
            status = Path(f"/proc/{backend}/status").read_text()
            server = cls(int(status.partition("\nPPid:")[2].split(maxsplit=1)[0]))
            server.cpu_s()
        except OSError:
            return None
        return server

    def cpu_s(self) -> float:
        """Return the CPU time of all processes, ended ones included."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        while True:
            ended_s = self._ended_s()
            pids = (str(self.pid), *children.read_text().split())
            try:
                live_s = sum(_scheduled_s(pid) for pid in pids)
            except (FileNotFoundError, ProcessLookupError):
                continue  # a child has ended since the list was read
            if self._ended_s() == ended_s:
                return ended_s + live_s

    def _ended_s(self) -> float:
        """Return the CPU time of the children that have ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / TICKS_PER_S


def _scheduled_s(pid: str) -> float:
    """Return the CPU time of a process of one thread."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
