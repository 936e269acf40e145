"""Values that `cortex doctor` reads from the database."""

import attrs

from cortex.domain.drain import Liveness


@attrs.frozen(kw_only=True)
class SnapshotFacts:
    """A snapshot that keeps dead rows from being vacuumed."""

    kind: str
    """A session, a standby, a prepared transaction or a replication slot."""
    name: str
    pid: int | None
    held_s: float | None
    """None if the server does not report it."""
    xids: int
    """Transactions that have begun since."""


@attrs.frozen(kw_only=True)
class ServerFacts:
    """The server as any of its users sees it."""

    is_standby: bool
    is_read_only: bool
    synchronous_commit: str
    fsync: bool
    connections_used: int
    connections_max: int
    """Without those reserved for superusers."""
    snapshots: tuple[SnapshotFacts, ...]
    """The oldest ones."""


@attrs.frozen(kw_only=True)
class PodFacts:
    """A pod that is recorded as alive."""

    name: str
    version: str
    state: str
    liveness: Liveness
    is_locked: bool
    silent_s: float
    running: int
    loop_lag_ms: float | None
    hint_latency_ms: float | None
    threads_lost: int = 0
    """Threads that time-outs left behind; with several workers, those of the worst one."""
    trouble: str | None = None
    """Its database trouble."""
    confinement: str | None = None
    """How it confines the programs of agents; None: its version does not report it."""
    silent_after_s: float = 95.0
    """Seconds without a heartbeat after which it counts as silent, by its own settings."""
    zombie_s: float = 300.0
    """Its setting: the silence after which it frees the jobs of another pod."""

    @property
    def is_silent(self) -> bool:
        """It has written no heartbeat for too long."""
        return self.silent_s > self.silent_after_s


@attrs.frozen(kw_only=True)
class OpenDatabase:
    """A database to which every login of its server may connect; quoted, for statements."""

    name: str
    roles: str
    """The roles that must keep the right to connect, separated by commas."""


@attrs.frozen(kw_only=True)
class IntruderFacts:
    """A session that holds an advisory lock of pods although its login cannot be a pod's."""

    name: str
    pid: int
    what: str
    """What it holds, as text."""
