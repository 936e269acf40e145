"""Reads what a run left behind: with its own SQL, on its own connection, in one snapshot."""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from chaos.cluster.receiver import Received
from chaos.evidence import Application, Delivery, Evidence, LedgerRequest, ModelCall, Row
from chaos.workloads.old_jobs import ARCHIVE, archived_in

if TYPE_CHECKING:
    from chaos.cluster.stage import Stage

READ_WITHIN_S: Final = 120.0
CLOSED_WITHIN_S: Final = 5.0

RECORD: Final[Mapping[str, str]] = {
    "jobs": "SELECT * FROM cortex.job ORDER BY id",
    "transitions": "SELECT * FROM cortex.job_history ORDER BY id",
    "attempts": "SELECT * FROM cortex.job_attempt ORDER BY job_id, attempt",
    "steps": "SELECT * FROM cortex.job_step ORDER BY job_id, seq",
    "effects": "SELECT * FROM cortex.effect ORDER BY id",
    "approvals": "SELECT * FROM cortex.approval ORDER BY seq",
    "votes": "SELECT * FROM cortex.approval_vote ORDER BY at",
    "facts": "SELECT * FROM cortex.fact ORDER BY id",
    "log_lines": "SELECT * FROM cortex.log_line ORDER BY job_id, attempt, number",
    "pods": "SELECT * FROM cortex.pod ORDER BY started_at",
    "tasks": "SELECT * FROM cortex_worker.task ORDER BY id",
    "dead_letters": "SELECT * FROM cortex.dead_letter ORDER BY created_at",
    "schedules": "SELECT * FROM cortex.schedule WHERE origin <> 'built_in' ORDER BY name",
    "instants": "SELECT * FROM cortex.schedule_instant ORDER BY schedule, instant",
    "subscriptions": "SELECT * FROM cortex.subscription ORDER BY name",
    "signals": "SELECT * FROM cortex.signal ORDER BY seq",
    "messages": "SELECT * FROM cortex.outbox ORDER BY seq",
}
OBSERVED: Final[Mapping[str, str]] = {
    "claims": "SELECT * FROM chaos.claim ORDER BY n",
    "moves": "SELECT * FROM chaos.move ORDER BY n",
    # While a session holds a pod's row lock, only the heartbeats of its jobs are written.
    "beats": """
        SELECT at, statement, pod_id, state, lag_s FROM chaos.beat
        UNION ALL
        SELECT min(k.at), k.statement, k.pod_id, 'READY', 0 FROM chaos.kept k
        WHERE NOT EXISTS (SELECT FROM chaos.beat b WHERE b.statement = k.statement)
        GROUP BY k.statement, k.pod_id
        ORDER BY at
    """,
    "renewals": "SELECT job_id, attempt, max(at) AS at FROM chaos.kept GROUP BY job_id, attempt",
    "setbacks": "SELECT * FROM chaos.setback ORDER BY n",
    "pauses": "SELECT * FROM chaos.pause ORDER BY n",
    "births": "SELECT * FROM chaos.birth ORDER BY n",
    "reopened": "SELECT * FROM chaos.reopened ORDER BY n",
    "wrong_deaths": "SELECT * FROM chaos.wrong_death ORDER BY n",
    "strangers": """
        SELECT k.job_id, k.attempt, k.pod_id, b.pod_id AS beaten_by, b.at
        FROM chaos.kept k JOIN chaos.beat b ON b.statement = k.statement
        WHERE b.pod_id <> k.pod_id ORDER BY b.n
    """,
}


async def collect(stage: "Stage") -> Evidence:
    """Return the evidence of a run that has come to rest or was given up."""
    rows = await read_record(stage.postgres.dsn)
    applied = (
        Application(
            account=one.account,
            key=one.key,
            attempt=one.attempt,
            at_s=stage.history.at_s(one.at),
            result=one.result,
        )
        for one in stage.ledger.applied()
    )
    calls: tuple[ModelCall, ...] = await stage.model.calls()
    deliveries = (
        delivery_of(one, at_s=stage.history.at_s(one.at)) for one in stage.receiver.received()
    )
    return Evidence(
        settings=stage.settings,
        events=tuple(stage.history.events),
        applications=tuple(applied),
        model_calls=calls,
        requests=tuple(
            LedgerRequest(key=key, attempt=attempt) for key, attempt in stage.ledger.requests()
        ),
        deliveries=tuple(deliveries),
        archived=await asyncio.to_thread(archived_in, stage.folder / ARCHIVE),
        canaries=(stage.canary,),
        logs={pod.title: pod.log for pod in stage.pods_kept.all},
        **rows,
    )


def delivery_of(one: Received, *, at_s: float) -> Delivery:
    """Return a delivery as evidence."""
    return Delivery(
        subscription=one.subscription,
        message=one.message,
        topic=one.body["type"],
        payload=one.body["data"],
        at_s=at_s,
        is_accepted=one.is_accepted,
    )


async def read_record(dsn: str) -> dict[str, tuple[Row, ...]]:
    """Return the fields of the evidence that the database holds; those not observed are empty."""
    async with asyncio.timeout(READ_WITHIN_S):
        connection = await asyncpg.connect(dsn, server_settings={"application_name": "chaos"})
        try:
            for kind in ("json", "jsonb"):
                await connection.set_type_codec(
                    kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads
                )
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                queries = dict(RECORD)
                if await connection.fetchval("SELECT to_regclass('chaos.claim')") is not None:
                    queries |= OBSERVED
                return {name: await _rows(connection, query) for name, query in queries.items()}
        finally:
            await connection.close(timeout=CLOSED_WITHIN_S)


async def _rows(connection: "asyncpg.Connection[Any]", query: str) -> tuple[Row, ...]:
    return tuple(dict(row) for row in await connection.fetch(query))
