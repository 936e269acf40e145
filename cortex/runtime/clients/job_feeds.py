"""Job events for followers: recorded events in order, and live model output.

Owns: who follows which job, how far, and the events that each follower has not taken yet. Reads:
transitions, ended attempts and steps of all followed jobs in one statement, at most four times a
second, less often while nothing changes, and never without followers.
Invariants: recorded events come complete and in order, model output only as far as it arrives. A
follower that does not take its events gets no more: recorded events wait in the database, text is
dropped and shown as a gap.

On failure: an outage is waited out; followers receive nothing meanwhile.
On stop: followers are cancelled with their own tasks.
"""

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import structlog
import trio

from cortex.domain.answer_text import AnswerPiece, AnswerReader, Message, PollHint
from cortex.domain.errors import CortexError, NotFoundError, UnavailableError
from cortex.domain.job import JobStatus
from cortex.domain.job_feed import (
    START,
    EventKind,
    Happened,
    JobEvent,
    Position,
    events_after,
)
from cortex.postgres.bridge import Port
from cortex.runtime.clients.poller import Poller
from cortex.store import feed

FEEDS_MAX: Final = 1_000
ASKED_MAX: Final = 500
"""Different positions in one statement; the others come next."""
EVENTS_MAX: Final = 1_000
"""Events not taken yet: beyond it a feed requests no more."""
TEXT_CHARS_MAX: Final = 256 * 1024
"""Text not taken yet: beyond it text is dropped."""
FIRST_POLL_S: Final = 5.0
NOTHING: Final = Happened()

_log = structlog.get_logger(__name__)

FeedEvent = JobEvent | AnswerPiece


class Feed:
    """Events that one follower of one job has not taken yet. Made by `JobFeeds.follow`."""

    def __init__(self, job_id: UUID, position: Position) -> None:
        self.job_id = job_id
        self.position = position
        """Of the last event from the record, taken or not."""
        self.is_over = False
        """The job has ended, and all its events have arrived."""
        self._events: list[FeedEvent] = []
        self._text_chars = 0
        self._reader = AnswerReader()
        self._news = trio.Event()
        self.polled_at = -math.inf
        """Trio's clock: the last poll for this feed."""
        self.is_polled = trio.Event()
        """The first poll for this feed is done."""
        self.error: CortexError | None = None

    @property
    def takes_events(self) -> bool:
        """More events may exist, and there is room for them."""
        return not self.is_over and self.error is None and len(self._events) < EVENTS_MAX

    async def receive(self) -> list[FeedEvent]:
        """Wait for events and take all there are, in order.

        Raises `trio.EndOfChannel` once the job's end has been taken. After `trio.Cancelled` nothing
        was taken.
        """
        if not self._events and not self.is_over:
            await self._news.wait()
        else:
            await trio.lowlevel.checkpoint()
        if not self._events:
            raise trio.EndOfChannel
        events, self._events = self._events, []
        self._text_chars = 0
        self._news = trio.Event()
        return events

    def add_events(self, events: list[JobEvent], *, is_over: bool) -> None:
        """Add recorded events; `is_over`: these are the last ones."""
        for event in events:
            if event.kind is EventKind.STEP:
                self._reader.committed(event.data["key"])
            self.position = event.position
        self.is_over = is_over
        self._add(events)
        self.is_polled.set()
        if is_over:
            self._news.set()

    def add_text(self, piece: AnswerPiece) -> None:
        """Add model output, as far as it is new and there is room."""
        if not self.is_polled.is_set() or self.is_over:
            return
        if self._text_chars + len(piece.text) > TEXT_CHARS_MAX:
            return  # dropped; shown as a gap before the next piece that fits
        if (new := self._reader.take(piece)) is not None:
            self._text_chars += len(new.text)
            self._add([new])

    def _add(self, events: list[JobEvent] | list[AnswerPiece]) -> None:
        if events:
            self._events += events
            self._news.set()


class JobFeeds:
    """The actor; `follow` opens a feed, `hear` receives the messages of pods."""

    name = "job feeds"

    def __init__(
        self, port: Port, *, watch: Callable[[UUID], None], unwatch: Callable[[UUID], None]
    ) -> None:
        """`watch` requests the text of a job, again when the job moves; `unwatch` ends that."""
        self._port = port
        self._watch = watch
        self._unwatch = unwatch
        self._feeds: dict[UUID, list[Feed]] = {}
        self._count = 0
        self.poller = Poller()
        self._is_cut_off = False

    def __len__(self) -> int:
        return self._count

    @asynccontextmanager
    async def follow(self, job_id: UUID, *, after: Position = START) -> AsyncGenerator[Feed, None]:
        """Follow a job from a position on, until the block is left.

        Raises `NotFoundError`, and `UnavailableError` if there are too many followers or the
        database does not answer.
        """
        if self._count >= FEEDS_MAX:
            raise UnavailableError(
                f"{FEEDS_MAX} clients follow jobs already", hint="try again in a moment"
            )
        new = Feed(job_id, after)
        self._enter(new)
        try:
            with trio.move_on_after(FIRST_POLL_S):
                await new.is_polled.wait()
            if not new.is_polled.is_set():
                raise UnavailableError("the database does not answer", hint="try again in a moment")
            if new.error is not None:
                raise new.error
            if not new.is_over:
                self._watch(job_id)
            yield new
        finally:
            self._leave(new)

    def hear(self, message: Message) -> None:
        """Take a message of a pod: model output, or a hint to poll."""
        feeds = self._feeds.get(message.job_id)
        if not feeds:
            return
        match message:
            case AnswerPiece():
                for each in feeds:
                    each.add_text(message)
            case PollHint():
                self.poller.hint()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Poll while there are followers, until cancelled."""
        task_status.started()
        while True:
            await self.poller.turn()
            if self._feeds:
                await self.tick()

    async def tick(self) -> None:
        """Read once what happened to the followed jobs."""
        began = trio.current_time()
        is_news = self.poller.began()
        positions = self._next_positions(began)
        try:
            happened_by_position = (
                await self._port(feed.since, list(positions)) if positions else {}
            )
        except UnavailableError as error:
            add_events = _log.debug if self._is_cut_off else _log.warning
            add_events("events not read", followers=self._count, error=error.message)
            self._is_cut_off = True
        else:
            self._is_cut_off = False
            for place, feeds in positions.items():
                self._deliver(feeds, happened_by_position.get(place, NOTHING), place=place)
            is_news = is_news or bool(happened_by_position)
        self.poller.ended(began, found=is_news)

    def _deliver(
        self, feeds: list[Feed], happened: Happened | None, *, place: tuple[UUID, Position]
    ) -> None:
        job_id, position = place
        if happened is None:
            for each in feeds:
                each.error = NotFoundError(f"job {job_id} does not exist")
                each.is_polled.set()
            return
        events = events_after(position, happened)
        for each in feeds:
            each.add_events(events, is_over=happened.is_over)
        if not happened.is_complete:
            self.poller.hint()
        if job_id in self._feeds and not happened.is_ended and any(map(_is_claim, events)):
            self._watch(job_id)

    def _next_positions(self, now: float) -> dict[tuple[UUID, Position], list[Feed]]:
        """Feeds to poll by position, the longest-waiting first. Equal positions share one entry."""
        feeds = [each for all_ in self._feeds.values() for each in all_ if each.takes_events]
        positions: dict[tuple[UUID, Position], list[Feed]] = {}
        for each in sorted(feeds, key=lambda each: each.polled_at):
            place = (each.job_id, each.position)
            if place in positions or len(positions) < ASKED_MAX:
                positions.setdefault(place, []).append(each)
                each.polled_at = now
            else:
                self.poller.hint()
        return positions

    def _enter(self, new: Feed) -> None:
        self._feeds.setdefault(new.job_id, []).append(new)
        self._count += 1
        self.poller.wanted()

    def _leave(self, gone: Feed) -> None:
        feeds = self._feeds[gone.job_id]
        feeds.remove(gone)
        self._count -= 1
        if not feeds:
            del self._feeds[gone.job_id]
            self._unwatch(gone.job_id)
        if not self._feeds:
            self.poller.unwanted()


def _is_claim(event: JobEvent) -> bool:
    """The event says that a pod began to run the job."""
    is_start = event.kind is EventKind.MOVED and event.data["new"] == JobStatus.RUNNING
    return is_start or event.kind is EventKind.CLAIMED
