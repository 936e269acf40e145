"""A Postgres server of one test's own, of any version, to be stopped, killed and started again."""

import os
import signal
import subprocess
from pathlib import Path

from cortex.postgres.embedded.account import account_for
from cortex.postgres.embedded.cluster import BUILTIN_UTF8, Cluster, FileLock
from cortex.postgres.embedded.install import Install, packaged, reachable
from cortex.postgres.embedded.server import DATABASE
from cortex.postgres.embedded.socket import Postmaster
from tests.support.eventually import WITHIN_S, eventually
from tests.support.servers.postgres import make_home, sql

BUILTIN_LOCALES_SINCE = 17


class PrivatePostgres:
    """The server below `home`, stopped at first; `dsn` stays the same over restarts."""

    def __init__(self, home: Path, *, bindir: Path) -> None:
        account = account_for(home / "pgdata")
        install = reachable(Install(bindir.parent), account=account, home=home)
        self.major = major_of(bindir)
        has_builtin = int(self.major) >= BUILTIN_LOCALES_SINCE
        self.cluster = Cluster(
            home=home,
            install=install,
            account=account,
            major=self.major,
            initdb_options=BUILTIN_UTF8 if has_builtin else ("--locale=C",),
        )

    def start(self) -> None:
        """Return when it accepts connections; recovers after `kill` or `stop_immediate`."""
        self.cluster.start(within_s=WITHIN_S)
        self.cluster.ensure_database(DATABASE)

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, sessions are terminated."""
        self.cluster.stop(signal.SIGINT)

    def stop_immediate(self) -> None:
        """Immediate shutdown: a power cut that the sessions notice."""
        self.cluster.stop(signal.SIGQUIT)

    def kill(self) -> None:
        """SIGKILL the main process and wait until all others have noticed and ended."""
        self.postmaster.send(signal.SIGKILL)
        eventually(self.cluster.is_dead, what="all processes of the killed server ended")

    @property
    def dsn(self) -> str:
        """The address of its database; only while it runs."""
        return self.postmaster.dsn(DATABASE)

    @property
    def postmaster(self) -> Postmaster:
        """Its main process; fails when it was shut down."""
        found = self.cluster.postmaster()
        if found is None:
            raise RuntimeError(f"no server runs in {self.cluster.home}")
        return found

    def backend_pids(self) -> list[int]:
        """The processes that serve clients of the test's database, oldest first."""
        query = """
            SELECT pid FROM pg_stat_activity
            WHERE datname = $1 AND backend_type = 'client backend' ORDER BY backend_start, pid
        """
        return [row["pid"] for row in sql(self.postmaster.dsn("postgres"), query, DATABASE)]

    def kill_backends(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Signal the processes of all clients; returns how many there were.

        SIGTERM ends each session with an error; SIGKILL makes the whole server recover; SIGSTOP
        makes sessions that answer no more.
        """
        pids = self.backend_pids()
        for pid in pids:
            os.kill(pid, how)
        return len(pids)


def copy_of_original(run_dir: Path, *, bindir: Path) -> Path:
    """A fresh home with stopped, complete data: a copy is made ten times quicker than the data."""
    original = run_dir / f"original-{major_of(bindir)}"
    with FileLock(run_dir / "original.lock") as lock:
        if not lock.exclusive(within_s=WITHIN_S):
            raise TimeoutError("another worker is still making the original data directory")
        if not original.exists():
            unfinished = make_home(run_dir)
            server = PrivatePostgres(unfinished, bindir=bindir)
            server.start()
            server.stop()
            unfinished.rename(original)
    home = make_home(run_dir)
    subprocess.run(["cp", "-a", f"{original}/.", str(home)], check=True)  # keeps the owner
    return home


def bindirs() -> list[Path]:
    """The Postgres versions to test: CORTEX_TEST_PG_BINDIRS, else the two that are packaged."""
    chosen = os.environ.get("CORTEX_TEST_PG_BINDIRS")
    if chosen:
        return [Path(bindir) for bindir in chosen.split(":")]
    newest = packaged().root
    return [newest / "bin", newest.with_name("pginstall") / "bin"]


def major_of(bindir: Path) -> str:
    """The first number of, say, `postgres (PostgreSQL) 18.4`."""
    answer = subprocess.check_output([str(bindir / "postgres"), "--version"], text=True)
    return answer.split()[2].partition(".")[0]
