"""Events of jobs for whoever follows them: from the record, in order, and what models say just now.

Owns: who follows which job, how far, and what each has not taken yet. Reads: transitions, ended
attempts and steps of all followed jobs in one statement, at most four times a second and less while
nothing changes; nothing while nobody follows.
Invariants: events of the record come complete and in order, text of models only as far as it
arrives. Who does not take what there is gets no more: its events wait in the record, its text is
dropped and shown as a gap.

On failure: an outage is waited out; followers just hear nothing meanwhile.
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
"""Different positions in one statement; the others' turn is next."""
EVENTS_MAX: Final = 1_000
"""Not taken yet: beyond it a feed asks for no more."""
TEXT_CHARS_MAX: Final = 256 * 1024
"""Not taken yet: beyond it text is dropped."""
FIRST_LOOK_S: Final = 5.0
NOTHING: Final = Happened()

_log = structlog.get_logger(__name__)

FeedEvent = JobEvent | AnswerPiece


class Feed:
    """What one follower of one job has not taken yet. Made by `JobFeeds.follow`."""

    def __init__(self, job_id: UUID, position: Position) -> None:
        self.job_id = job_id
        self.position = position
        """Of the last event that came from the record, taken or not."""
        self.is_over = False
        """The job has ended, and all its events have come."""
        self._events: list[FeedEvent] = []
        self._text_chars = 0
        self._reader = AnswerReader()
        self._news = trio.Event()
        self.asked_at = -math.inf
        """Trio's clock: the last look on its behalf."""
        self.looked = trio.Event()
        """It has what the record said when it came."""
        self.error: CortexError | None = None

    @property
    def takes_events(self) -> bool:
        """There may be more for it, and it has room."""
        return not self.is_over and self.error is None and len(self._events) < EVENTS_MAX

    async def receive(self) -> list[FeedEvent]:
        """Wait for events and take all there are, in order.

        Raises `trio.EndOfChannel` when the job's end has been taken. After `trio.Cancelled`
        nothing was taken.
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

    def tell(self, events: list[JobEvent], *, is_over: bool) -> None:
        """Add what the record says; `is_over`: it will say no more."""
        for event in events:
            if event.kind is EventKind.STEP:
                self._reader.committed(event.data["key"])
            self.position = event.position
        self.is_over = is_over
        self._add(events)
        self.looked.set()
        if is_over:
            self._news.set()

    def say(self, piece: AnswerPiece) -> None:
        """Add what a model says, as far as it is new and there is room."""
        if not self.looked.is_set() or self.is_over:
            return
        if self._text_chars + len(piece.text) > TEXT_CHARS_MAX:
            return  # it comes as a gap, before what there is room for
        if (new := self._reader.take(piece)) is not None:
            self._text_chars += len(new.text)
            self._add([new])

    def _add(self, events: list[JobEvent] | list[AnswerPiece]) -> None:
        if events:
            self._events += events
            self._news.set()


class JobFeeds:
    """The actor; `follow` opens a feed, `hear` is where the messages of pods come in."""

    name = "job feeds"

    def __init__(
        self, port: Port, *, watch: Callable[[UUID], None], unwatch: Callable[[UUID], None]
    ) -> None:
        """`watch` asks for the text of a job, again when another pod has it; `unwatch` ends it."""
        self._port = port
        self._watch = watch
        self._unwatch = unwatch
        self._feeds: dict[UUID, list[Feed]] = {}
        self._count = 0
        self.looks = Poller()
        self._is_cut_off = False

    def __len__(self) -> int:
        return self._count

    @asynccontextmanager
    async def follow(self, job_id: UUID, *, after: Position = START) -> AsyncGenerator[Feed, None]:
        """Follow a job from a position on, until the block is left.

        Raises `NotFoundError`, and `UnavailableError` if too many follow jobs already or the
        database does not answer.
        """
        if self._count >= FEEDS_MAX:
            raise UnavailableError(
                f"{FEEDS_MAX} clients follow jobs already", hint="ask again in a moment"
            )
        new = Feed(job_id, after)
        self._enter(new)
        try:
            with trio.move_on_after(FIRST_LOOK_S):
                await new.looked.wait()
            if not new.looked.is_set():
                raise UnavailableError("the database does not answer", hint="ask again in a moment")
            if new.error is not None:
                raise new.error
            if not new.is_over:
                self._watch(job_id)
            yield new
        finally:
            self._leave(new)

    def hear(self, message: Message) -> None:
        """A pod tells what a model says, or that there is something to look at."""
        feeds = self._feeds.get(message.job_id)
        if not feeds:
            return
        match message:
            case AnswerPiece():
                for each in feeds:
                    each.say(message)
            case PollHint():
                self.looks.hint()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look while anybody follows, until cancelled."""
        task_status.started()
        while True:
            await self.looks.turn()
            if self._feeds:
                await self.tick()

    async def tick(self) -> None:
        """Look once at what happened to the jobs that are followed."""
        began = trio.current_time()
        is_news = self.looks.began()
        asked = self._next_asked(began)
        try:
            found = await self._port(feed.since, list(asked)) if asked else {}
        except UnavailableError as error:
            tell = _log.debug if self._is_cut_off else _log.warning
            tell("events not read", followers=self._count, error=error.message)
            self._is_cut_off = True
        else:
            self._is_cut_off = False
            for place, feeds in asked.items():
                self._tell(feeds, found.get(place, NOTHING), place=place)
            is_news = is_news or bool(found)
        self.looks.ended(began, found=is_news)

    def _tell(
        self, feeds: list[Feed], happened: Happened | None, *, place: tuple[UUID, Position]
    ) -> None:
        job_id, position = place
        if happened is None:
            for each in feeds:
                each.error = NotFoundError(f"job {job_id} does not exist")
                each.looked.set()
            return
        events = events_after(position, happened)
        for each in feeds:
            each.tell(events, is_over=happened.is_over)
        if not happened.is_complete:
            self.looks.hint()
        if job_id in self._feeds and not happened.is_ended and any(map(_is_claim, events)):
            self._watch(job_id)

    def _next_asked(self, now: float) -> dict[tuple[UUID, Position], list[Feed]]:
        """Who is to be looked for: those first who wait longest. Equal ones share a place."""
        feeds = [each for all_ in self._feeds.values() for each in all_ if each.takes_events]
        asked: dict[tuple[UUID, Position], list[Feed]] = {}
        for each in sorted(feeds, key=lambda each: each.asked_at):
            place = (each.job_id, each.position)
            if place in asked or len(asked) < ASKED_MAX:
                asked.setdefault(place, []).append(each)
                each.asked_at = now
            else:
                self.looks.hint()
        return asked

    def _enter(self, new: Feed) -> None:
        self._feeds.setdefault(new.job_id, []).append(new)
        self._count += 1
        self.looks.wanted()

    def _leave(self, gone: Feed) -> None:
        feeds = self._feeds[gone.job_id]
        feeds.remove(gone)
        self._count -= 1
        if not feeds:
            del self._feeds[gone.job_id]
            self._unwatch(gone.job_id)
        if not self._feeds:
            self.looks.unwanted()


def _is_claim(event: JobEvent) -> bool:
    """A pod began to run the job."""
    is_start = event.kind is EventKind.MOVED and event.data["new"] == JobStatus.RUNNING
    return is_start or event.kind is EventKind.CLAIMED
