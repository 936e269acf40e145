"""A pod as its starter sees it: its place among workers, and what it offers once it is ready."""

import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

import attrs
import trio

from cortex.domain.drain import ReadyChecks
from cortex.postgres.bridge import Port
from cortex.runtime.clients.job_feeds import JobFeeds
from cortex.runtime.clients.result_waiters import ResultWaiters
from cortex.runtime.metrics.metrics_page import MetricsPage


@attrs.frozen(kw_only=True)
class Worker:
    """The place of a pod among several that people see as one."""

    group_id: UUID
    number: int
    """From 1; a restarted worker keeps its number."""
    exposition: Callable[[], Awaitable[tuple[bytes, str]]]
    """Metrics of all workers, and their content type."""
    are_all_ready: Callable[[], bool]
    """Whether all workers take jobs."""


@attrs.frozen(kw_only=True)
class Intake:
    """Which jobs a pod claims: by default all that it has room for."""

    claims_max: int | None = None
    """It is the pod of one tick: it claims so many jobs, runs nothing else in the background, and
    leaves when nothing is due."""
    only: UUID | None = None
    """It runs this job and no other, and declares no schedules."""


EVERYTHING: Final = Intake()


@attrs.frozen(kw_only=True)
class Ready:
    """A pod that takes jobs, as its starter sees it."""

    port: Port
    pod: str
    """Its name, for people."""
    job_types: tuple[str, ...]
    nursery: trio.Nursery
    """For users of the port beside the pod: cancelled before the port is closed."""
    waiters: ResultWaiters
    """Waits for the ends of jobs."""
    feeds: JobFeeds
    """Follows jobs event by event."""
    metrics: MetricsPage
    claimed: Callable[[], int]
    """How many jobs it has claimed so far."""
    checks: Callable[[], ReadyChecks]
    """Whether it still takes jobs."""
    http: str | None = None
    """Where the API is served."""


def own_name() -> str:
    """Return the name of a pod of this process: HOST:PID."""
    return f"{socket.gethostname()}:{os.getpid()}"
