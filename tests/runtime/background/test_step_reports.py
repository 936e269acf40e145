"""The running step has a name: people see which step of a job takes long, and since when."""

import pytest
import trio

from cortex import Context
from cortex.actors.runner import TickBudget
from cortex.domain.job import StepKind
from cortex.durable.progress import Progress
from cortex.runtime.maintenance import step_reports
from cortex.runtime.maintenance.step_reports import StepReports
from cortex.runtime.running import Stop
from cortex.store import job_screen, jobs, why
from cortex.view.why import why as explain
from tests.support.eventually import eventually_async
from tests.support.holder import holding_task
from tests.support.records.factories import Bench
from tests.support.records.rows import job_row
from tests.support.servers.postgres import sql


def reports_of(bench: Bench) -> StepReports:
    return StepReports(bench.port, pod_id=bench.pod.id, running=bench.running, rng=bench.rng)


def written(dsn: str) -> str:
    """The version of the task's row: another one after each write."""
    return str(sql(dsn, "SELECT xmin::text AS xmin FROM cortex_worker.task")[0]["xmin"])


def shown_key(dsn: str) -> str | None:
    return sql(dsn, "SELECT running->>'key' AS key FROM cortex_worker.task")[0]["key"]  # type: ignore[no-any-return]


async def test_the_longest_of_concurrent_steps_is_named_until_it_is_recorded(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_reports, "LONG_S", 0.0)
    begun, slow, quick = trio.Event(), trio.Event(), trio.Event()

    async def fetch() -> None:
        begun.set()
        await slow.wait()

    async def work(ctx: Context) -> None:
        async def count() -> None:
            await begun.wait()
            await ctx.step("count", quick.wait)

        await ctx.gather(ctx.step("fetch all", fetch), count())
        await trio.sleep_forever()

    bench.handle(work)
    await bench.start_committing()
    (claim,) = await bench.claimed()
    job, runner = bench.run(claim), reports_of(bench)
    job_id = claim.lease.job_id

    def under_way() -> Progress | None:
        found = job.progress is not None and job.progress.longest
        return job.progress if found and found[1] == 1 else None

    await eventually_async(under_way, what="both steps run")
    progress = job.progress
    assert progress is not None
    fetching = progress.under_way("fetch all")
    await runner.tick(TickBudget())
    before = written(database)
    await runner.tick(TickBudget())
    assert written(database) == before, "what has not changed is not written again"
    shown = (await bench.port(jobs.show, job_id)).running_step
    assert shown is not None
    assert (shown.key, shown.kind, shown.more) == ("fetch all", "step", 1)
    look = await bench.port(job_screen.look, job_id, after=None, limit=9)
    assert look.job.running_step == shown

    facts = await bench.port(why.facts_of, job_id)
    assert facts.running_step == shown
    quick.set()
    # The record has a step before its pod gets the answer.
    await eventually_async(lambda: progress.longest == (fetching, 0), what="one step runs")
    assert job_row(database, job_id)["checkpoint"] != {}
    await runner.tick(TickBudget())
    assert (await bench.port(jobs.show, job_id)).running_step.more == 0
    slow.set()
    await eventually_async(lambda: progress.longest is None, what="no step runs")
    assert job_row(database, job_id)["checkpoint"]["seq"] == 2
    # Nothing cleared the report: the record shows that its step has ended.
    assert (await bench.port(jobs.show, job_id)).running_step is None
    await runner.tick(TickBudget())
    assert sql(database, "SELECT running FROM cortex_worker.task")[0]["running"] is None
    job.end(Stop.LEASE_LOST)


async def test_a_report_of_an_earlier_attempt_is_not_shown(bench: Bench, database: str) -> None:
    (claim,) = await bench.claimed()
    sql(
        database,
        "UPDATE cortex_worker.task SET attempt = 2, running = jsonb_build_object("
        "'attempt', 1, 'kind', 'step', 'key', 'a', 'since', cortex.now(), 'more', 0)",
    )
    job_id = claim.lease.job_id
    assert (await bench.port(jobs.show, job_id)).running_step is None
    sql(database, "UPDATE cortex_worker.task SET attempt = 1, running = running || '{\"more\": 2}'")
    sql(
        database,
        "INSERT INTO cortex.pod (id, lock_key, name, version, job_types, slots, liveness,"
        " heartbeat_at) VALUES ($1, 7, 'vm', '1', '{}', 1, 'heartbeat', cortex.now())",
        bench.pod.id,
    )
    sentence = explain(await bench.port(why.facts_of, job_id)).sentence
    assert sentence.startswith("it is running on vm, attempt 1, in step a for ")
    assert sentence.endswith(", and 2 more")


async def test_a_short_step_is_never_written(bench: Bench, database: str) -> None:
    (claim,) = await bench.claimed()
    job = bench.running.add(claim)
    job.progress = Progress(0, None)
    before, runner = written(database), reports_of(bench)

    step = job.progress.begin(StepKind.STEP, "a", now=trio.current_time())
    await runner.tick(TickBudget())
    job.progress.end(step)
    await runner.tick(TickBudget())
    assert written(database) == before


async def test_report_of_a_locked_task_is_written_on_a_later_tick(
    bench: Bench, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_reports, "LONG_S", 0.0)
    (claim,) = await bench.claimed()
    job, runner = bench.running.add(claim), reports_of(bench)
    job.progress = Progress(0, None)
    longest = "\N{GRINNING FACE}" * 500
    job.progress.begin(StepKind.STEP, longest, now=trio.current_time())
    with holding_task(database, claim.lease.job_id):
        await runner.tick(TickBudget())
    assert shown_key(database) is None
    while shown_key(database) is None:  # the server notices some time later that its client is gone
        assert (await runner.tick(TickBudget())).items == 1
    assert shown_key(database) == longest
    assert (await runner.tick(TickBudget())).items == 0
