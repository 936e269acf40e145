"""Sends the model output of this pod's jobs to their watchers while it arrives.

Owns: which jobs of this pod are watched, and how far each of their answers has been sent.
Reads: the watches of this pod's jobs, on a hint and every ten seconds while there are any; the
progress of the jobs. Writes: the output, at most ten times a second for all watched jobs together.
Without watchers it sleeps, and sends no statement.
Invariants: what could not be sent is sent again; a new watcher also gets earlier output of the
running call. Messages are hints: watchers read the record for the truth, and get a message when to
read it. While any secret is registered, only whole words are sent, since half a secret cannot be
redacted.

On failure: an outage is waited out; output that is no longer kept becomes a gap, visible by its
offset.
On stop: nothing to do; other pods go on from the record.
"""

import math
import random
import string
from datetime import datetime
from typing import Final
from uuid import UUID

import attrs
import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.ticker import Pacer
from cortex.domain.answer_text import AnswerPiece, Message, PollHint, payloads
from cortex.domain.backoff import Backoff
from cortex.domain.errors import UnavailableError
from cortex.domain.job import Lease
from cortex.domain.key_shapes import masked
from cortex.domain.redaction import begun_in, ended_in, knows_any, redact, storable
from cortex.durable.progress import PartialAnswer
from cortex.postgres.bridge import Port
from cortex.runtime.jobs.receipts import Receipts
from cortex.runtime.running import RunningJobs
from cortex.store import watches
from cortex.store.watches import Watched

SEND_EVERY_S: Final = 0.1
POLL_APART_S: Final = 0.1
"""Least pause between two polls of the watches, however many hints come."""
CHARS_MAX: Final = 256 * 1024
"""Sent at once; the rest waits for the next tick."""

WORD_CHARS_MAX: Final = 4_096
"""A longer word is shown before it ends."""
_WORD: Final = string.ascii_letters + string.digits + string.punctuation

_log = structlog.get_logger(__name__)


@attrs.define(eq=False)
class _Job:
    """A watched job of this pod, and what its watchers have received."""

    until: float
    asked_at: datetime
    """When the newest watcher came."""
    state: tuple[Lease | None, int] = (None, 0)
    """The lease of the attempt that runs here, and its last checkpoint."""
    sent: dict[int, int] = attrs.field(factory=dict)
    """Characters sent, by the number of the model call."""


@attrs.frozen
class _News:
    """New messages for the watchers of one job, and its state once they are sent."""

    job: _Job
    asked_at: datetime
    state: tuple[Lease | None, int]
    sent: dict[int, int]
    messages: list[Message]

    def was_sent(self) -> None:
        self.job.state = self.state
        if self.job.asked_at == self.asked_at:  # else a watcher has come who lacks the beginning
            self.job.sent = self.sent


class AnswerSender:
    """The actor; `wake` reports that watches may have changed."""

    name = "answer sender"

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        running: RunningJobs,
        receipts: Receipts,
        rng: random.Random,
    ) -> None:
        self._port = port
        self._pod_id = pod_id
        self._running = running
        self._receipts = receipts
        self._hints = Pacer(rng=rng)
        self._reading = LoopBackoff(rng=rng, backoff=Backoff(base_s=1.0, cap_s=1.0))
        self._sending = LoopBackoff(rng=rng)
        self._jobs: dict[UUID, _Job] = {}
        self._somebody = trio.Event()
        self._forget_at = -math.inf

    def wake(self) -> None:
        """A watch may have been added or deleted."""
        self._hints.wake()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Poll the watches and serve them until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send)
            task_status.started()
            while True:
                await self._hints.wait(watches.RENEW_S if self._jobs else math.inf)
                try:
                    await self.read_watches()
                except UnavailableError as error:
                    await trio.sleep(self._reading.failed(_log, "watches not read", error))
                    self._hints.wake()
                else:
                    self._reading.succeeded()
                await trio.sleep(POLL_APART_S)

    async def read_watches(self) -> None:
        """Read which of this pod's jobs are watched now."""
        watched = await self._port(watches.of_pod, self._pod_id)
        now = trio.current_time()
        self._jobs = {
            job_id: _renewed(self._jobs.get(job_id), each, now=now)
            for job_id, each in watched.items()
        }
        if self._jobs:
            self._somebody.set()

    async def tick(self) -> None:
        news: list[_News] = []
        room = CHARS_MAX
        for job_id, job in list(self._jobs.items()):
            if job.until <= trio.current_time():
                del self._jobs[job_id]
            elif room > 0 and (fresh := self._news_of(job_id, job)).messages:
                # A job that has just sent comes last in the next tick.
                self._jobs[job_id] = self._jobs.pop(job_id)
                news.append(fresh)
                room -= sum(len(m.text) for m in fresh.messages if isinstance(m, AnswerPiece))
        if news:
            messages = (message for each in news for message in each.messages)
            await self._port(watches.send, payloads(messages))
            if trio.current_time() >= self._forget_at:
                self._forget_at = trio.current_time() + watches.SAID_KEPT_S
                await self._port(watches.forget)
        for each in news:
            each.was_sent()

    def _news_of(self, job_id: UUID, job: _Job) -> _News:
        lease = self._running.lease_of(job_id)
        progress = None if lease is None else self._receipts.progress_of(lease)
        messages: list[Message] = []
        sent: dict[int, int] = {}
        if lease is not None and progress is not None:
            for key, answer in progress.answers:
                after = job.sent.get(answer.call, 0)
                pieces = _pieces(lease, key, answer, after=after)
                sent[answer.call] = pieces[-1].end if pieces else after
                messages += pieces
        state = (lease, 0 if progress is None else progress.checkpoint_seq)
        if state != job.state:
            messages.append(PollHint(job_id))
        return _News(job, job.asked_at, state, sent, messages)

    async def _send(self) -> None:
        while True:
            await self._somebody.wait()
            async with self._sending.pause_if_unavailable(_log, "model output not sent"):
                await self.tick()
            if not self._jobs:
                self._somebody = trio.Event()
            await trio.sleep(SEND_EVERY_S)


def _renewed(job: _Job | None, watched: Watched, *, now: float) -> _Job:
    until = now + watched.left_s
    if job is None:
        return _Job(until, watched.asked_at)
    job.until = until
    if watched.asked_at != job.asked_at:
        job.asked_at = watched.asked_at
        job.sent = {}
    return job


def _pieces(lease: Lease, key: str, answer: PartialAnswer, *, after: int) -> list[AnswerPiece]:
    """Return the new part of an answer, as far as it may be shown."""
    return [
        AnswerPiece(
            job_id=lease.job_id,
            attempt=lease.attempt,
            key=key,
            call=answer.call,
            offset=offset,
            end=offset + len(text),
            text=storable(masked(redact(text))),
        )
        for at, cut in answer.since(after)
        for offset, text in [_whole_words(at, cut, is_torn=at > after)]
        if text
    ]


def _whole_words(offset: int, text: str, *, is_torn: bool) -> tuple[int, str]:
    """Leave out what may be part of a secret: at the end, and at a torn beginning.

    That is half a word, or words that a secret of several words begins or ends with.
    """
    if not knows_any():
        return offset, text
    if is_torn:
        whole = text[ended_in(text) :].lstrip(_WORD)
        offset, text = offset + len(text) - len(whole), whole
    text = text[: len(text) - begun_in(text)]
    whole = text.rstrip(_WORD)
    is_endless = len(text) - len(whole) > WORD_CHARS_MAX
    return offset, text if is_endless else whole
