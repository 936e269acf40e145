"""`python -m tests.support.servers.embedded_user DATA_DIR UID TIMES` uses the embedded Postgres.

As that user unless UID is 0. If TIMES is 0 it prints the address, and leaves when its standard
input ends; otherwise it comes and goes so often, asking the server something each time.
"""

import os
import sys
from pathlib import Path

from cortex.postgres.embedded import server as embedded
from tests.support.servers.postgres import sql


def use(data_dir: Path, *, times: int) -> None:
    os.set_inheritable(os.dup(sys.stdin.fileno()), bool(1))  # the server must not keep it
    if not times:
        with embedded.acquire(data_dir) as server:
            sys.stdout.write(f"{server.dsn}\n")
            sys.stdout.flush()
            sys.stdin.read()
    for _ in range(times):
        with embedded.acquire(data_dir) as server:
            assert sql(server.dsn, "SELECT 1 AS one")[0]["one"] == 1


if __name__ == "__main__":
    _, place, user, often = sys.argv
    if uid := int(user):
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    use(Path(place), times=int(often))
