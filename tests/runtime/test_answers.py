"""A client that follows a job in another pod receives what its model says."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio
from attrs import define, evolve, field

from cortex.domain import redaction
from cortex.domain.answer_text import AnswerPiece, Message
from cortex.domain.clock import system_chance
from cortex.domain.job import Claim
from cortex.domain.job_feed import JobEvent
from cortex.domain.model import Capabilities, ModelRequest, ModelResponse
from cortex.domain.poll_rate import PollRate
from cortex.domain.redaction import Redactor
from cortex.domain.usage import Usage
from cortex.durable.calls import Caller
from cortex.durable.context import Context
from cortex.durable.progress import ANSWER_CHARS_MAX
from cortex.durable.step_outcome import StepOutcome
from cortex.postgres.bridge import Port, open_port
from cortex.postgres.database import Profile
from cortex.runtime.clients.answer_listener import AnswerListener
from cortex.runtime.clients.answer_sender import SEND_EVERY_S, AnswerSender
from cortex.runtime.clients.job_feeds import Feed, JobFeeds
from cortex.runtime.liveness.listener import Listener
from cortex.store import jobs as store_jobs
from tests.support.counting import CountingPort
from tests.support.eventually import WITHIN_S, eventually_async
from tests.support.records.factories import Bench, services
from tests.support.servers.pgbouncer import pgbouncer
from tests.support.servers.postgres import sql

SENDING = ("of_pod", "send")


@define
class Speaker:
    """A model that streams the words a test sends; `None` ends its answer."""

    words: dict[str, "trio.MemorySendChannel[str | None]"] = field(factory=dict)

    async def capabilities(self, model: str) -> Capabilities:  # noqa: ARG002
        return Capabilities()

    async def respond(self, request: ModelRequest, caller: Caller) -> StepOutcome:
        send, receive = trio.open_memory_channel[str | None](1_000)
        say = caller.answer.begin()
        self.words[str(request.messages[-1]["content"])] = send
        said = ""
        async for word in receive:
            if word is None:
                break
            said += word
            say(word)
        response = ModelResponse(
            model=request.model,
            content=({"type": "text", "text": said},),
            stop_reason="end_turn",
            usage=Usage(),
            message_id="message-1",
        )
        return StepOutcome(value=response.to_json(), usage=Usage())


@define
class Stage:
    """One pod whose models speak, and another one with a listener."""

    bench: Bench
    port: CountingPort
    """Of the sending pod."""
    ears: Port
    """Of the listening pod."""
    speaker: Speaker = field(factory=Speaker)
    sender: AnswerSender = field(init=False)
    listener: AnswerListener = field(init=False)
    feeds: JobFeeds = field(init=False)

    async def start(self) -> None:
        bench = self.bench
        self.sender = AnswerSender(
            self.port,
            pod_id=bench.pod.id,
            running=bench.running,
            receipts=bench.receipts,
            rng=bench.rng,
        )
        self.listener = AnswerListener(self.ears, new_id=system_chance().new_id, rng=bench.rng)
        self.feeds = JobFeeds(self.ears, watch=self.listener.watch, unwatch=self.listener.unwatch)
        self.listener.hear = self.feeds.hear
        hints = Listener(
            bench.port,
            pod_id=bench.pod.id,
            rng=bench.rng,
            on_task=lambda _: None,
            on_control=self.sender.wake,
            on_breaker=lambda: None,
            on_outbox=lambda: None,
            on_wakes=lambda: None,
            on_limit=lambda: None,
        )
        for actor in (bench.committer, hints, self.sender, self.listener, self.feeds):
            await bench.start(actor)
        await eventually_async(lambda: hints.latency_ms is not None, what="hints arrive")

        async def ask(ctx: Context, question: str) -> str:
            messages = [{"role": "user", "content": question}]
            return (await ctx.llm("ask", model="m", messages=messages)).text

        bench.handle(ask)

    async def ask(self, question: str) -> UUID:
        """Submit a job that asks the speaker, and run it in the pod that sends."""
        (job_id,) = await self.bench.submit(payload=json.dumps({"question": question}))
        (claim,) = await self.bench.claim()
        await self.run(claim, question)
        return job_id

    async def run(self, claim: Claim, question: str) -> None:
        actors = evolve(self.bench.actors(), services=services(models=self.speaker))
        self.bench.jobs.start_soon(actors.run, claim, self.bench.running.add(claim))
        await eventually_async(lambda: question in self.speaker.words, what="it is asked")

    def say(self, question: str, *words: str | None) -> None:
        for word in words:
            self.speaker.words[question].send_nowait(word)


@pytest.fixture
async def stage(bench: Bench) -> AsyncIterator[Stage]:
    opened = Stage(bench, CountingPort(bench.port), bench.port)
    await opened.start()
    yield opened
    for question in opened.speaker.words:
        opened.say(question, None)


async def test_answer_behind_a_pooler_is_polled(
    bench: Bench, database: str, server_home: Path
) -> None:
    with pgbouncer(database, server_home, sessions=2) as pooler:
        profile = Profile(dsn=pooler.dsn, hot_path=True)
        async with open_port(profile, rng=bench.rng) as ears, trio.open_nursery() as nursery:
            here = Stage(Bench(bench.port, nursery), CountingPort(bench.port), ears)
            await here.start()
            job_id = await here.ask("q")
            here.say("q", "before ")
            async with here.feeds.follow(job_id) as feed:
                await heard(feed, "before ")
                here.say("q", "now ", "and ", "then")
                await heard_more(feed, "now and then")
            await eventually_async(
                lambda: not sql(database, "TABLE cortex.watch"), what="no watch is left"
            )
            here.say("q", None)
            nursery.cancel_scope.cancel()


async def heard(feed: Feed, text: str) -> list[AnswerPiece]:
    """Listen until all of this has arrived, assembled as a screen would; return the pieces."""
    pieces: list[AnswerPiece] = []
    shown = ""
    with trio.fail_after(WITHIN_S):
        while shown != text:
            new = [each for each in await feed.receive() if isinstance(each, AnswerPiece)]
            pieces += new
            for piece in new:
                assert piece.missing == 0
                shown = shown[: piece.offset] + piece.text
    return pieces


async def test_follower_receives_the_answer_until_its_step_is_committed(stage: Stage) -> None:
    stage.feeds.poller.pace = PollRate(
        gap_s=60.0, quiet_gap_s=60.0, burst=100
    )  # it looks when hinted
    job_id = await stage.ask("q")
    async with stage.feeds.follow(job_id) as feed:
        stage.say("q", "It was ", "a dark ")
        (first, *_) = await heard(feed, "It was a dark ")
        assert (first.job_id, first.key, first.attempt) == (job_id, "ask", 1)
        stage.say("q", "night.", None)
        kinds: list[str] = []
        with trio.fail_after(WITHIN_S):
            while not feed.is_over or feed._events:
                events = await feed.receive()
                kinds += [each.kind.value for each in events if isinstance(each, JobEvent)]
        assert kinds[-2:] == ["step", "moved"]


async def test_unwatched_answer_costs_no_statement(stage: Stage) -> None:
    await eventually_async(lambda: stage.port.counts["of_pod"], what="it looked when it began")
    before = [stage.port.counts[name] for name in SENDING]
    await stage.ask("q")
    stage.say("q", *["word "] * 100)
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked(0.05)
    assert [stage.port.counts[name] for name in SENDING] == before
    assert not stage.sender._somebody.is_set()


async def test_pod_stops_sending_when_the_last_follower_leaves(stage: Stage, database: str) -> None:
    job_id = await stage.ask("q")
    async with stage.feeds.follow(job_id) as feed:
        stage.say("q", "hello ")
        await heard(feed, "hello ")
    await eventually_async(lambda: not stage.sender._jobs, what="the pod knows")
    await eventually_async(lambda: not sql(database, "TABLE cortex.watch"), what="no watch is left")
    sent = stage.port.counts["send"]
    stage.say("q", *["word "] * 100)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert stage.port.counts["send"] == sent


async def test_late_follower_receives_the_earlier_text(stage: Stage) -> None:
    job_id = await stage.ask("q")
    stage.say("q", "long ago ")
    async with stage.feeds.follow(job_id) as first:
        await heard(first, "long ago ")
        stage.say("q", "and now ")
        await heard_more(first, "and now ")
        async with stage.feeds.follow(job_id) as second:
            await heard(second, "long ago and now ")
            stage.say("q", "and then ")
            await heard_more(first, "and then ")
            await heard_more(second, "and then ")


async def heard_more(feed: Feed, text: str) -> None:
    shown = ""
    with trio.fail_after(WITHIN_S):
        while shown != text:
            pieces = [each for each in await feed.receive() if isinstance(each, AnswerPiece)]
            shown += "".join(piece.text for piece in pieces)


async def test_many_words_cost_few_notifications(stage: Stage) -> None:
    jobs = [await stage.ask(f"q{number}") for number in range(5)]
    async with AsyncExitStack() as stack:
        feeds = [await stack.enter_async_context(stage.feeds.follow(each)) for each in jobs]
        began, sent = trio.current_time(), stage.port.counts["send"]
        for _ in range(100):
            for number in range(5):
                stage.say(f"q{number}", "word ")
            await stage.bench.port(store_jobs.counts, [])  # let some time pass
        for feed in feeds:
            await heard(feed, "word " * 100)
        most = (trio.current_time() - began) / SEND_EVERY_S + 2
    assert 1 <= stage.port.counts["send"] - sent <= most


async def test_a_watch_is_renewed_while_somebody_follows(
    stage: Stage, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.store.watches.RENEW_S", 0.1)
    job_id = await stage.ask("q")

    def until() -> Any:
        return sql(database, "SELECT max(until) AS until FROM cortex.watch")[0]["until"]

    async with stage.feeds.follow(job_id):
        first = await eventually_async(until, what="it watches")
        await eventually_async(lambda: until() > first, what="it watches on")


async def test_very_long_answer_shows_its_beginning_and_its_latest_part(
    stage: Stage,
) -> None:
    job_id = await stage.ask("q")
    for _ in range(30):
        stage.say("q", "x" * 9_999 + " ")
    await eventually_async(
        lambda: not stage.speaker.words["q"].statistics().current_buffer_used, what="all is said"
    )
    async with stage.feeds.follow(job_id) as feed:
        pieces: list[AnswerPiece] = []
        with trio.fail_after(WITHIN_S):
            while not pieces or pieces[-1].end < 300_000:
                pieces += [each for each in await feed.receive() if isinstance(each, AnswerPiece)]
        assert sum(len(piece.text) for piece in pieces) >= ANSWER_CHARS_MAX
        (gap,) = [piece for piece in pieces if piece.missing]
        assert gap.offset - gap.missing == ANSWER_CHARS_MAX
        stage.say("q", "still heard")
        await heard_more(feed, "still heard")


async def test_failed_send_is_repeated(stage: Stage) -> None:
    job_id = await stage.ask("q")
    async with stage.feeds.follow(job_id) as feed:
        stage.say("q", "one ")
        await heard(feed, "one ")
        stage.port.is_down = True
        tries = stage.port.counts["send"]
        stage.say("q", "two ")
        await eventually_async(lambda: stage.port.counts["send"] > tries, what="it tries")
        stage.port.is_down = False
        await heard_more(feed, "two ")


async def test_lost_connection_is_replaced_without_a_gap(stage: Stage, database: str) -> None:
    job_id = await stage.ask("q")
    async with stage.feeds.follow(job_id) as feed:
        stage.say("q", "one ")
        await heard(feed, "one ")
        terminated = sql(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query ILIKE '%SELECT s.id, s.payload%' "
            "AND pid <> pg_backend_pid()",
        )
        assert len(terminated) == 1
        stage.say("q", "two ")
        await heard_more(feed, "two ")


async def test_listener_connects_only_while_a_job_is_followed(
    stage: Stage, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cortex.runtime.clients.answer_listener.LINGER_S", 0.1)
    assert not stage.listener._session.is_open
    job_id = await stage.ask("q")
    async with stage.feeds.follow(job_id):
        await eventually_async(lambda: stage.listener._kept == {job_id}, what="it watches")
        assert stage.listener._session.is_open
    await eventually_async(lambda: not stage.listener._session.is_open, what="it is closed")
    assert sql(database, "TABLE cortex.watch") == []
    async with stage.feeds.follow(job_id) as feed:
        stage.say("q", "hello ")
        await heard(feed, "hello ")


async def test_follower_of_a_waiting_job_hears_the_pod_that_claims_it(stage: Stage) -> None:
    (job_id,) = await stage.bench.submit(payload=json.dumps({"question": "q"}))
    async with stage.feeds.follow(job_id) as feed:
        (claim,) = await stage.bench.claim()
        await stage.run(claim, "q")
        stage.say("q", "hello ")
        await heard(feed, "hello ")


async def test_half_a_secret_is_never_sent(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Redactor()
    known.register("KEY", "open-sesame-1234")
    monkeypatch.setattr("cortex.runtime.clients.answer_sender.redact", known.redact)
    monkeypatch.setattr("cortex.runtime.clients.answer_sender.knows_any", known.knows_any)
    assert not redaction.knows_any()
    sent: list[Message] = []

    def hear(message: Message) -> None:
        sent.append(message)
        stage.feeds.hear(message)

    stage.listener.hear = hear
    job_id = await stage.ask("q")
    async with stage.feeds.follow(job_id) as feed:
        stage.say("q", "the key is open-ses")
        await heard(feed, "the key is ")
        stage.say("q", "ame-1234 ", "really ")
        await heard_more(feed, "[secret KEY, 16 characters] really ")
        stage.say("q", "日本")
        await heard_more(feed, "日本")
    assert not [each for each in sent if isinstance(each, AnswerPiece) and "open" in each.text]


@pytest.mark.parametrize(
    "secret", ["correct horse battery staple", "gehe-über-Straße-1234", "k" * 5000]
)
async def test_half_a_secret_of_any_kind_is_never_sent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    known = Redactor()
    known.register("KEY", secret)
    for name in ("redact", "knows_any", "begun_in", "ended_in"):
        monkeypatch.setattr(f"cortex.runtime.clients.answer_sender.{name}", getattr(known, name))
    job_id = await stage.ask("q")
    half = len(secret) - 7
    async with stage.feeds.follow(job_id) as feed:
        stage.say("q", "it is ", secret[:half])
        await heard(feed, "it is ")
        stage.say("q", secret[half:], " really ")
        await heard_more(feed, f"[secret KEY, {len(secret)} characters] really ")


async def test_strange_text_passes(stage: Stage) -> None:
    job_id = await stage.ask("q")
    async with stage.feeds.follow(job_id) as feed:
        stage.say("q", "nul \x00 half \ud800 escape \x1b[31m ß 🙂")
        await heard(feed, "nul \ufffd half \ufffd escape \x1b[31m ß 🙂")


async def test_foreign_notification_is_ignored(
    stage: Stage, database: str, log_lines: list[Any]
) -> None:
    job_id = await stage.ask("q")
    async with stage.feeds.follow(job_id) as feed:
        await eventually_async(lambda: stage.listener._kept, what="it watches")
        sql(
            database,
            "WITH s AS (INSERT INTO cortex.said (payload) VALUES ('hello')) "
            "SELECT pg_notify('cortex_stream', '')",
        )
        stage.say("q", "hello ")
        await heard(feed, "hello ")
    assert any(line["event"] == "message of another version" for line in log_lines)
