"""The events around the job of a trial: before it, while its pod approaches the point, after."""

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import asyncpg

from chaos.cluster.postgres import OWNER
from chaos.people import MAKER
from chaos.points.bench import WITHIN_S, Trial, TrialPod
from chaos.points.programs import (
    FLOW,
    IDLE,
    IDLE_COUNT,
    LAST_NUMBER,
    LIMITED,
    RIVALS,
    RULED,
    URL,
    Program,
    address,
    gate,
    running,
)
from chaos.workloads import old_jobs
from chaos.workloads.messages import SUBSCRIBE, config_of_hook
from cortex.domain.bulk import BulkRequest, BulkVerb
from cortex.domain.clock import system_chance
from cortex.domain.idempotency import request_digest
from cortex.domain.job import Submission
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.token import Role, digest_of_token, token_text
from cortex.postgres.database import Database
from cortex.store import idempotency, jobs, pauses, retries, specs, tasks, tokens
from cortex.store.specs import SpecKind

ANSWERED_WITHIN_S: Final = 5.0
CUT_EVERY_S: Final = 0.02
CANCELLED_BY: Final = "points"
CLAIMING: Final = "points"
"""The subject of a claim's request key."""
CLAIM_FAILED: Final = '"claim failed"'
ORPHANS_FOUND: Final = '"orphans released"'
"""In a pod's log."""

TOPICS: Final = ("trial", "chaos", "approval")
"""The words that begin what is subscribed to."""
_REMIND: Final = "UPDATE cortex.approval SET remind_at = cortex.now() WHERE status = 'PENDING'"

_NO_ROOM: Final = """
    INSERT INTO cortex.budget (scope, subject, unit, period, limit_amount, changed_by, reason)
    VALUES ('tenant', 'default', 'tokens', 'run', 0, 'points', 'no room')
"""
_ROOM: Final = "UPDATE cortex.budget SET limit_amount = 1000000"
_WAITS_FOR_BUDGET: Final = "SELECT id FROM cortex.job WHERE waiting_on LIKE 'budget:%'"
_WAITS_FOR_SIGNAL: Final = """
    SELECT id FROM cortex.job WHERE waiting_on = 'signal:go' AND worker_job_id IS NULL
"""
_DECLARED: Final = "SELECT name FROM cortex.schedule WHERE origin = 'code'"
_DUE: Final = """
    WITH due AS (
        UPDATE cortex.schedule SET next_at = cortex.now(), due_at = cortex.now()
        WHERE origin = 'code'
    )
    SELECT pg_notify('cortex_breaker', 'schedule')
"""
_FAILED: Final = "SELECT id FROM cortex.job WHERE type = $1 AND status = 'FAILED'"
_RACES: Final = "SELECT job_id FROM cortex.job_wait WHERE kind = 'signal' AND name = 'go'"
_SEND_TWO: Final = """
    SELECT cortex.send_signal('go', '1', job => $1), cortex.send_signal('go', '2', job => $1)
"""
_SUBMIT_DUE: Final = """
    SELECT cortex.submit_job(
        'points_due', '{"number": 2}', due_by => cortex.now() + interval '1 hour')
"""
_SET_ASIDE: Final = """
    SELECT count(*) FROM cortex_worker.task WHERE state = 'PAUSED' HAVING count(*) = 2
"""
_HAVE_RULES: Final = "SELECT FROM cortex.submit_rule HAVING count(*) = $1"
_END_PAUSE: Final = "DELETE FROM cortex_worker.pause"
"""As a person's command does that is killed before it gives the tasks back: pods do."""
PAUSED: Final = Pausable(PauseKind.TENANT, "default")
_READY: Final = "SELECT id FROM cortex.pod WHERE state = 'READY'"
_HOLD: Final = "BEGIN; LOCK TABLE cortex_worker.task IN ACCESS EXCLUSIVE MODE"
_CUT: Final = """
    SELECT pg_terminate_backend(a.pid)
    FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE NOT l.granted AND l.relation = 'cortex_worker.task'::regclass
      AND a.datname = current_database() AND a.usename = $1
      AND (a.query LIKE '%SET state = ''LOCKED''%' OR a.query LIKE '%SET state = ''READY''%')
"""
"""Sessions of pods in a claim or the promote before it. Not heartbeats, which need the tasks, too:
a pod without them claims nothing. The tables of all trials have the same numbers, since their
databases are copies of one."""


async def begin(trial: Trial, program: Program) -> None:
    """Do everything that precedes the pod under test. Raises `MissingError`."""
    await _prepare(trial, program)
    if program.cancels_idle:
        await _submit_bulk(trial)
    elif program.event not in ("request", "lost claim", "schedule", "rules"):
        await trial.submit(program.job_type, program.payload(trial.key, trial.folder))
    if program.job_type == LIMITED:
        for _ in range(RIVALS):
            await trial.submit(LIMITED, program.payload(trial.key, trial.folder))
    if program.event == "pause":
        await trial.sql(_SUBMIT_DUE)
    if program.first is not None:
        first = trial.start("first", program.first.at)
        at = f"another pod came to {program.first.at}"
        await trial.until(lambda: first.is_stopped or first.is_dead, at)
    if program.person == "agrees once reminded":
        await trial.sql(_REMIND)
    if program.event == "cancel":
        (job,) = await trial.sql("SELECT id FROM cortex.job")
        await jobs.cancel(trial.db, job["id"], by=CANCELLED_BY, reason="no longer needed")
    if program.event in ("request", "rules"):
        trial.token = await _make_token(trial)


async def _prepare(trial: Trial, program: Program) -> None:
    """Do everything that precedes the job."""
    match program.event:
        case "budget":
            await trial.sql(_NO_ROOM)
        case "message":
            for word in TOPICS:
                name = trial.subscription(word)
                config = config_of_hook(trial.bench.receiver.url, path=name)
                await trial.sql(SUBSCRIBE, name, f"{word}.*", config)
            await trial.sql("SELECT cortex.publish('trial.sent', '{}', 'k')")
        case "retention":
            await _keep_little(trial)
        case "pause" | "rules":
            await pauses.pause(trial.db, PAUSED, by=CANCELLED_BY, reason="not now")
        case _:
            pass
    if program.is_of_flow:
        await specs.apply(trial.db, SpecKind.FLOW, name=FLOW.name, spec=FLOW.to_json(), by="points")


async def _keep_little(trial: Trial) -> None:
    """Make two jobs that ended long ago, and have such jobs archived and deleted."""
    for is_needed in (False, True):
        old = system_chance().new_id()
        await trial.sql(old_jobs.BEGINS, old, IDLE)
        if is_needed:
            await trial.sql(old_jobs.IS_NEEDED, str(old))
        await trial.sql(old_jobs.ENDS, old, CANCELLED_BY)
        trial.old[str(old)] = is_needed
    trial.archive.mkdir()
    await trial.sql(old_jobs.KEEP_A_DAY, str(trial.archive))


async def _submit_bulk(trial: Trial) -> None:
    """Submit jobs that no pod runs, and the operation that cancels them in two slices."""
    for _ in range(IDLE_COUNT):
        await trial.submit(IDLE, {})
    request = BulkRequest(
        verb=BulkVerb.CANCEL, reason="no longer needed", jobs=f"type:{IDLE}", rate_per_s=4.0
    )
    submission = request.submission(system_chance().new_id())
    await jobs.submit(trial.db, [submission], by=CANCELLED_BY)


async def happen(trial: Trial, program: Program, pod: TrialPod) -> None:
    """Cause the event while the pod runs; ends at once when the pod dies. Raises `MissingError`."""
    match program.event:
        case "leave":
            # Claimed is not enough: the pod may not know of the job yet, and leave without it.
            await trial.until(lambda: running(trial.folder).exists() or pod.is_dead, "the job runs")
            pod.process.send_signal(signal.SIGTERM)
        case "request":
            await trial.until(lambda: pod.ready or pod.is_dead, "the API is served")
            await _request(trial, program, pod)
        case "budget":
            await trial.until_row(_WAITS_FOR_BUDGET, what="the job waits for its budget")
            await trial.sql(_ROOM)
        case "lost claim":
            row = await trial.until_row(_READY, what="the pod is ready")
            await _claim_for(trial, program, row["id"])
            await _break_a_claim(trial, pod)
        case "signal":
            job = await trial.until_row(_WAITS_FOR_SIGNAL, what="the job waits for a signal")
            await trial.sql("SELECT cortex.send_signal('go', job => $1)", job["id"])
        case "signals" | "callback" | "pause" | "rules" | "mend":
            await _happen_outside(trial, program)
        case "schedule":
            await trial.until_row(_DECLARED, what="the schedule is declared")
            await trial.sql(_DUE)
        case "none" | "cancel" | "message" | "retention" | "tick":
            pass


async def _happen_outside(trial: Trial, program: Program) -> None:
    """Cause an event that waits for no certain pod."""
    match program.event:
        case "signals":
            job = await trial.until_row(_RACES, what="the job waits for the first of several")
            await trial.sql(_SEND_TWO, job["job_id"])
        case "callback":
            await trial.until_row(_WAITS_FOR_SIGNAL, what="the job waits for its callback")
            path = address(trial.folder).read_text().removeprefix(URL)
            await _until_answered(trial, path, {"paid": True}, {})
        case "pause":
            await trial.until_row(_SET_ASIDE, what="the tasks are set aside")
            await trial.sql(_END_PAUSE)
        case "rules":
            await _submit_twice(trial, program)
        case "mend":
            failed = await trial.until_row(_FAILED, program.job_type, what="the job has failed")
            gate(trial.folder).touch()
            await retries.retry_now(
                trial.db,
                failed["id"],
                by=CANCELLED_BY,
                reason="mended",
                new_id=system_chance().new_id,
            )
        case _:
            raise ValueError(f"{program.event} is no such event")


async def happen_again(trial: Trial, program: Program, heir: TrialPod) -> None:
    """Repeat a request that was not answered, under its key."""
    if program.event == "request":
        await trial.until(lambda: heir.ready or heir.is_dead, "the API is served")
        await _request(trial, program, heir)


async def _claim_for(trial: Trial, program: Program, pod_id: UUID) -> None:
    """Give the pod a job without its knowledge, as when the reply to its claim is lost."""
    submission = Submission(id=system_chance().new_id(), type=program.job_type)

    async def work(db: Database) -> str:
        await jobs.submit(db, [submission], by="points")
        types = [program.job_type]
        await tasks.claim(db, pod_id=pod_id, types=types, limit=1)
        return str(submission.id)

    # In one transaction: the pod must not see it earlier.
    digest = request_digest(CLAIMING, {})
    await idempotency.guarded(trial.db, trial.key, operation=CLAIMING, digest=digest, work=work)


async def _break_a_claim(trial: Trial, pod: TrialPod) -> None:
    """Cut the pod off during a claim, so that it does not know what the claim returned.

    A pod that has just started scans for orphans by itself: it may find the job, and stop, earlier.
    """
    before = pod.log.count(CLAIM_FAILED)
    async with asyncio.timeout(WITHIN_S):
        connection = await asyncpg.connect(trial.owned)
        try:
            await connection.execute(_HOLD)
            while not (pod.is_hit or _has_noticed(pod, before)):
                await connection.execute(_CUT, OWNER)
                await asyncio.sleep(CUT_EVERY_S)
        finally:
            connection.terminate()


def _has_noticed(pod: TrialPod, failures: int) -> bool:
    log = pod.log
    return ORPHANS_FOUND in log or log.count(CLAIM_FAILED) > failures


async def _make_token(trial: Trial) -> str:
    chance = system_chance()
    token = token_text(chance.new_id().bytes + chance.new_id().bytes)
    await tokens.create(
        trial.db,
        token_id=chance.new_id(),
        name="points",
        digest=digest_of_token(token) or b"",
        roles=[Role.OPERATOR],
        expires_s=None,
        by=MAKER,
    )
    return token


async def _submit_twice(trial: Trial, program: Program) -> None:
    """Submit two jobs of each key, the second ones through the API; nothing begins meanwhile."""
    types = (program.job_type, *RULED)
    await trial.until_row(_HAVE_RULES, len(types), what="the rules are declared")
    payload = program.payload(trial.key, trial.folder)
    for each in types:
        await trial.submit(each, payload)
    for each in types:
        body = {"type": each, "payload": payload | {"number": LAST_NUMBER}}
        headers = {"Authorization": f"Bearer {trial.token}", "Idempotency-Key": each}
        await _until_answered(trial, "/v1/jobs", body, headers)
    await pauses.resume(trial.db, PAUSED, by=CANCELLED_BY)


async def _until_answered(
    trial: Trial, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
) -> None:
    """POST to whichever pod serves, until one has answered. Raises `MissingError`."""
    is_answered = False

    def serving() -> list[TrialPod]:
        return [pod for pod in trial.pods if pod.ready and not pod.is_hit]

    while not is_answered:
        await trial.until(serving, "a pod serves")
        request = _post(f"{(serving()[0].ready or {}).get('http')}{path}", body, headers)
        is_answered = await asyncio.to_thread(_ask, request)


async def _request(trial: Trial, program: Program, pod: TrialPod) -> None:
    """Submit the job through the API; the outcome may stay unknown."""
    ready = pod.ready or {}
    body = {"type": program.job_type, "payload": program.payload(trial.key, trial.folder)}
    headers = {"Authorization": f"Bearer {trial.token}", "Idempotency-Key": trial.key}
    await asyncio.to_thread(_ask, _post(f"{ready.get('http')}/v1/jobs", body, headers))


def _post(url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> urllib.request.Request:
    return urllib.request.Request(  # noqa: S310 -- loopback
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **headers},
        method="POST",
    )


def _ask(request: urllib.request.Request) -> bool:
    """Return whether there was an answer; it may have been committed all the same."""
    try:
        with urllib.request.urlopen(request, timeout=ANSWERED_WITHIN_S) as answer:  # noqa: S310
            answer.read()
    except (OSError, ValueError):
        return False
    return True
