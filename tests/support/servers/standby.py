"""A standby of one test's server, which can be promoted when that has gone."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.eventually import WITHIN_S, eventually
from tests.support.servers.postgres import make_home, remove_servers, sql
from tests.support.servers.private_postgres import PrivatePostgres

SYNCHRONOUS = "synchronous_standby_names"


class Standby(PrivatePostgres):
    """A server that repeats what its primary writes, until it is promoted."""

    def follow(self, primary: PrivatePostgres, bindir: Path) -> None:
        """Copy the primary and follow it; return when it takes readers."""
        account = self.cluster.account
        if not account.is_me:
            os.chown(self.cluster.home, account.uid, account.gid)
        server = primary.postmaster
        subprocess.run(
            [
                *(bindir / "pg_basebackup", "--pgdata", self.cluster.pgdata, "--checkpoint=fast"),
                *("--host", server.socket_dir, "--port", str(server.port), "--username=postgres"),
                *("--write-recovery-conf", "--wal-method=stream", "--no-password", "--no-sync"),
            ],
            check=True,
            cwd="/",
            timeout=WITHIN_S,
            **account.popen_options(),
        )
        lock = self.cluster._lock_if_dead()
        assert lock is not None
        with lock:
            self.cluster._launch(lock)  # `start` would wait until it took writes
        eventually(self._reads, what="the standby takes readers")

    def promote(self) -> None:
        """Take writes from now on; return when it does."""
        (row,) = sql(self.dsn, "SELECT pg_promote(true, 30) AS is_done")
        assert row["is_done"]

    def promote_alone(self) -> None:
        """Promote it, and have it wait for no standby of its own."""
        self.promote()
        sql(self.dsn, f"ALTER SYSTEM RESET {SYNCHRONOUS}")
        sql(self.dsn, "SELECT pg_reload_conf()")

    def _reads(self) -> bool:
        found = self.cluster.postmaster()
        return found is not None and found.session_error("postgres") is None


@contextmanager
def standby_of(primary: PrivatePostgres, run_dir: Path, bindir: Path) -> Iterator[Standby]:
    """A running standby; removed at the end. Commits do not wait for it: see `synchronous`."""
    home = make_home(run_dir)
    standby = Standby(home, bindir=bindir)
    try:
        standby.follow(primary, bindir)
        yield standby
    finally:
        remove_servers(home)


def synchronous(primary: PrivatePostgres) -> None:
    """Let no commit return before the standby has it, from now on."""
    sql(primary.dsn, f"ALTER SYSTEM SET {SYNCHRONOUS} = '*'")
    sql(primary.dsn, "SELECT pg_reload_conf()")
    query = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"
    eventually(lambda: sql(primary.dsn, query), what="the standby is synchronous")


def both(*servers: PrivatePostgres) -> str:
    """One address of several servers, in this order; while they run."""
    parts = [urlsplit(server.dsn) for server in servers]
    places = [parse_qs(each.query) for each in parts]
    hosts = ",".join(each["host"][0] for each in places)
    ports = ",".join(each["port"][0] for each in places)
    return f"postgresql://postgres@{parts[0].path}?host={hosts}&port={ports}"
