"""A client that follows a job receives the model's output live, whatever pod runs the job."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import quantiles
from uuid import UUID

import pytest
import trio

from cortex.domain.answer_text import AnswerPiece
from cortex.domain.clock import system_chance
from cortex.domain.job_feed import JobEvent
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from cortex.runtime.clients.answer_listener import AnswerListener
from cortex.runtime.clients.job_feeds import FeedEvent, JobFeeds
from tests.support.eventually import WITHIN_S
from tests.support.pods import Pod, Pods
from tests.support.records.rows import job_row, seeded_random, submit
from tests.support.servers.stamping_model import stamping_model

SPEAKERS = 10
WORDS = 150
HEARD_WITHIN_S = 0.3
"""Most of it; the rest may wait for its turn on a machine that does much else."""


@asynccontextmanager
async def another_pod(dsn: str) -> AsyncIterator[JobFeeds]:
    """The feeds of a pod that runs none of the jobs."""
    rng = seeded_random()
    async with open_port(Profile(dsn=dsn, hot_path=True), rng=rng) as port:
        listener = AnswerListener(port, new_id=system_chance().new_id, rng=rng)
        feeds = JobFeeds(port, watch=listener.watch, unwatch=listener.unwatch)
        listener.hear = feeds.hear
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.run)
            await nursery.start(feeds.run)
            yield feeds
            nursery.cancel_scope.cancel()


async def started(pods: Pods, base_url: str) -> Pod:
    pods.environment |= {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "key"}
    return await trio.to_thread.run_sync(pods.start)


async def ask(dsn: str) -> UUID:
    payload = {"model": "stamps", "prompt": "go"}
    return await trio.to_thread.run_sync(lambda: submit(dsn, "ask", payload))


async def follow(
    feeds: JobFeeds, job_id: UUID, hear: Callable[[FeedEvent], Awaitable[None]]
) -> None:
    """Hear each event of a job, to the job's end."""
    with trio.fail_after(WITHIN_S):
        async with feeds.follow(job_id) as feed:
            while True:
                try:
                    events = await feed.receive()
                except trio.EndOfChannel:
                    return
                for each in events:
                    await hear(each)


@pytest.mark.alone
async def test_tokens_reach_followers_in_another_pod_live(pods: Pods) -> None:
    latencies: list[float] = []
    endings: list[JobEvent] = []

    async def hear(event: FeedEvent) -> None:
        if isinstance(event, AnswerPiece):
            assert event.missing == 0
            now = trio.current_time()
            latencies.extend(now - float(stamp) for stamp in event.text.split())
        elif event.is_ending:
            endings.append(event)

    async with stamping_model(words=WORDS) as base_url:
        await started(pods, base_url)
        async with another_pod(pods.dsn) as feeds, trio.open_nursery() as nursery:
            for _ in range(SPEAKERS):
                nursery.start_soon(follow, feeds, await ask(pods.dsn), hear)
    assert len(endings) == SPEAKERS
    assert len(latencies) > 0.9 * SPEAKERS * WORDS
    cuts = quantiles(latencies, n=100)
    sys.stdout.write(f"{len(latencies)} words: p50 {cuts[49]:.3f} s, p99 {cuts[98]:.3f} s\n")
    assert cuts[49] < HEARD_WITHIN_S


async def test_follower_stays_connected_over_a_takeover(
    pods: Pods,
) -> None:
    attempts: list[int] = []
    kinds: list[str] = []
    async with stamping_model(words=WORDS) as base_url:
        first = await started(pods, base_url)
        job_id = await ask(pods.dsn)

        async def hear(event: FeedEvent) -> None:
            if isinstance(event, JobEvent):
                kinds.append(str(event.data.get("new", event.kind.value)))
                return
            if event.attempt not in attempts:
                attempts.append(event.attempt)
                assert event.offset == 0
            if first.is_alive:
                await started(pods, base_url)
                first.kill()

        async with another_pod(pods.dsn) as feeds:
            await follow(feeds, job_id, hear)
    assert attempts == [1, 2]
    assert kinds == ["PENDING", "RUNNING", "attempt_ended", "claimed", "step", "COMPLETED"]
    assert job_row(pods.dsn, job_id)["attempt"] == 2
