"""Shutdown: on time whatever happens, with a distinct exit code, and nothing lost."""

import json
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.pods import Pod, Pods, end_of_pod, until_pods
from tests.support.records.rows import (
    assert_one_truth,
    attempts,
    job_row,
    new_id,
    steps,
    submit,
    submit_many,
    until_job,
    until_jobs,
    until_status,
)
from tests.support.scripted_agent import ScriptedAgent
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres
from tests.support.servers.proxy import proxy

DRAINED, CUT_OFF = 0, 1
CLOSE_S = 4.0
DEADMAN_S = 2.0
"""What the process gets beyond its own deadlines before it is ended hard, at most."""
SLACK_S = 10.0
"""For a machine that is busy with other tests."""
FOUND_WITHIN_S = 20.0
"""A second on a machine that is not; far less than any poll."""


CONNECT_BOUND_S = 10.0
"""How long a pod would wait for a server that does not answer."""


def phase_ends(pod: Pod) -> list[dict[str, Any]]:
    """The ends of the phases, from the pod's log."""
    return [json.loads(line) for line in pod.log.splitlines() if '"phase ended"' in line]


def begin(pods: Pods, gate: Path) -> UUID:
    """A job that has one step and waits for the gate."""
    job_id = submit(pods.dsn, "gated", {"gate": str(gate)})
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    return job_id


def assert_handed_back(dsn: str, job_id: UUID, *, to: Pod) -> None:
    """The job runs on the other pod, within a second, as if the first attempt had not been."""
    until_job(dsn, job_id, lambda row: row["pod"] == to.name, f"on pod {to.name}")
    row = job_row(dsn, job_id)
    assert (row["attempt"], row["attempts_spent"], row["retry_count"]) == (2, 1, 0)
    assert attempts(dsn, job_id) == [(1, "handed_back")]
    (waited,) = sql(
        dsn,
        "SELECT extract(epoch FROM t.locked_at - a.ended_at)::float8 AS s "
        "FROM cortex_worker.task t JOIN cortex.job_attempt a USING (job_id) WHERE job_id = $1",
        job_id,
    )
    assert 0 <= waited["s"] < FOUND_WITHIN_S


def ends(pod: Pod, *, drain_s: float, close_s: float = CLOSE_S) -> int:
    """The exit code, and that it came by the deadline that was set."""
    return pod.exit_code(within_s=drain_s + close_s + DEADMAN_S + SLACK_S)


@pytest.mark.smoke
def test_a_drain_lets_jobs_end_and_takes_no_more(pods: Pods, gate: Path) -> None:
    pod = pods.start(**end_of_pod(30))
    job_id = begin(pods, gate)
    pod.signal(signal.SIGTERM)
    until_pods(pods.dsn, DRAINING=1)
    late = submit(pods.dsn, "noop")
    gate.touch()
    assert ends(pod, drain_s=0) == DRAINED
    row = job_row(pods.dsn, job_id)
    assert (row["status"], row["attempt"]) == ("COMPLETED", 1)
    assert job_row(pods.dsn, late)["status"] == "PENDING"
    until_pods(pods.dsn, STOPPED=1)
    assert_one_truth(pods.dsn)


@pytest.mark.smoke(case="SIGTERM")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: str(n.name))
def test_unfinished_job_is_handed_back_at_the_deadline(
    pods: Pods, gate: Path, number: signal.Signals
) -> None:
    leaving = pods.start(**end_of_pod(0.5))
    job_id = begin(pods, gate)
    other = pods.start()
    leaving.signal(number)
    assert ends(leaving, drain_s=0.5) == DRAINED
    assert_handed_back(pods.dsn, job_id, to=other)
    gate.touch()
    assert until_status(pods.dsn, job_id, "COMPLETED")["result"] == 2
    assert steps(pods.dsn, job_id) == [(1, 1, "step", "begun")], "its step is not done again"
    assert_one_truth(pods.dsn)


@pytest.mark.smoke(case="SIGTERM-SIGTERM")
@pytest.mark.parametrize("first, second", [("SIGTERM", "SIGTERM"), ("SIGTERM", "SIGINT")])
def test_a_second_signal_hands_everything_back_at_once(
    pods: Pods, gate: Path, first: str, second: str
) -> None:
    leaving = pods.start(**end_of_pod(60))
    job_id = begin(pods, gate)
    other = pods.start()
    leaving.signal(signal.Signals[first])
    until_pods(pods.dsn, DRAINING=1)
    leaving.signal(signal.Signals[second])
    assert ends(leaving, drain_s=0) == 128 + signal.Signals[second]
    assert_handed_back(pods.dsn, job_id, to=other)


def test_a_model_call_is_cut_and_asked_again_elsewhere(pods: Pods, agent: ScriptedAgent) -> None:
    turn = {"text": "a long answer", "fault": "stall", "fault_after": 1, "times": 1}
    agent.apply()
    leaving = pods.start(**end_of_pod(0.2))
    job_id = agent.submit(turn)
    eventually(lambda: agent.is_streaming(turn=0), what="the model call streams")
    other = pods.start()
    assert leaving.stop() == DRAINED
    assert until_status(pods.dsn, job_id, "COMPLETED")["pod"] == other.name
    assert steps(pods.dsn, job_id) == [(1, 2, "model", "1 model")]
    assert_one_truth(pods.dsn)


def test_stubborn_threads_and_children_do_not_delay_shutdown(
    pods: Pods, agent: ScriptedAgent, gate: Path
) -> None:
    # Within its confinement it writes nothing outside and sees no process id that is ours.
    mark = f"mark-{new_id()}"
    trap = f"trap '' TERM INT HUP; while :; do sleep 0.1; done; : {mark}"
    agent.apply("wait_in_thread", "run_command")
    leaving = pods.start(**end_of_pod(0.2, close_s=8))
    job_id = agent.submit(
        {
            "tools": [
                {"name": "wait_in_thread", "input": {"gate": str(gate)}},
                {"name": "run_command", "input": {"argv": ["sh", "-c", trap]}},
            ]
        },
    )
    eventually(lambda: running(mark), what="the child runs")
    leaving.signal(signal.SIGTERM)
    assert ends(leaving, drain_s=0.2, close_s=8) == DRAINED
    eventually(lambda: not running(mark), what="the child is gone")
    row = job_row(pods.dsn, job_id)
    assert (row["status"], row["task_state"], row["attempts_spent"]) == ("RUNNING", "READY", 0)
    assert attempts(pods.dsn, job_id) == [(1, "handed_back")]


def running(mark: str) -> list[int]:
    """Which shells are there that were started with this in their command; no zombies."""
    return [
        process.pid
        for process in psutil.process_iter()
        if mark in " ".join(command_of(process)[:3]) and "sh" in command_of(process)[:1]
    ]


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize("how", ["deaf", "stubborn"])
def test_a_job_is_handed_back_without_its_deaf_handler(pods: Pods, how: str) -> None:
    """`deaf` shields itself from cancellation, `stubborn` swallows it."""
    leaving = pods.start(**end_of_pod(0.2, close_s=4))
    job_id = submit(pods.dsn, "unstoppable", {"how": how})
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    other = pods.start(poll_s=30)
    leaving.signal(signal.SIGTERM)
    assert ends(leaving, drain_s=0.2, close_s=4) == DRAINED
    assert_handed_back(pods.dsn, job_id, to=other)
    other.kill()


def test_a_handler_that_holds_the_event_loop_is_ended_hard(pods: Pods) -> None:
    leaving = pods.start(**end_of_pod(0.2, close_s=0.5))
    job_id = submit(pods.dsn, "unstoppable", {"how": "hog"})
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    leaving.signal(signal.SIGTERM)
    assert ends(leaving, drain_s=0.2, close_s=0.5) == CUT_OFF
    other = pods.start()
    until_job(pods.dsn, job_id, lambda row: row["pod"] == other.name, "taken over")
    other.kill()


def test_a_job_that_shields_a_step_of_its_cleanup_is_handed_back(pods: Pods, gate: Path) -> None:
    leaving = pods.start(**end_of_pod(0.2, close_s=30))
    job_id = submit(pods.dsn, "cleans_up", {"gate": str(gate)})
    until_job(pods.dsn, job_id, lambda row: row["checkpoint"].get("seq") == 1, "begun")
    other = pods.start(poll_s=30)
    leaving.signal(signal.SIGTERM)
    assert ends(leaving, drain_s=0.2, close_s=4) == DRAINED
    assert_handed_back(pods.dsn, job_id, to=other)
    gate.touch()
    assert until_status(pods.dsn, job_id, "COMPLETED")["result"] == 2


JOBS_TO_FILL = 2_700
"""More than the committer takes: one batch under way and a full mailbox."""


def test_blocked_committer_does_not_delay_shutdown(pods: Pods) -> None:
    async def leave_while_nothing_is_committed() -> None:
        holder = await asyncpg.connect(pods.dsn)
        async with holder.transaction():
            await holder.execute("LOCK TABLE cortex.job_step")
            submit_many(pods.dsn, JOBS_TO_FILL, "steps", {"count": 1})
            leaving = pods.start(slots=3_000, **end_of_pod(0.2, close_s=1))
            await until_row(
                holder,
                "SELECT FROM cortex.job HAVING count(*) FILTER (WHERE status = 'RUNNING') = "
                f"{JOBS_TO_FILL}",
            )
            leaving.signal(signal.SIGTERM)
            assert ends(leaving, drain_s=0.2, close_s=1) == CUT_OFF
        await holder.close()

    run_asyncio(leave_while_nothing_is_committed)
    pods.start()
    until_jobs(pods.dsn, "status = 'COMPLETED'", count=JOBS_TO_FILL, within_s=90)
    assert_one_truth(pods.dsn)


# --- while the database is away


def test_leaving_while_the_database_is_stopped(
    private_postgres: PrivatePostgres, tmp_path: Path, gate: Path
) -> None:
    pods = Pods(private_postgres.dsn, tmp_path)
    try:
        leaving = pods.start(**end_of_pod(0.2, close_s=1))
        job_id = begin(pods, gate)
        private_postgres.stop()
        leaving.signal(signal.SIGTERM)
        assert ends(leaving, drain_s=0.2, close_s=1) == CUT_OFF
        private_postgres.start()
        pods.start()
        gate.touch()
        assert until_status(pods.dsn, job_id, "COMPLETED")["result"] == 2
        assert_one_truth(pods.dsn)
    finally:
        pods.close()


def test_leaving_into_a_black_hole(database: str, tmp_path: Path, gate: Path) -> None:
    with proxy(database) as network:
        pods = Pods(network.dsn, tmp_path)
        try:
            leaving = pods.start(**end_of_pod(0.2, close_s=1))
            job_id = begin(pods, gate)
            network.blackhole()
            leaving.signal(signal.SIGTERM)
            assert ends(leaving, drain_s=0.2, close_s=1) == CUT_OFF
            network.heal()
            pods.start()
            gate.touch()
            assert until_status(database, job_id, "COMPLETED")["result"] == 2
            assert_one_truth(database)
        finally:
            pods.close()


def test_pod_without_jobs_signs_off_without_waiting_for_the_database(
    database: str, tmp_path: Path
) -> None:
    """Its sessions are gone, and a request for a new one gets no answer: nothing was sent."""
    with proxy(database) as network, closing(Pods(network.dsn, tmp_path)) as pods:
        leaving = pods.start(**end_of_pod(60))
        network.blackhole()
        network.reset()
        eventually(lambda: "database trouble" in leaving.log, what="it has lost its sessions")
        leaving.signal(signal.SIGTERM)
        assert ends(leaving, drain_s=0) == DRAINED
        took_s = [line["took_s"] for line in phase_ends(leaving)]
        assert sum(took_s) < CONNECT_BOUND_S / 2, "it does not wait for a connection"


def test_leaving_while_the_database_refuses(database: str, tmp_path: Path, gate: Path) -> None:
    with proxy(database) as network, closing(Pods(network.dsn, tmp_path)) as pods:
        leaving = pods.start(**end_of_pod(0.2, close_s=2))
        job_id = begin(pods, gate)
        network.refuse()
        leaving.signal(signal.SIGTERM)
        assert ends(leaving, drain_s=0.2, close_s=2) == CUT_OFF
        assert "exiting hard" not in leaving.log, "it went out by itself"
        assert "database recovered" not in leaving.log
        (output,) = [line for line in leaving.log.splitlines() if '"jobs not handed back"' in line]
        assert (json.loads(output)["jobs"], json.loads(output)["first"]) == (1, [str(job_id)])
        network.heal()
        other = pods.start()
        gate.touch()
        assert until_status(database, job_id, "COMPLETED")["pod"] == other.name
        assert_one_truth(database)


# --- while it starts


HELD_UP = {
    "another pod's migration": "SELECT pg_advisory_lock(hashtextextended('cortex.migration', 0))",
    "a statement of its own": "BEGIN; CREATE SCHEMA cortex",
}


@pytest.mark.parametrize("by", HELD_UP)
def test_signal_during_the_migration_ends_the_start(
    empty_database: str, tmp_path: Path, by: str
) -> None:
    pods = Pods(empty_database, tmp_path)

    async def leave_while_locked() -> None:
        holder, looker = [await asyncpg.connect(empty_database) for _ in range(2)]
        await holder.execute(HELD_UP[by])
        starting = pods.launch()
        waiting = "datname = current_database() AND wait_event_type = 'Lock'"
        await until_row(looker, f"SELECT FROM pg_stat_activity WHERE {waiting}")
        starting.signal(signal.SIGTERM)
        assert ends(starting, drain_s=0, close_s=0) == 128 + signal.SIGTERM
        for each in (holder, looker):
            await each.close()

    try:
        run_asyncio(leave_while_locked)
        assert pods.start().stop() == DRAINED
    finally:
        pods.close()


async def until_row(connection: "asyncpg.Connection[asyncpg.Record]", query: str) -> None:
    """Ask until there is a row."""
    give_up_at = time.monotonic() + 60
    while not await connection.fetch(query):
        assert time.monotonic() < give_up_at, query


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: str(n.name))
def test_signal_ends_a_start_that_waits_for_a_silent_database(
    database: str, tmp_path: Path, number: signal.Signals
) -> None:
    with proxy(database) as network:
        network.blackhole()
        pods = Pods(network.dsn, tmp_path)
        try:
            starting = pods.launch()
            eventually(lambda: network.connection_count, what="it has connected")
            starting.signal(number)
            assert ends(starting, drain_s=0, close_s=0) == 128 + number
        finally:
            pods.close()


MOMENTS = {
    "begun": "SELECT 1",
    "connected": "SELECT FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "registered": "SELECT FROM cortex.pod WHERE state = 'READY'",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_signal_at_any_moment_of_the_start_ends_the_pod(pods: Pods, moment: str) -> None:
    """Early ones end the interpreter, late ones a ready pod: it ends in time, leaving nothing."""
    pods.is_forked = False
    starting = pods.launch()
    eventually(lambda: sql(pods.dsn, MOMENTS[moment]), what=f"it has {moment}")
    starting.signal(signal.SIGTERM)
    assert ends(starting, drain_s=0) in {DRAINED, 128 + signal.SIGTERM, -signal.SIGTERM}
    until_pods(pods.dsn, READY=0, DRAINING=0)
