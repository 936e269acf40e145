"""The Postgres of the overlays `several` and `tick`: a server that pods reach by TCP."""

import signal
import socket
from pathlib import Path
from typing import Final

import attrs

from cortex.postgres.embedded.cluster import BUILTIN_UTF8
from cortex.postgres.embedded.install import packaged
from rehearsal.node import Node, Running, until

USER: Final = 10002
WITHIN_S: Final = 60.0
HOME: Final = "/var/lib/postgresql"


@attrs.define
class Database:
    """One server in a container of its own, with its data on a volume that stays."""

    node: Node
    folder: Path
    port: int
    running: Running | None = None

    @classmethod
    def start_new(cls, node: Node) -> "Database":
        folder = node.folder / "postgres"
        folder.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        made = cls(node, folder, port)
        options = ("--username=cortex", "--auth=trust", "--encoding=UTF8", *BUILTIN_UTF8)
        done = made._run("initdb", *options)
        if done.process.wait(WITHIN_S):
            raise SystemExit(f"initdb: {done.text}")
        made.start()
        return made

    @property
    def dsn(self) -> str:
        return f"postgresql://cortex@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        self.running = self._run(
            "postgres",
            *("-c", "listen_addresses=127.0.0.1", "-p", str(self.port), "-k", HOME),
        )
        until(self.answers, "Postgres listens", within_s=WITHIN_S)

    def stop(self) -> None:
        """Fast shutdown: sessions are ended, new ones are refused."""
        assert self.running is not None
        self.running.signal(signal.SIGINT)
        if self.running.process.wait(WITHIN_S):
            raise SystemExit(f"Postgres: {self.running.text}")

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _run(self, program: str, *options: str) -> Running:
        return self.node.start(
            [str(packaged().program(program)), *options],
            name="postgres",
            environment={"PGDATA": f"{HOME}/data", "LC_ALL": "C", "TZ": "UTC"},
            mounts={HOME: self.folder},
            user=USER,
            group=USER,
        )
