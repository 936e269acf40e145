"""What jobs read, publish and emit, in memory: the same over replays and over kills."""

import math
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from cortex import Context, TransientError, job
from cortex.domain.errors import InvalidValueError, UsageError
from cortex.domain.published import JobProgress
from cortex.testing import Cortex
from cortex.testing.published import PublishedRecord


@job(name="reads-clock")
async def reads_clock(ctx: Context) -> dict[str, Any]:
    first = await ctx.now()
    await ctx.sleep("a while", hours=1)
    second = await ctx.now()
    made = [ctx.uuid(), ctx.uuid("other")]
    text = await ctx.step("use", str, made[0])
    return {"seconds": (second - first).total_seconds(), "made": made, "text": text}


async def test_replay_sees_the_same_time_and_ids(harness: Cortex) -> None:
    run = await harness.run(reads_clock)
    assert run.result["seconds"] >= 3_600
    assert run.result["text"] == run.result["made"][0]
    assert len(set(run.result["made"])) == 2
    assert UUID(run.result["text"]).version == 7
    assert run.steps == ["now", "a while", "now#2", "uuid", "other", "use"]
    run.replays()


async def test_clock_of_a_job_is_that_of_the_test(harness: Cortex) -> None:
    @job(name="only-now")
    async def only_now(ctx: Context) -> datetime:
        return await ctx.now()

    began = harness.clock.now.replace(microsecond=0)
    assert (await harness.run(only_now)).result.astimezone(UTC) >= began


async def test_clock_and_ids_survive_crashes(harness: Cortex) -> None:
    await harness.crash_everywhere(reads_clock)


async def test_more_ids_than_wait_for_a_step_are_refused(harness: Cortex) -> None:
    @job(name="many-ids")
    async def many_ids(ctx: Context) -> None:
        for _ in range(1_001):
            ctx.uuid()

    with pytest.raises(UsageError, match="1,000 values wait to be recorded"):
        _ = (await harness.run(many_ids)).result


# --- state and progress


@job(name="publishes")
async def publishes(ctx: Context) -> dict[str, Any]:
    async def load() -> int:
        ctx.state["loaded"] = 3
        return 3

    ctx.state["phase"] = "load"
    count = await ctx.step("load", load)
    ctx.state["phase"] = "work"
    for done in range(count):
        ctx.progress(done + 1, count, "pages")
        await ctx.step("page", int, done)
    ctx.state["gone"] = True
    del ctx.state["gone"]
    ctx.state["phase"] = "done"
    return dict(ctx.state)  # as the handler has assigned it


async def test_job_publishes_state_and_progress(harness: Cortex) -> None:
    run = await harness.run(publishes)
    assert run.state == {"phase": "done", "loaded": 3}
    assert run.progress == JobProgress(done=3, total=3, unit="pages")
    run.replays()


async def test_publishing_survives_crashes(harness: Cortex) -> None:
    await harness.crash_everywhere(publishes)


@job(name="replays-state")
async def replays_state(ctx: Context, seen: list[Any]) -> None:
    ctx.state["phase"] = "first"
    ctx.progress(1, 3)
    await ctx.step("one", int, 1)
    ctx.state["phase"] = "second"
    ctx.progress(2, 3)
    await ctx.step("two", int, 2)
    await ctx.step("fails once", fail_once)


failures: list[int] = []


async def fail_once() -> None:
    failures.append(1)
    if len(failures) == 1:
        raise TransientError("once")


async def test_replayed_assignments_do_not_publish_old_values(
    harness: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    take = PublishedRecord.take

    def watching(self: PublishedRecord, change: Any) -> None:
        take(self, change)
        seen.append((self.state.get("phase"), self.progress and self.progress.done))

    monkeypatch.setattr(PublishedRecord, "take", watching)
    failures.clear()
    run = await harness.run(replays_state, seen=[])
    assert run.error is None
    assert run.attempts == 2
    assert seen == sorted(seen, key=lambda each: (each[0] != "first", each[1]))
    assert seen[-1] == ("second", 2.0)


async def test_thread_publishes_while_its_step_runs(
    harness: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_there = threading.Event()
    take = PublishedRecord.take

    def watching(self: PublishedRecord, change: Any) -> None:
        take(self, change)
        if self.progress is not None:
            is_there.set()

    monkeypatch.setattr(PublishedRecord, "take", watching)

    @job(name="in-thread")
    async def in_thread(ctx: Context) -> bool:
        def work() -> bool:
            ctx.progress(1, 2)
            return is_there.wait(5)

        return await ctx.step("work", work)

    assert (await harness.run(in_thread)).result is True


def _assigned(key: Any, value: Any) -> Callable[[Context], None]:
    def assign(ctx: Context) -> None:
        ctx.state[key] = value

    return assign


def _many(ctx: Context) -> None:
    for number in range(65):
        ctx.state[f"k{number}"] = number


@pytest.mark.parametrize(
    "act, message",
    [
        (lambda ctx: ctx.progress(-1, 3), "progress: done is -1, not a number from 0"),
        (lambda ctx: ctx.progress(math.nan, 3), "progress: done is nan, not a number"),
        (lambda ctx: ctx.progress(1, math.inf), "progress: total is inf, not a number"),
        (lambda ctx: ctx.progress(10**400, 1), "progress: done is inf, not a number"),
        (lambda ctx: ctx.progress(4, 3), "progress: done is 4, more than the total of 3"),
        (lambda ctx: ctx.progress("1", 3), "progress: done is '1', not a number"),
        (lambda ctx: ctx.progress(1, 3, "x" * 41), "progress: unit is"),
        (lambda ctx: ctx.progress(1, 3, "a\nb"), "progress: unit is 'a\\nb', not one line"),
        (_assigned("", 1), "a key of the state is '', not text of 1 to 100"),
        (_assigned(3, 1), "a key of the state is 3, not text"),
        (_assigned("a\nb", 1), "a key of the state is not one line"),
        (_assigned("k", "x" * 2**20), "state 'k' is 1,048,578 bytes of JSON, more than 16,384"),
        (_assigned("k", math.nan), "state 'k' holds nan"),
        (_assigned("k", object()), "state 'k'"),
        (_many, "state 'k64' would be key 65 of the state, more than 64"),
    ],
)
async def test_bad_values_are_refused_in_one_line(
    harness: Cortex, act: Callable[[Context], None], message: str
) -> None:
    @job(name="bad-values")
    async def bad_values(ctx: Context) -> None:
        act(ctx)

    with pytest.raises(InvalidValueError, match=re.escape(message)) as caught:
        _ = (await harness.run(bad_values)).result
    assert "\n" not in str(caught.value)


# --- emit


@job(name="emits")
async def emits(ctx: Context) -> int:
    for number in range(3):
        await ctx.emit({"line": number})
        await ctx.step("work", int, number)

    async def branch(name: str) -> None:
        for number in range(2):
            await ctx.emit(number, name=name)

    await ctx.gather(branch("left"), branch("right"))
    return 5


async def test_chunks_are_emitted_once_and_in_order(harness: Cortex) -> None:
    run = await harness.run(emits)
    assert list(run.chunks[:3]) == [{"line": 0}, {"line": 1}, {"line": 2}]
    assert sorted(run.chunks[3:]) == [0, 0, 1, 1]
    run.replays()
    await harness.crash_everywhere(emits)


@pytest.mark.parametrize(
    "chunk, message",
    [
        ("x" * 2**20, "chunk 'emit' is 1,048,578 bytes of JSON, more than 65,536"),
        (math.nan, "chunk 'emit' holds nan"),
        (object(), "chunk 'emit'"),
    ],
)
async def test_bad_chunks_are_refused(harness: Cortex, chunk: Any, message: str) -> None:
    @job(name="bad-chunk")
    async def bad_chunk(ctx: Context) -> None:
        await ctx.emit(chunk)

    with pytest.raises(InvalidValueError, match=re.escape(message)):
        _ = (await harness.run(bad_chunk)).result


async def test_job_with_too_many_chunks_is_refused(
    harness: Cortex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.durable.published.CHUNKS_MAX", 2)

    @job(name="many-chunks")
    async def many_chunks(ctx: Context) -> None:
        for number in range(3):
            await ctx.emit(number)

    with pytest.raises(InvalidValueError, match="is the job's chunk 3, more than 2"):
        _ = (await harness.run(many_chunks)).result
