"""A PgBouncer of one test's own, before the server that all tests share."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from attrs import define, field

from cortex.postgres.embedded.account import account_for
from tests.support.eventually import WITHIN_S, eventually
from tests.support.outside_programs import PGBOUNCER

PORT = 6432  # of the name of its socket only

CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr =
listen_port = {own_port}
unix_socket_dir = {home}
auth_type = any
pool_mode = {mode}
default_pool_size = {sessions}
server_login_retry = 0.2
logfile = {home}/log
ignore_startup_parameters = {ignored}
"""


@define(eq=False)
class PgBouncer:
    """A running pooler; `dsn` leads through it."""

    home: Path
    dsn: str
    process: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def log(self) -> str:
        """Log of the pooler."""
        return (self.home / "log").read_text("utf-8", "replace")


@contextmanager
def pgbouncer(
    dsn: str,
    home: Path,
    *,
    mode: str = "transaction",
    sessions: int = 8,
    ignored: str = "",
    user: str = "postgres",
) -> Iterator[PgBouncer]:
    """Run one before the database of `dsn` while the block lasts; skips the test if there is none.

    `home`: an empty folder that any user may pass. `sessions`: how many it has with the server.
    `ignored`: start-up parameters that it drops in place of refusing the client. `user`: the login
    of its sessions.
    """
    program = PGBOUNCER.needed()
    parts = urlsplit(dsn)
    server = parse_qs(parts.query)
    account = account_for(home / "none")  # who runs the server, too: may pass to its socket
    own = home / "pooler"
    own.mkdir(mode=0o700)
    if not account.is_me:
        os.chown(own, account.uid, account.gid)
    (home / "pgbouncer.ini").write_text(
        CONFIGURATION.format(
            host=server["host"][0],
            port=server["port"][0],
            user=user,
            own_port=PORT,
            home=own,
            mode=mode,
            sessions=sessions,
            ignored=ignored,
        )
    )
    (home / "pgbouncer.ini").chmod(0o644)
    process = subprocess.Popen(
        [program, "--quiet", home / "pgbouncer.ini"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **account.popen_options(),
    )
    address = f"postgresql://postgres@{parts.path}?host={own}&port={PORT}"
    running = PgBouncer(own, address, process)
    try:
        eventually((own / f".s.PGSQL.{PORT}").exists, what="pgbouncer listens")
        yield running
    finally:
        process.terminate()
        process.wait(WITHIN_S)
        sys.stdout.write(f"--- log of pgbouncer\n{running.log[-4000:]}\n")
