"""Samples the run's database once a second, from outside, and records the result.

It connects as superuser to the server's own socket, past every proxy. A failed sample is recorded
as such: the server may be down, which is part of the run. Each sample is an event `activity` of
process `probe`:

    up              whether the server answered; why: if not
    now, started_s  the database's clock; how long the server has been up
    sessions        sessions of pods and clients; idle_in_transaction: those that are
    slow            what lasts: pid, what (runs, idle in transaction, waits for a lock), for_s
    silent          running jobs with the oldest heartbeats: job, for_s
    ready, locked, slots  claimable tasks; claimed tasks; slots of the living pods
    snapshot_s      age of the oldest transaction of a pod that keeps old rows alive
    deadlocks, dead_rows  as the server's statistics count them
    size_bytes      of all Cortex tables with their indexes and TOAST
    oldest_due_s    how long the oldest due task has waited for a pod; 0 if there is none
    runnable        runnable processes per processor of this machine
"""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from chaos.history import History

if TYPE_CHECKING:
    from chaos.cluster.stage import Stage

PERIOD_S: Final = 1.0
SAMPLE_WITHIN_S: Final = 5.0
LOST: Final = (
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a server that goes away in the middle of a message
)

_SAMPLE: Final = """
WITH session AS MATERIALIZED (
    SELECT a.*, l.since FROM pg_stat_activity a
    LEFT JOIN (
        SELECT pid, min(waitstart) AS since FROM pg_locks WHERE NOT granted GROUP BY pid
    ) l USING (pid)
    WHERE a.backend_type = 'client backend' AND a.datname = current_database()
      AND a.application_name LIKE 'cortex%'
), slow AS (
    SELECT pid, query, what, extract(epoch FROM clock_timestamp() - since)::float8 AS for_s
    FROM (
        SELECT pid, query, 'waits for a lock' AS what, since FROM session WHERE since IS NOT NULL
        UNION ALL
        SELECT pid, query, 'idle in transaction', state_change FROM session
        WHERE state LIKE 'idle in transaction%'
        UNION ALL
        -- What its client does not take, or has prepared only, is not the server's to end.
        SELECT pid, query, 'runs', query_start FROM session
        WHERE state = 'active' AND since IS NULL
          AND coalesce(wait_event, '') NOT IN ('ClientRead', 'ClientWrite')
    ) lasting
    WHERE clock_timestamp() - since > interval '0.5 seconds'
), silent AS (
    SELECT id AS job, extract(epoch FROM clock_timestamp() - heartbeat_at)::float8 AS for_s
    FROM cortex.job
    WHERE status = 'RUNNING' AND heartbeat_at IS NOT NULL ORDER BY heartbeat_at LIMIT 5
)
SELECT jsonb_build_object(
    'now', extract(epoch FROM clock_timestamp()),
    'started_s', extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()),
    'sessions', (SELECT count(*) FROM session),
    'idle_in_transaction', (SELECT count(*) FROM session WHERE state LIKE 'idle in transaction%'),
    'slow', (SELECT coalesce(jsonb_agg(jsonb_build_object(
        'pid', pid, 'what', what, 'for_s', for_s,
        'query', left(regexp_replace(query, '\\s+', ' ', 'g'), 200))), '[]')
        FROM (SELECT * FROM slow ORDER BY for_s DESC LIMIT 20) s),
    'silent', (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM silent s),
    'ready', (SELECT count(*) FROM cortex_worker.task WHERE state = 'READY'),
    'locked', (SELECT count(*) FROM cortex_worker.task WHERE state = 'LOCKED'),
    'slots', (SELECT coalesce(sum(slots), 0) FROM cortex.pod WHERE state = 'READY'),
    'snapshot_s', (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)
                   FROM session WHERE backend_xmin IS NOT NULL),
    'deadlocks', (SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()),
    'dead_rows', (SELECT jsonb_object_agg(relname, n_dead_tup) FROM pg_stat_user_tables
                  WHERE schemaname IN ('cortex', 'cortex_worker') AND n_dead_tup > 0),
    'size_bytes', (SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint
                   FROM pg_stat_user_tables WHERE schemaname IN ('cortex', 'cortex_worker')
                     AND relname <> 'log_line'),  -- as large as what jobs log
    'oldest_due_s', (SELECT greatest(0, extract(epoch FROM cortex.now() - min(t.run_at)))
                     FROM cortex_worker.task t
                     WHERE t.state = 'READY' AND NOT t.is_suspect AND NOT EXISTS (
                         SELECT FROM cortex_worker.queue_pause p
                         WHERE p.queue = coalesce(t.queue_name, '')))
)
"""


async def watch(stage: "Stage") -> None:
    """Sample until cancelled."""
    await Probe(lambda: stage.postgres.dsn, history=stage.history).run()


class Probe:
    """Keeps one connection, and reconnects when it is lost."""

    def __init__(
        self, dsn: Callable[[], str], *, history: History, period_s: float = PERIOD_S
    ) -> None:
        """`dsn` is called for each new connection; it may raise while the server is down."""
        self._dsn = dsn
        self._history = history
        self._period_s = period_s
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def run(self) -> None:
        """Sample until cancelled."""
        try:
            while True:
                await self.sample()
                await asyncio.sleep(self._period_s)
        finally:
            await self.close()

    async def close(self) -> None:
        """Abort the connection; the event loop needs one turn to close the socket."""
        self._drop()
        await asyncio.sleep(0)

    async def sample(self) -> None:
        """Take one sample; record a failure instead of raising it."""
        try:
            async with asyncio.timeout(SAMPLE_WITHIN_S):
                figures = await self._ask()
        except LOST as error:
            self._drop()
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self._history.add("probe", "activity", up=False, why=reason)
        else:
            self._history.add("probe", "activity", up=True, **figures)

    async def _ask(self) -> dict[str, Any]:
        if self._connection is None:
            settings = {"application_name": "chaos", "statement_timeout": "4s"}
            self._connection = await asyncpg.connect(self._dsn(), server_settings=settings)
        figures: dict[str, Any] = json.loads(await self._connection.fetchval(_SAMPLE))
        return {**figures, "dead_rows": figures["dead_rows"] or {}, "runnable": _runnable()}

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _runnable() -> float:
    """Runnable processes per processor right now, including this one."""
    fields = Path("/proc/loadavg").read_text().split()
    return round(int(fields[3].partition("/")[0]) / (os.cpu_count() or 1), 2)
