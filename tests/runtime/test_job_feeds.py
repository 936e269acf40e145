"""Following jobs: the whole story in order, from any place, for any number of followers."""

from contextlib import AsyncExitStack
from uuid import UUID

import pytest
import trio
from attrs import define, evolve, field

from cortex.domain.answer_text import AnswerPiece, PollHint
from cortex.domain.errors import NotFoundError, UnavailableError
from cortex.domain.job import Claim, Finish, JobStatus, NumberedStep, StepDone, StepKind
from cortex.domain.job_feed import START, JobEvent
from cortex.domain.poll_rate import PollRate
from cortex.durable.tally import Tally
from cortex.runtime.clients.job_feeds import Feed, FeedEvent, JobFeeds
from cortex.store import jobs, steps
from tests.support.counting import CountingPort
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.records.factories import Bench
from tests.support.records.rows import new_id

CROWD = 300


@define
class Newsroom:
    """The feeds of a pod on a database, and the watches they requested."""

    bench: Bench
    port: CountingPort
    feeds: JobFeeds = field(init=False)
    watched: list[UUID] = field(factory=list)
    unwatched: list[UUID] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.feeds = JobFeeds(self.port, watch=self.watched.append, unwatch=self.unwatched.append)

    async def step(self, claim: Claim, seq: int, key: str | None = None) -> None:
        done = StepDone(
            lease=claim.lease,
            kind=StepKind.MODEL,
            key=key or f"step {seq}",
            digest=b"",
            duration_s=0.1,
            output="1",
            ended_at=0.0,
            tally=Tally(()),
        )
        numbered = NumberedStep(done, seq, f'{{"seq": {seq}}}')
        await self.bench.port(steps.commit, pod_id=self.bench.pod.id, operations=[numbered])

    async def finish(self, claim: Claim) -> None:
        operation = Finish(lease=claim.lease, status=JobStatus.COMPLETED)
        await self.bench.port(jobs.finish, pod_id=self.bench.pod.id, operations=[operation])

    @property
    def looks(self) -> int:
        return self.port.counts["since"]


@pytest.fixture
async def newsroom(bench: Bench) -> Newsroom:
    opened = Newsroom(bench, CountingPort(bench.port))
    await bench.start(opened.feeds)
    return opened


async def until(feed: Feed, *, count: int) -> list[FeedEvent]:
    """Return a number of events, however they come."""
    events: list[FeedEvent] = []
    with trio.fail_after(WITHIN_S):
        while len(events) < count:
            events += await feed.receive()
    assert len(events) == count
    return events


async def until_over(feed: Feed) -> list[FeedEvent]:
    events: list[FeedEvent] = []
    with trio.fail_after(WITHIN_S):
        while True:
            try:
                events += await feed.receive()
            except trio.EndOfChannel:
                return events


def names(events: list[FeedEvent]) -> list[str]:
    return [
        each.data.get("new") or each.data["key"] if isinstance(each, JobEvent) else each.text
        for each in events
    ]


def a_piece(job_id: UUID, text: str, *, offset: int = 0, key: str = "step 1") -> AnswerPiece:
    return AnswerPiece(
        job_id=job_id,
        attempt=1,
        key=key,
        call=1,
        offset=offset,
        end=offset + len(text),
        text=text,
    )


async def test_a_story_is_followed_from_its_beginning_to_its_end(newsroom: Newsroom) -> None:
    (claim,) = await newsroom.bench.claimed()
    async with newsroom.feeds.follow(claim.lease.job_id) as feed:
        assert names(await until(feed, count=2)) == ["PENDING", "RUNNING"]
        await newsroom.step(claim, 1)
        assert names(await until(feed, count=1)) == ["step 1"]
        await newsroom.finish(claim)
        assert names(await until_over(feed)) == ["COMPLETED"]
        assert feed.is_over
    assert len(newsroom.feeds) == 0


async def test_returning_follower_continues_at_its_position(newsroom: Newsroom) -> None:
    (claim,) = await newsroom.bench.claimed()
    for seq in range(1, 4):
        await newsroom.step(claim, seq)
    await newsroom.finish(claim)
    async with newsroom.feeds.follow(claim.lease.job_id) as feed:
        events = await until_over(feed)
    assert names(events) == ["PENDING", "RUNNING", "step 1", "step 2", "step 3", "COMPLETED"]
    for number, event in enumerate(events, 1):
        assert isinstance(event, JobEvent)
        async with newsroom.feeds.follow(claim.lease.job_id, after=event.position) as feed:
            assert await until_over(feed) == events[number:]


async def test_following_an_unknown_job_is_refused(newsroom: Newsroom) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        async with newsroom.feeds.follow(new_id()):
            pytest.fail("it was let in")
    assert len(newsroom.feeds) == 0


async def test_following_without_the_database_is_refused(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.job_feeds.FIRST_POLL_S", 0.2)
    newsroom.port.is_down = True
    with pytest.raises(UnavailableError, match="does not answer"):
        async with newsroom.feeds.follow(new_id()):
            pytest.fail("it was let in")
    assert len(newsroom.feeds) == 0


async def test_outage_while_following_is_waited_out(newsroom: Newsroom) -> None:
    (claim,) = await newsroom.bench.claimed()
    async with newsroom.feeds.follow(claim.lease.job_id) as feed:
        newsroom.port.is_down = True
        looks = newsroom.looks
        await eventually_async(lambda: newsroom.looks > looks, what="it tries")
        await newsroom.finish(claim)
        newsroom.port.is_down = False
        assert names(await until_over(feed)) == ["PENDING", "RUNNING", "COMPLETED"]


async def test_number_of_followers_is_limited(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.job_feeds.FEEDS_MAX", 1)
    (job_id,) = await newsroom.bench.submit()
    async with newsroom.feeds.follow(job_id):
        with pytest.raises(UnavailableError, match="1 clients follow"):
            async with newsroom.feeds.follow(job_id):
                pytest.fail("it was let in")


async def test_many_followers_share_few_statements(newsroom: Newsroom) -> None:
    ids = await newsroom.bench.submit(CROWD)
    began = trio.current_time()
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        feeds: list[Feed] = []

        async def open_one(job_id: UUID) -> None:
            feeds.append(await stack.enter_async_context(newsroom.feeds.follow(job_id)))

        for job_id in ids:
            nursery.start_soon(open_one, job_id)
        await eventually_async(lambda: len(feeds) == CROWD, what="all follow")
        claims = await newsroom.bench.claim()
        assert len(claims) == CROWD
        for feed in feeds:
            assert names(await until(feed, count=2)) == ["PENDING", "RUNNING"]
    assert newsroom.looks < 5 * (trio.current_time() - began) + 2
    looks = newsroom.looks
    newsroom.feeds.poller.pace = PollRate(gap_s=0.001, quiet_gap_s=0.001)
    for _ in range(50):
        await newsroom.bench.port(jobs.counts, [])
    assert newsroom.looks == looks, "nobody follows"


async def test_more_places_than_fit_into_one_statement_take_turns(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.job_feeds.ASKED_MAX", 2)
    newsroom.feeds.poller.pace = PollRate(gap_s=0.01, quiet_gap_s=0.01)
    claims = await newsroom.bench.claimed(7)
    async with AsyncExitStack() as stack:
        follow = newsroom.feeds.follow
        feeds = [await stack.enter_async_context(follow(each.lease.job_id)) for each in claims]
        for claim in claims:
            await newsroom.finish(claim)
        for feed in feeds:
            assert names(await until_over(feed)) == ["PENDING", "RUNNING", "COMPLETED"]


async def test_slow_follower_gets_no_more_events_until_it_reads(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.job_feeds.EVENTS_MAX", 5)
    monkeypatch.setattr("cortex.store.feed.ROWS_OF_JOB_MAX", 10)
    newsroom.feeds.poller.pace = PollRate(gap_s=0.01, quiet_gap_s=0.01)
    (claim,) = await newsroom.bench.claimed()
    (other,) = await newsroom.bench.submit()
    for seq in range(1, 31):
        await newsroom.step(claim, seq)
    async with newsroom.feeds.follow(claim.lease.job_id) as feed:
        looks = newsroom.looks
        async with newsroom.feeds.follow(other):
            await eventually_async(lambda: newsroom.looks > looks + 3, what="others are served")
            assert len(feed._events) == 12
        await newsroom.finish(claim)
        assert len(await until_over(feed)) == 33


async def test_text_arrives_between_events_and_ends_with_its_step(newsroom: Newsroom) -> None:
    (claim,) = await newsroom.bench.claimed()
    job_id = claim.lease.job_id
    async with newsroom.feeds.follow(job_id) as feed:
        assert newsroom.watched
        assert set(newsroom.watched) == {job_id}
        await until(feed, count=2)
        newsroom.feeds.hear(a_piece(job_id, "one "))
        newsroom.feeds.hear(a_piece(new_id(), "of another job"))
        newsroom.feeds.hear(a_piece(job_id, "two", offset=4))
        assert names(await until(feed, count=2)) == ["one ", "two"]
        await newsroom.step(claim, 1)
        assert names(await until(feed, count=1)) == ["step 1"]
        newsroom.feeds.hear(a_piece(job_id, "late", offset=7))
        newsroom.feeds.hear(a_piece(job_id, "next", key="step 2"))
        assert names(await until(feed, count=1)) == ["next"]
        assert newsroom.unwatched == []
    assert newsroom.unwatched == [job_id]


async def test_unread_text_is_dropped_with_a_gap(
    newsroom: Newsroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.job_feeds.TEXT_CHARS_MAX", 10)
    (job_id,) = await newsroom.bench.submit()
    async with newsroom.feeds.follow(job_id) as feed:
        await until(feed, count=1)
        for number in range(5):
            newsroom.feeds.hear(a_piece(job_id, "1234", offset=4 * number))
        assert names(await until(feed, count=2)) == ["1234", "1234"]
        newsroom.feeds.hear(a_piece(job_id, "5678", offset=20))
        (piece,) = await feed.receive()
        assert piece == evolve(a_piece(job_id, "5678", offset=20), missing=12)


async def test_hint_of_a_pod_triggers_the_next_poll(newsroom: Newsroom) -> None:
    newsroom.feeds.poller.pace = PollRate(gap_s=60.0, quiet_gap_s=60.0, burst=100)
    (claim,) = await newsroom.bench.claimed()
    async with newsroom.feeds.follow(claim.lease.job_id) as feed:
        await until(feed, count=2)
        await newsroom.finish(claim)
        newsroom.feeds.hear(PollHint(claim.lease.job_id))
        assert names(await until_over(feed)) == ["COMPLETED"]


async def test_a_job_that_a_pod_takes_later_is_watched_there(newsroom: Newsroom) -> None:
    (job_id,) = await newsroom.bench.submit()
    async with newsroom.feeds.follow(job_id) as feed:
        await until(feed, count=1)
        newsroom.watched.clear()
        await newsroom.bench.claim()
        assert names(await until(feed, count=1)) == ["RUNNING"]
        assert newsroom.watched == [job_id]


async def test_a_job_that_has_ended_is_not_watched(newsroom: Newsroom) -> None:
    (claim,) = await newsroom.bench.claimed()
    await newsroom.finish(claim)
    async with newsroom.feeds.follow(claim.lease.job_id, after=START) as feed:
        await until_over(feed)
    assert newsroom.watched == []
