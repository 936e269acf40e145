"""Costs of a job and of a step in statements, writes, log and memory stay within limits.

After a change on purpose: `python -m tests.support.hot_path --write`, and commit the new limits.
"""

import subprocess
import sys
from pathlib import Path

from cortex.postgres.database import Connection, Database, Profile
from cortex.postgres.session import open_session
from tests.support.hot_path import BATCH, Meter, counted_traffic, over, quiet_server
from tests.support.servers.postgres import sql


def test_no_count_per_unit_is_over_its_limit() -> None:
    command = [sys.executable, "-m", "tests.support.hot_path"]
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_figure_that_has_grown_or_has_no_limit_is_over() -> None:
    limits = {"claim.wal_bytes": 600.0, "claim.rows_updated": 0.0, "end.wal_bytes": 800.0}
    assert over(limits, limits) == []
    grown = limits | {"claim.rows_updated": 0.002}
    assert over(grown, limits) == ["claim.rows_updated"]
    assert over(limits | {"step.wal_bytes": 1.0}, limits) == ["step.wal_bytes"]
    assert over({"claim.wal_bytes": 1.0, "claim.rows_updated": 0.0}, limits) == ["end.wal_bytes"]


def test_each_write_is_counted(run_dir: Path) -> None:
    assert BATCH == 500
    with quiet_server(run_dir) as server, counted_traffic() as traffic:
        meter = Meter(server, traffic)

        def cost(statement: str) -> dict[str, float]:
            with meter.part("it", batches=1):
                sql(server.dsn, statement)
            return {
                name.removeprefix("it."): value
                for name, value in meter.figures.items()
                if value and name.startswith(("it.rows", "it.index"))
            }

        sql(server.dsn, "CREATE TABLE t (a int PRIMARY KEY, b int, c int) WITH (fillfactor = 40)")
        sql(server.dsn, "CREATE INDEX ON t (b)")
        insert = "INSERT INTO t SELECT n, n, n FROM generate_series(1, 500) n"
        assert cost(insert) == {"rows_inserted": 1, "index_entries": 2}
        assert cost("UPDATE t SET c = 0") == {"rows_updated": 1}
        assert cost("SELECT FROM t FOR UPDATE") == {"rows_locked": 1}
        sql(server.dsn, "VACUUM t")
        assert cost("UPDATE t SET b = b + 1000") == {
            "rows_updated": 1,
            "rows_updated_cold": 1,
            "index_entries": 2,
        }
        assert cost("DELETE FROM t") == {"rows_deleted": 1}


def test_each_message_to_the_server_is_counted(database: str) -> None:
    async def twice_in_a_transaction(db: Database, query: str) -> None:
        async def twice(connection: Connection) -> None:
            for _ in range(2):
                await connection.fetch(query, 1)

        await db.transact(twice)

    with counted_traffic() as traffic:
        with open_session(Profile(dsn=database, hot_path=True)) as store:
            store(twice_in_a_transaction, "SELECT $1::int")  # opens a connection to keep
            traffic.take()
            store(twice_in_a_transaction, "SELECT $1::int")
            # BEGIN, two executions, COMMIT
            assert traffic.take() == {"statements": 4, "round_trips": 4}
            store(twice_in_a_transaction, "SELECT $1::bigint")
            assert traffic.take() == {"statements": 4, "round_trips": 5}, "with the preparation"
