"""The committer: fenced batches, written once whatever happens to the replies."""

from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from cortex.actors.phases import ShutdownLog
from cortex.actors.restart import RestartPolicy
from cortex.actors.supervisor import open_supervisor
from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import InvalidValueError, RejectedError, Trouble
from cortex.domain.job import Claim, Finish, JobStatus, Operation, Release, StepDone, StepKind
from cortex.durable.codec import StepInput
from cortex.durable.journal import Journal, Recorded
from cortex.durable.step_outcome import StepOutcome
from cortex.durable.tally import Tally
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Profile
from cortex.postgres.migrate import migrate
from cortex.runtime.commit.committer import (
    MAILBOX_BOUND,
    STATEMENT_BYTES_MAX,
    Committer,
    CommitterStopped,
)
from cortex.store import effects, jobs, steps, tasks
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.holder import holding_task
from tests.support.records.effects import an_intent
from tests.support.records.factories import Bench, a_lease
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import assert_one_truth, job_row, new_id, seeded_random
from tests.support.records.rows import steps as steps_of
from tests.support.servers.postgres import run_asyncio, sql
from tests.support.servers.private_postgres import PrivatePostgres

DIGEST = b"digest"


def a_step(claim: Claim, **fields: Any) -> StepDone:
    defaults: dict[str, Any] = {
        "lease": claim.lease,
        "kind": StepKind.STEP,
        "key": "step",
        "digest": DIGEST,
        "duration_s": 0.0,
        "output": "null",
        "ended_at": 0.0,
        "tally": Tally(()),
    }
    return StepDone(**defaults | fields)


def an_end(claim: Claim, **fields: Any) -> Finish:
    defaults: dict[str, Any] = {"status": JobStatus.COMPLETED, "result": "1"}
    return Finish(**{"lease": claim.lease} | defaults | fields)


async def outcome_of(call: Any) -> BaseException | None:
    """The error that a call raised, or None, so that outcomes can be compared."""
    try:
        await call
    except (LeaseLost, Exception) as error:  # noqa: BLE001
        return error
    return None


async def record_all(bench: Bench, operations: list[Operation]) -> list[BaseException | None]:
    """Send operations so that the committer finds them all in its mailbox at once."""
    outcomes: list[BaseException | None] = [None] * len(operations)

    async def send(number: int, operation: Operation) -> None:
        outcomes[number] = await outcome_of(bench.committer.record(operation))

    async with trio.open_nursery() as nursery:
        for number, operation in enumerate(operations):
            nursery.start_soon(send, number, operation)
        await wait_all_tasks_blocked()
        await bench.start(bench.committer)
    return outcomes


def journal_of(claim: Claim, committer: Committer, known: Any = ()) -> Journal:
    return Journal(claim.lease, committer, Recorded(steps=known))


async def do_step(journal: Journal, name: str, value: Any = None) -> Any:
    async def run() -> StepOutcome:
        return StepOutcome(value=value)

    return await journal.once(
        StepKind.STEP, journal.key(name), given=StepInput(DIGEST, b"[]"), run=run
    )


def statement_count(dsn: str) -> int:
    """Each statement stamps its steps with an instant of its own."""
    query = "SELECT count(DISTINCT finished_at) AS n FROM cortex.job_step"
    return int(sql(dsn, query)[0]["n"])


# --- batches


async def test_many_operations_take_few_statements(bench: Bench, database: str) -> None:
    claims = await bench.claimed(400)
    outcomes = await record_all(bench, [a_step(claim) for claim in claims])
    assert outcomes == [None] * 400
    assert statement_count(database) <= 2
    assert_one_truth(database)


async def test_concurrent_steps_of_one_job_are_all_written_in_order(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed()
    journal = journal_of(claim, bench.committer)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(do_step, journal, f"step {number}")
        await wait_all_tasks_blocked()
        await bench.start(bench.committer)
    assert [seq for seq, *_ in steps_of(database, claim.lease.job_id)] == list(range(1, 21))
    assert_one_truth(database)


async def test_a_jobs_end_is_written_after_its_steps(bench: Bench, database: str) -> None:
    (claim,) = await bench.claimed()
    assert await record_all(bench, [a_step(claim), an_end(claim)]) == [None, None]
    assert job_row(database, claim.lease.job_id)["status"] == "COMPLETED"
    assert_one_truth(database)


async def test_large_outputs_do_not_make_a_statement_that_never_ends(
    bench: Bench, database: str
) -> None:
    claims = await bench.claimed(10)
    output = '"' + "x" * (STATEMENT_BYTES_MAX // 4) + '"'
    outcomes = await record_all(bench, [a_step(claim, output=output) for claim in claims])
    assert outcomes == [None] * 10
    assert statement_count(database) == 4  # three fit, four do not


# --- the fence


@pytest.mark.smoke("Each step is recorded once")
async def test_only_the_attempt_that_owns_its_job_can_write(bench: Bench, database: str) -> None:
    mine, stale, stolen, gone = await bench.claimed(4)
    sql(database, "UPDATE cortex_worker.task SET attempt = 2 WHERE job_id = $1", stale.lease.job_id)
    sql(database, "UPDATE cortex_worker.task SET attempt = 2 WHERE job_id = $1", stale.lease.job_id)
    thief = new_id()
    sql(
        database,
        "UPDATE cortex_worker.task SET locked_by = $1 WHERE job_id = $2",
        thief,
        stolen.lease.job_id,
    )
    query = "UPDATE cortex_worker.task SET locked_by = $1 WHERE job_id = $2"
    sql(database, query, thief, stolen.lease.job_id)
    sql(database, "DELETE FROM cortex_worker.task WHERE job_id = $1", gone.lease.job_id)
    await bench.port(tasks.promote)
    before = [job_row(database, c.lease.job_id) for c in (stale, stolen)]

    for make in (a_step, an_end, partial(Release, outcome="failed")):
        operations: list[Operation] = [
            make(lease=c.lease) if isinstance(make, partial) else make(c) for c in (stale, stolen)
        ]
        bench.committer = Committer(bench.port, pod_id=bench.pod.id, rng=bench.rng)
        outcomes = await record_all(bench, operations)
        assert [type(outcome) for outcome in outcomes] == [LeaseLost, LeaseLost]
    after = [job_row(database, c.lease.job_id) for c in (stale, stolen)]
    assert [row["updated_at"] for row in after] == [row["updated_at"] for row in before]

    bench.committer = Committer(bench.port, pod_id=bench.pod.id, rng=bench.rng)
    ends: list[Operation] = [an_end(mine), an_end(gone), a_step(stale)]
    outcomes = await record_all(bench, ends)
    assert [type(outcome) for outcome in outcomes] == [type(None), LeaseLost, LeaseLost]


# --- values that Postgres refuses


@pytest.mark.parametrize(
    "poison, family",
    [
        ({"output": "{"}, InvalidValueError),
        ({"usage": '"\\u0000"'}, InvalidValueError),
        ({"key": ""}, RejectedError),
        ({"cost_usd": 10**12}, InvalidValueError),
    ],
    ids=["no JSON", "NUL", "no key", "too dear"],
)
async def test_a_poisonous_value_fails_its_own_operation_only(
    bench: Bench, database: str, poison: dict[str, Any], family: type[Exception]
) -> None:
    claims = await bench.claimed(20)
    operations: list[Operation] = [a_step(claim) for claim in claims]
    operations[7] = a_step(claims[7], **poison)
    outcomes = await record_all(bench, operations)
    assert type(outcomes[7]) is family
    assert [outcome for outcome in outcomes if outcome is not None] == [outcomes[7]]
    assert_one_truth(database)


async def test_refused_step_leaves_no_gap_among_concurrent_steps(
    bench: Bench, database: str
) -> None:
    """With a gap the next attempt would number over a step that is there, and lose its own."""
    (claim,) = await bench.claimed()
    journal = journal_of(claim, bench.committer)
    # What Postgres refuses although it is JSON: a number beyond its own.
    refused: list[BaseException | None] = []

    async def do_poison() -> None:
        poisoned = a_step(
            claim,
            key="poison",
            output="{",
            tally=journal._tally,
        )
        refused.append(await outcome_of(bench.committer.record(poisoned)))

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(do_step, journal, f"before {number}")
        nursery.start_soon(do_poison)
        await wait_all_tasks_blocked()
        await bench.start(bench.committer)
    await do_step(journal, "after")
    assert [type(error) for error in refused] == [InvalidValueError]
    assert [seq for seq, *_ in steps_of(database, claim.lease.job_id)] == [1, 2, 3, 4]
    assert_one_truth(database)


# --- outcomes that are not known


FAULTS: list[Callable[[FaultyPort, Any], None]] = [
    FaultyPort.lose_reply,
    FaultyPort.lose_request,
    FaultyPort.refuse,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize(
    "method", [steps.commit, jobs.finish, tasks.release], ids=lambda m: m.__name__
)
async def test_each_operation_is_applied_once_whatever_reply_was_lost(
    bench: Bench, database: str, method: Callable[..., Any], fault: Callable[..., None]
) -> None:
    claims = await bench.claimed(3)
    operations: list[Operation] = []
    for claim in claims:
        match method.__name__:
            case "commit":
                operations.append(a_step(claim))
            case "finish":
                operations.append(an_end(claim))
            case _:
                operations.append(Release(lease=claim.lease, outcome="failed", delay_s=60.0))
    fault(bench.port, method)
    fault(bench.port, method)
    assert await record_all(bench, operations) == [None] * 3
    assert bench.port.faults_left == 0
    assert_one_truth(database)
    for claim in claims:
        row = job_row(database, claim.lease.job_id)
        if method is steps.commit:
            assert row["checkpoint"] == {"seq": 1, "kind": "step", "key": "step"}
        elif method is jobs.finish:
            assert (row["status"], row["result"]) == ("COMPLETED", 1)
        else:
            assert (row["task_state"], row["attempts_spent"]) == ("LATER", 1)


@pytest.mark.parametrize("make", [a_step, an_end], ids=["step", "end"])
async def test_a_job_that_was_lost_meanwhile_is_known_to_be_lost(
    bench: Bench, database: str, make: Callable[[Claim], Operation]
) -> None:
    (claim,) = await bench.claimed()
    bench.port.lose_request(steps.commit)
    bench.port.lose_request(jobs.finish)
    sql(database, "UPDATE cortex_worker.task SET attempt = 2")
    sql(database, "UPDATE cortex_worker.task SET attempt = 2")
    (outcome,) = await record_all(bench, [make(claim)])
    assert type(outcome) is LeaseLost


async def test_end_that_differs_in_the_record_raises_lease_lost(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed()
    cancelled = an_end(claim, status=JobStatus.CANCELLED, result=None)
    await bench.port(jobs.finish, pod_id=bench.pod.id, operations=[cancelled])
    bench.port.lose_request(jobs.finish)
    (outcome,) = await record_all(bench, [an_end(claim)])
    assert type(outcome) is LeaseLost


async def test_two_hundred_jobs_commit_each_step_once_while_sessions_are_killed(
    bench: Bench, database: str
) -> None:
    claims = await bench.claimed(200)
    per_job, kills = 4, 0
    await bench.start(bench.committer)
    ended: list[Any] = []

    async def work(claim: Claim) -> None:
        journal = journal_of(claim, bench.committer)
        await do_step(journal, "first")
        async with trio.open_nursery() as nursery:
            for number in range(per_job - 1):
                nursery.start_soon(do_step, journal, f"at once {number}")
        ended.append(await outcome_of(bench.committer.record(an_end(claim))))

    async def kill_now_and_then() -> None:
        """The progress needed between the kills, so that work continues."""
        nonlocal kills
        for goal in range(40, 200 * per_job, 40):
            await eventually_async(partial(has_steps, database, goal), what="progress")
            await trio.to_thread.run_sync(
                sql,
                database,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'cortex'",
            )
            kills += 1

    with trio.fail_after(WITHIN_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_now_and_then)
            for claim in claims:
                nursery.start_soon(work, claim)
    assert kills > 10
    assert ended == [None] * 200
    assert count_steps(database) == 200 * per_job
    assert_one_truth(database)


def has_steps(dsn: str, goal: int) -> bool:
    return count_steps(dsn) >= goal


def count_steps(dsn: str) -> int:
    return int(sql(dsn, "SELECT count(*) AS n FROM cortex.job_step")[0]["n"])


async def test_an_outage_of_the_server_is_waited_out(
    private_postgres: PrivatePostgres, nursery: trio.Nursery
) -> None:
    run_asyncio(lambda: migrate(private_postgres.dsn))
    profile = Profile(dsn=private_postgres.dsn, hot_path=True)
    async with open_port(profile, rng=seeded_random()) as port, trio.open_nursery() as inner:
        bench = Bench(FaultyPort(port), inner)
        (claim,) = await bench.claimed()
        await trio.to_thread.run_sync(private_postgres.stop_immediate)
        outcomes: list[BaseException | None] = []

        async def end() -> None:
            outcomes.append(await outcome_of(bench.committer.record(an_end(claim))))

        await bench.start(bench.committer)
        inner.start_soon(end)
        await trio.to_thread.run_sync(private_postgres.start)
        await eventually_async(lambda: outcomes, what="the end is written")
        assert outcomes == [None]
        inner.cancel_scope.cancel()
    assert job_row(private_postgres.dsn, claim.lease.job_id)["status"] == "COMPLETED"


# --- rows locked by another session


@pytest.mark.parametrize("table", ["cortex.job_record", "cortex_worker.task"])
async def test_locked_job_does_not_hold_up_the_others(
    bench: Bench, database: str, table: str
) -> None:
    """Whatever is to be written of it comes in its order, once the row is free."""
    held, *others = await bench.claimed(4)
    journal, outcomes = journal_of(held, bench.committer), list[BaseException | None]()

    async def work() -> None:
        async with trio.open_nursery() as steps_:
            for number in range(3):
                steps_.start_soon(do_step, journal, f"step {number}")
        outcomes.append(await outcome_of(bench.committer.record(an_end(held))))

    with holding_task(database, held.lease.job_id, table=table):
        bench.jobs.start_soon(work)
        ends: list[Operation] = [an_end(claim) for claim in others]
        assert await record_all(bench, ends) == [None] * 3
        assert not bench.committer.is_held_up
        assert not outcomes
        later = await bench.claimed()
        assert await outcome_of(bench.committer.record(an_end(later[0]))) is None
        assert not outcomes
    await eventually_async(lambda: outcomes, what="its end is written")
    assert outcomes == [None]
    assert [seq for seq, *_ in steps_of(database, held.lease.job_id)] == [1, 2, 3]
    assert_one_truth(database)


async def test_restarted_committer_keeps_locked_operations(bench: Bench, database: str) -> None:
    held, other = await bench.claimed(2)
    outcomes: list[BaseException | None] = []

    async def end() -> None:
        outcomes.append(await outcome_of(bench.committer.record(an_end(held))))

    async with open_supervisor(
        "writers", rng=bench.rng, restart=RestartPolicy(), log=ShutdownLog()
    ) as writers:
        await writers.start(bench.committer)
        with holding_task(database, held.lease.job_id, table="cortex.job_record"):
            bench.jobs.start_soon(end)
            await eventually_async(lambda: bench.committer._blocked, what="it is locked out")
            bench.port.crash(jobs.finish)
            lost = await outcome_of(bench.committer.record(an_end(other)))
            assert type(lost) is CommitterStopped
            assert not outcomes
        await eventually_async(lambda: outcomes, what="its end is written")
        assert outcomes == [None]
        bench.committer.close()


# --- intents


class HoldingPort(FaultyPort):
    """Keeps the answers to intents until they are let go."""

    def __init__(self, port: Port) -> None:
        super().__init__(port)
        self.written = trio.Event()
        self.answers = trio.Event()

    async def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        answer = await super().__call__(method, *args, **kwargs)
        if method is effects.intend:
            self.written.set()
            await self.answers.wait()
        return answer


@pytest.mark.parametrize("is_sure", [False, True])
async def test_effect_granted_to_a_cancelled_sender_is_failed_unless_sure(
    bench: Bench, database: str, *, is_sure: bool
) -> None:
    """Nobody is to be asked about it, unless the sender's own claim is all that let it through."""
    (claim,) = await bench.claimed()
    port = HoldingPort(bench.port)
    committer = Committer(port, pod_id=bench.pod.id, rng=bench.rng)
    await bench.start(committer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(committer.intend, an_intent(claim, is_sure=is_sure))
        await port.written.wait()
        nursery.cancel_scope.cancel()
    port.answers.set()
    await committer.record(an_end(claim, status=JobStatus.CANCELLED, result=None))
    (effect,) = sql(database, "SELECT status, why FROM cortex.effect")
    assert effect["status"] == ("UNKNOWN" if is_sure else "FAILED"), effect["why"]


# --- its end


async def test_closing_writes_accepted_operations_and_refuses_new_ones(
    bench: Bench, database: str
) -> None:
    claims = await bench.claimed(5)
    outcomes: list[BaseException | None] = []

    async def end(claim: Claim) -> None:
        outcomes.append(await outcome_of(bench.committer.record(an_end(claim))))

    async with trio.open_nursery() as nursery:
        for claim in claims[:4]:
            nursery.start_soon(end, claim)
        await wait_all_tasks_blocked()
        bench.committer.close()
        with pytest.raises(LeaseLost):
            await bench.committer.record(an_end(claims[4]))
        with trio.fail_after(WITHIN_S):
            await bench.committer.run()  # and then it is finished
    assert outcomes == [None] * 4
    counts = await bench.port(jobs.counts, [claim.lease.job_id for claim in claims])
    assert counts == {JobStatus.COMPLETED: 4, JobStatus.RUNNING: 1}


@pytest.mark.parametrize("is_leaving", [False, True])
async def test_a_full_disk_holds_up_claims_and_costs_no_job(
    bench: Bench, database: str, log_lines: list[MutableMapping[str, Any]], is_leaving: bool
) -> None:
    """It is asked seldom, but the pause of a pod that leaves is short."""
    (claim,) = await bench.claimed()
    await bench.submit()
    dispatcher = bench.dispatcher()
    tries = 2 if is_leaving else 1
    for _ in range(tries):
        bench.port.refuse(jobs.finish, Trouble.DISK_FULL)
    await bench.start(bench.committer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.committer.record, an_end(claim))
        await wait_all_tasks_blocked()
        assert bench.committer.is_held_up
        assert not dispatcher.may_claim
        await dispatcher.tick()
        assert not len(bench.running)
        if is_leaving:
            bench.committer.close()
    assert dispatcher.may_claim
    assert not bench.port.faults_left
    row = job_row(database, claim.lease.job_id)
    assert (row["status"], row["attempt"], row["retry_count"]) == ("COMPLETED", 1, 0)
    text = [line["log_level"] for line in log_lines if line["event"] == "commit delayed"]
    assert text == ["warning", "debug"][:tries]


async def test_committer_stopped_in_an_outage_fails_its_senders(
    bench: Bench, database: str
) -> None:
    (claim,) = await bench.claimed()
    for _ in range(50):
        bench.port.refuse(jobs.finish)
    outcomes: list[BaseException | None] = []

    async def end() -> None:
        outcomes.append(await outcome_of(bench.committer.record(an_end(claim))))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        async with trio.open_nursery() as committing:
            await committing.start(bench.committer.run)
            await eventually_async(lambda: bench.port.faults_left < 50, what="it has tried")
            committing.cancel_scope.cancel()
    assert [type(outcome) for outcome in outcomes] == [CommitterStopped]
    assert job_row(database, claim.lease.job_id)["status"] == "RUNNING"


async def test_senders_wait_while_the_mailbox_is_full(bench: Bench) -> None:
    (claim,) = await bench.claimed()
    waiting = MAILBOX_BOUND + 50
    operation = an_end(claim, lease=a_lease())  # refused: cheap to write
    outcomes: list[BaseException | None] = []

    async def send() -> None:
        outcomes.append(await outcome_of(bench.committer.record(operation)))

    async with trio.open_nursery() as nursery:
        for _ in range(waiting):
            nursery.start_soon(send)
        await wait_all_tasks_blocked()
        assert len(bench.committer._mailbox) == MAILBOX_BOUND
        await bench.start(bench.committer)
    assert len(outcomes) == waiting
