"""A client of the database, as a process of its own, that holds locks in an open transaction."""

import json
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from cortex.postgres.database import Profile
from tests.support.eventually import WITHIN_S

PROGRAM = """
import asyncio, json, sys, asyncpg
dsn, settings, hold, then = json.loads(sys.argv[1])
async def main():
    connection = await asyncpg.connect(dsn, server_settings=settings)
    async with connection.transaction():
        print(await connection.fetchval(hold), flush=True)
        await (connection.execute(then) if then else asyncio.sleep(3600))
asyncio.Runner(loop_factory=asyncio.SelectorEventLoop).run(main())
"""


@contextmanager
def holding_task(
    dsn: str, job_id: UUID, *, then: str = "", table: str = "cortex_worker.task", **settings: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has locked the task of a job, or its row of another table, as a pod does.

    It runs the statement `then`, or waits. `settings` replace a pod's.
    """
    key = "id" if table == "cortex.job_record" else "job_id"
    hold = f"SELECT pg_backend_pid() FROM {table} WHERE {key} = '{job_id}' FOR UPDATE"  # noqa: S608
    with holding(dsn, hold, then=then, **settings) as process:
        yield process


@contextmanager
def holding(
    dsn: str, hold: str, *, then: str = "", **settings: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that holds what the statement `hold` locks, in a transaction as a pod does."""
    with_settings = {**Profile(dsn=dsn).settings, **settings}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps([dsn, with_settings, hold, then])],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], WITHIN_S)
        assert readable, "it holds nothing"
        assert process.stdout.readline().strip()
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
