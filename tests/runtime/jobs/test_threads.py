"""Threads that time-outs leave behind: they are counted, cost others no time, and end the pod."""

import threading
from collections.abc import MutableMapping
from typing import Any

import pytest
import trio

from cortex.domain import limits
from cortex.domain.effect import Invocation, NotApplied, Verdict
from cortex.domain.errors import UsageError
from cortex.domain.timeouts import check_step_timeout
from cortex.durable import threads
from cortex.durable.context import Context
from cortex.runtime.jobs import deaf_handlers
from cortex.runtime.jobs.deaf_handlers import DeafHandlers
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.records.factories import Bench
from tests.support.records.many_jobs import Handler, ManyJobs, statuses
from tests.support.records.rows import job_row
from tests.support.servers.postgres import sql

LIMIT_S = 0.2


@pytest.fixture
async def pod(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> ManyJobs:
    monkeypatch.setattr(threads, "THREADS_MAX", 2)
    await bench.start_committing()
    return ManyJobs(bench)


async def not_applied(_: Invocation) -> Verdict:
    return NotApplied()


def quick() -> str:
    return "done"


def staying(released: threading.Event) -> Handler:
    def wait() -> None:
        released.wait(WITHIN_S)

    async def stays(ctx: Context) -> None:
        await ctx.step("x", wait, timeout=LIMIT_S)

    return stays


async def steps(ctx: Context) -> Any:
    return await ctx.step("x", quick, timeout=LIMIT_S)


async def pays(ctx: Context) -> Any:
    return await ctx.effect("x", quick, timeout=LIMIT_S, reconcile=not_applied)


async def no_thread_is_left() -> None:
    await eventually_async(lambda: threads.left_threads() == 0, what="no thread is left behind")


async def test_a_clock_starts_with_its_thread(pod: ManyJobs, database: str) -> None:
    released = threading.Event()
    stays = staying(released)
    lost = await pod.run({"a": stays, "b": stays}, timeout_s=60)
    assert {job_row(database, each)["status"] for each in lost.values()} == {"RETRY"}
    assert threads.left_threads() == 2
    ids = await pod.begin({"steps": steps, "pays": pays})
    with trio.move_on_after(2 * LIMIT_S):
        await pod.bench.running.wait_until_empty()
    assert set(statuses(database, ids).values()) == {"RUNNING"}, "they wait for a thread"
    released.set()
    await pod.bench.running.wait_until_empty()
    assert set(statuses(database, ids).values()) == {"COMPLETED"}
    await no_thread_is_left()


async def test_cancelled_wait_for_a_thread_leaves_nothing_behind(
    pod: ManyJobs, database: str
) -> None:
    released = threading.Event()
    stays = staying(released)
    await pod.run({"a": stays, "b": stays})
    ids = await pod.run({"steps": steps, "pays": pays}, timeout_s=1)
    assert set(statuses(database, ids).values()) == {"FAILED"}
    released.set()
    await no_thread_is_left()
    ids = await pod.run({"steps": steps, "pays": pays, "more": steps})
    assert set(statuses(database, ids).values()) == {"COMPLETED"}


async def test_a_pod_that_has_lost_its_threads_drains(
    pod: ManyJobs,
    database: str,
    log_lines: list[MutableMapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (limits, deaf_handlers):
        monkeypatch.setattr(module, "THREADS_MAX", 2)
    released, worn_out = threading.Event(), trio.Event()
    bench = pod.bench
    deaf = DeafHandlers(
        bench.port,
        pod_id=bench.pod.id,
        running=bench.running,
        check_s=0.01,
        on_worn_out=worn_out.set,
    )
    await bench.start(deaf)
    await pod.run({"a": staying(released)})
    assert not worn_out.is_set()
    await pod.run({"b": staying(released)})
    await worn_out.wait()
    query = "SELECT data FROM cortex.fact WHERE subtype = 'threads_lost'"
    await eventually_async(lambda: len(sql(database, query)) == 1, what="the fact is there")
    (line,) = [each for each in log_lines if each["event"] == "threads left behind"]
    assert (line["left"], line["of"]) == (2, 2)
    released.set()
    await no_thread_is_left()


# --- limits of steps


@pytest.mark.parametrize(
    "seconds, job_s, message",
    [
        (900, 60, None),
        (6 * 3600, 6 * 3600, None),
        (901, 60, "at most 900"),
        (6 * 3600, 3600, "at most 3600 seconds, the limit of its job"),
        (0, 60, "above 0"),
        (float("nan"), 60, "got nan"),
    ],
)
def test_step_timeout_is_limited_by_its_job(
    seconds: float, job_s: float, message: str | None
) -> None:
    if message is None:
        check_step_timeout(seconds, job_s=job_s, source="step 'x': timeout")
        return
    with pytest.raises(UsageError, match="step 'x': timeout must be") as refused:
        check_step_timeout(seconds, job_s=job_s, source="step 'x': timeout")
    assert message in refused.value.message
