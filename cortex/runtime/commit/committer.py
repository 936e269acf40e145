"""The only writer of running jobs' progress: takes batches, sends one statement per kind.

Owns: the mailbox of operations, and each operation from its receipt to its reply.
Reads and writes: jobs, tasks, steps, effects, requests for approval, ended attempts.
Invariants: every operation is fenced by its attempt; a refused one answers `LeaseLost`; one whose
outcome is unknown is sent again until the database reports its outcome. That is safe because each
operation carries what identifies it: (job, attempt, seq) or (job, attempt, state).

On failure: an outage is waited out with jittered backoff; meanwhile jobs wait for their replies,
the bounded mailbox holds back the others, and nothing is claimed. A value that Postgres cannot hold
fails its own operation, not its neighbours. Operations of a job whose rows another session holds
wait until the rows are free, even across a restart of this actor, and the others go on.
On stop: the mailbox is closed, and what it holds is flushed within the grace of its phase. An end
that nobody waits for is answered like the others; one without an answer is its job's pod's to give
up (see `running`).
"""

import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import attrs
import structlog
import trio

from cortex.actors.backoff import LoopBackoff
from cortex.actors.mailbox import Mailbox, MailboxClosed
from cortex.actors.reply import Reply
from cortex.crash_points import crash_point, one_operation
from cortex.domain.backoff import Backoff
from cortex.domain.control_flow import LeaseLost
from cortex.domain.errors import CortexError, OutcomeUnknownError, UnavailableError
from cortex.domain.job import (
    EffectIntent,
    EffectReport,
    Finish,
    IntentReply,
    Misfit,
    NumberedStep,
    Operation,
    Publish,
    Release,
    StepDone,
    Suspend,
)
from cortex.domain.policy import CODE_WAIT_S
from cortex.postgres.bridge import Port
from cortex.runtime.commit.blocked_operations import BlockedOperations
from cortex.runtime.metrics.metrics import Metrics
from cortex.store import effects, jobs, published, steps, tasks

BATCH_MAX: Final = 500
MAILBOX_BOUND: Final = 2_000
BACKOFF: Final = Backoff(base_s=0.05, cap_s=5.0)
QUIET_TURNS: Final = 2
"""Trio runs the tasks of a turn in either order: what all of them send is here two turns later."""
GATHER_TURNS_MAX: Final = 16
"""Turns of the loop; the dispatcher starts a full batch in fewer."""
CLOSING_PAUSE_S: Final = 1.0
"""The longest pause of a pod that is shutting down and has little time left."""
STATEMENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Far larger statements would time out again and again: 300 MB take 5 s."""

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class CommitterStopped(LeaseLost):
    """The committer stopped before the outcome of an operation was known."""


class EndReply(Protocol):
    """Takes the answer to a posted end, at once; nobody waits for it."""

    answered: bool

    def set(self, value: Any) -> None:
        """The end is in the record."""

    def fail(self, error: BaseException) -> None:
        """It is not: `LeaseLost`, `CommitterStopped`, or the database refuses it."""

    def instead(self, error: CortexError) -> Finish | None:
        """Return what to record in place of an end that the database refuses; None: fail."""


@attrs.define(eq=False)
class Entry:
    """An operation in flight, with the reply that its sender waits for."""

    operation: Operation
    reply: Reply[Any] | EndReply
    is_left: bool = False
    """Its sender was cancelled: the answer is not used."""
    is_repeat: bool = False


class Committer:
    """The actor; job code reaches it by `record`, job actors by `record` and `post`."""

    name = "committer"

    def __init__(
        self,
        port: Port,
        *,
        pod_id: UUID,
        rng: random.Random,
        metrics: Metrics | None = None,
        code_wait_s: float = CODE_WAIT_S,
        on_suspended: Callable[[Sequence[Suspend]], None] = lambda _: None,
    ) -> None:
        """`code_wait_s`: how long a job waits for code that fits it, before it fails.

        `on_suspended` gets suspensions that have just been written.
        """
        self._code_wait_s = code_wait_s
        self._on_suspended = on_suspended
        self._port = port
        self._metrics = metrics or Metrics()
        self._pod_id = pod_id
        self._rng = rng
        self._mailbox: Mailbox[Entry] = Mailbox("committer", bound=MAILBOX_BOUND)
        self._closing = trio.Event()
        self._blocked: BlockedOperations[Entry] = BlockedOperations()
        self.is_held_up = False
        """Finished work cannot be written now: nothing new may begin."""

    async def record(self, operation: Operation) -> None:
        """Send an operation and wait until it is committed.

        Raises `LeaseLost` if another attempt owns the job, `CortexError` if Postgres cannot hold
        the value. After `trio.Cancelled` it may or may not be committed.
        """
        reply: Reply[None] = Reply()
        await self._send(Entry(operation, reply))
        await reply.wait()

    async def send_ahead(self, operation: StepDone) -> None:
        """Send a step whose commit nobody waits for.

        What its job sends later is committed after it. After `trio.Cancelled` it is not sent.
        """
        await self._send(Entry(operation, Reply()))

    async def publish(self, change: Publish) -> None:
        """Send what a job publishes; see `Publisher`."""
        await self._send(Entry(change, Reply()))

    async def post(self, ending: Finish, reply: EndReply) -> None:
        """Send the end of a job and return without waiting for its answer, which `reply` gets.

        Waits for room in the mailbox; after `trio.Cancelled` the end is not sent.
        """
        await self._send(Entry(ending, reply))

    async def intend(self, intent: EffectIntent) -> IntentReply:
        """Ask for permission to make an outside call; raises as `record`.

        After `trio.Cancelled` the intent may or may not be in the ledger; the next attempt reads
        it. If the ledger would have admitted the call, the committer records that it was not made.
        """
        reply: Reply[IntentReply] = Reply()
        entry = Entry(intent, reply)
        try:
            await self._send(entry)
            answer = await reply.wait()
        except trio.Cancelled:
            entry.is_left = True
            raise
        return answer

    async def _send(self, entry: Entry) -> None:
        try:
            await self._mailbox.send(entry)
        except MailboxClosed:
            raise LeaseLost("the pod is closing") from None

    def close(self) -> None:
        """Take no more operations; the actor ends when the rest is written."""
        self._mailbox.close()
        self._closing.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write batches until closed."""
        self.is_held_up = False
        task_status.started()
        try:
            while True:
                batch = await self._next()
                try:
                    with one_operation("commit"):
                        await self._write(batch)
                finally:
                    self._give_up_unanswered(batch)
        except trio.EndOfChannel:
            return
        except trio.Cancelled:
            _give_up(self._blocked.freed(set()))
            raise

    def _give_up_unanswered(self, batch: Sequence[Entry]) -> None:
        unanswered = [entry for entry in batch if not entry.reply.answered]
        _give_up(entry for entry in unanswered if entry not in self._blocked)

    async def _next(self) -> list[Entry]:
        """Wait for operations, or for blocked operations to become free.

        Raises `trio.EndOfChannel` when closed and nothing is left.
        """
        if not self._blocked:
            await self._gathered()
            return self._mailbox.take(BATCH_MAX)
        batch: list[Entry] = []
        with trio.CancelScope(deadline=self._blocked.poll_at):
            if len(self._blocked) >= MAILBOX_BOUND:
                await trio.sleep_forever()
            try:
                batch = await self._mailbox.receive_batch(BATCH_MAX)
            except trio.EndOfChannel:
                if not self._blocked:
                    raise
                await trio.sleep_forever()
        if trio.current_time() >= self._blocked.poll_at:
            batch = await self._freed() + batch
        return batch

    async def _gathered(self) -> None:
        """Wait for operations; while turns of the loop bring more, wait for a full batch."""
        await self._mailbox.wait_for_item()
        count, quiet_turns = 0, 0
        for _ in range(GATHER_TURNS_MAX):
            quiet_turns = 0 if len(self._mailbox) > count else quiet_turns + 1
            count = len(self._mailbox)
            if quiet_turns == QUIET_TURNS or count >= BATCH_MAX:
                return
            await trio.lowlevel.checkpoint()

    async def _freed(self) -> list[Entry]:
        """Return the operations that are no longer blocked."""
        try:
            locked = await self._port(tasks.locked, job_ids=self._blocked.job_ids)
        except UnavailableError:
            locked = set(self._blocked.job_ids)
        if locked:
            self._blocked.polled(trio.current_time())
        return self._blocked.freed(locked)

    async def _write(self, batch: Sequence[Entry]) -> None:
        by_kind: defaultdict[type[Operation], list[Entry]] = defaultdict(list)
        for entry in batch:
            by_kind[type(entry.operation)].append(entry)
        # What a job had published before a step must be there once the step is on record.
        for portion in _in_order(by_kind[Publish]):
            await self._settle(portion, self._publish)
        # Then steps: the end of a job is always sent after its steps.
        for portion in _in_order(by_kind[StepDone]):
            await self._settle([_numbered(entry) for entry in portion], self._commit_steps)
        failed = by_kind[EffectReport]  # a left intent adds to them
        for portion in _portions(by_kind[EffectIntent]):
            await self._settle(portion, partial(self._intend, failed))
        if failed:
            await self._settle(failed, self._record_effects)
        for portion in _portions(by_kind[Finish]):
            await self._settle(portion, self._finish)
        if misfits := by_kind[Misfit]:
            await self._settle(misfits, self._hand_back)
        if releases := by_kind[Release]:
            await self._settle(releases, self._release)
        for portion in _portions(by_kind[Suspend]):
            await self._settle(portion, self._suspend)

    async def _settle(
        self,
        group: "Sequence[T]",
        write: Callable[[Sequence[T], bool], Awaitable[None]],
        *,
        is_repeat: bool = False,
    ) -> None:
        """Write a group until the outcome is known; split it if one of its values is refused.

        Blocked operations, and later ones of the same jobs, are left out.
        """
        began = trio.current_time()
        backoff = LoopBackoff(rng=self._rng, backoff=BACKOFF)
        group = self._admitted(group)
        is_repeat = is_repeat or any(_entry(each).is_repeat for each in group)
        while group:
            try:
                await write(group, is_repeat)
            except UnavailableError as error:
                is_repeat = is_repeat or isinstance(error, OutcomeUnknownError)
                if error.is_locked:
                    self.is_held_up = False
                    parts = await self._parted(group, is_repeat=is_repeat)
                    for part in parts:
                        await self._settle(part, write, is_repeat=is_repeat)
                    return
                self.is_held_up = True
                await self._pause(
                    backoff.failed(_log, "commit delayed", error, operations=len(group))
                )
            except CortexError as error:
                self.is_held_up = False
                if len(group) == 1:
                    await self._refused(_entry(group[0]), error)
                    return
                for one in group:
                    await self._settle([one], write, is_repeat=is_repeat)
                return
            else:
                self.is_held_up = False
                self._metrics.committed(len(group), trio.current_time() - began)
                return

    async def _refused(self, entry: Entry, error: CortexError) -> None:
        """Answer an operation whose value the database refuses, or record an end in its place."""
        reply = entry.reply
        instead = None if isinstance(reply, Reply) else reply.instead(error)
        if instead is None:
            reply.fail(error)
            return
        entry.operation, entry.is_repeat = instead, False
        await self._settle([entry], self._finish)

    def _admitted(self, group: "Sequence[T]") -> "Sequence[T]":
        """Leave out operations that are behind blocked ones."""
        if not self._blocked:
            return group
        admitted = []
        for each in group:
            entry = _entry(each)
            if self._blocked.is_behind(entry.operation):
                self._blocked.keep(entry)
            else:
                admitted.append(each)
        return admitted

    async def _parted(self, group: "Sequence[T]", *, is_repeat: bool) -> "list[Sequence[T]]":
        """Leave out what is blocked; return the rest in parts, each smaller than the group.

        If the locked row is not a row of these jobs, the group is halved until it is found.
        """
        entries = [_entry(each) for each in group]
        locked = {entry.operation.lease.job_id for entry in entries}
        if len(group) > 1:
            try:
                locked = await self._port(tasks.locked, job_ids=list(locked))
            except UnavailableError:
                return [group]
            if not locked:
                half = len(group) // 2
                return [group[:half], group[half:]]
        held = [entry for entry in entries if entry.operation.lease.job_id in locked]
        for entry in held:
            entry.is_repeat = entry.is_repeat or is_repeat
        _log.warning("rows of jobs locked by another session", jobs=len(locked))
        self._blocked.add(held, trio.current_time())
        return [[each for each in group if _entry(each) not in self._blocked]]

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._closing.wait()
            await trio.sleep(min(seconds, CLOSING_PAUSE_S))

    async def _commit_steps(
        self,
        group: "Sequence[tuple[Entry, NumberedStep]]",
        is_repeat: bool,  # noqa: FBT001
    ) -> None:
        operations = [step for _, step in group]
        crash_point("before_step")
        stands = await self._port(steps.commit, pod_id=self._pod_id, operations=operations)
        crash_point("after_step")
        if is_repeat:
            rest = [op for op in operations if op.step.lease.job_id not in stands]
            stands |= await self._port(steps.recorded, rest)
        for entry, step in group:
            done = step.step
            if done.lease.job_id in stands:
                done.tally.committed(done)
                self._metrics.step_committed(done)
                entry.reply.set(None)
            else:
                entry.reply.fail(_lost(done.lease.job_id))

    async def _intend(
        self,
        failed: list[Entry],
        group: Sequence[Entry],
        is_repeat: bool,  # noqa: ARG002, FBT001
    ) -> None:
        """Answer intents; admitted ones whose sender has gone join `failed` as not called."""
        operations = [e.operation for e in group if isinstance(e.operation, EffectIntent)]
        crash_point("before_intent")
        answers = await self._port(effects.intend, pod_id=self._pod_id, operations=operations)
        crash_point("after_intent")
        for entry, operation in zip(group, operations, strict=True):
            answer = answers.get(operation.id)
            if answer is None:
                entry.reply.fail(_lost(operation.lease.job_id))
                continue
            entry.reply.set(answer)
            # A sender that declared itself sure may go even though an earlier call was applied.
            if entry.is_left and answer.verdict == "go" and not operation.is_sure:
                failed.append(Entry(_uncalled(operation, answer), Reply()))

    async def _record_effects(self, group: Sequence[Entry], is_repeat: bool) -> None:  # noqa: ARG002, FBT001
        operations = [e.operation for e in group if isinstance(e.operation, EffectReport)]
        crash_point("before_outcome")
        recorded = await self._port(
            effects.record_outcomes, pod_id=self._pod_id, operations=operations
        )
        crash_point("after_outcome")
        for entry, operation in zip(group, operations, strict=True):
            if operation.id in recorded:
                entry.reply.set(None)
            else:
                entry.reply.fail(_lost(operation.lease.job_id))

    async def _finish(self, group: Sequence[Entry], is_repeat: bool) -> None:  # noqa: FBT001
        operations = [e.operation for e in group if isinstance(e.operation, Finish)]
        crash_point("before_finish")
        ended = await self._port(jobs.finish, pod_id=self._pod_id, operations=operations)
        crash_point("after_finish")
        if is_repeat:
            rest = [op for op in operations if op.lease.job_id not in ended]
            ended |= await self._port(jobs.settled, rest)
        for entry in group:
            _answer(entry, ended, entry.operation.lease.job_id)

    async def _hand_back(self, group: Sequence[Entry], is_repeat: bool) -> None:  # noqa: FBT001
        operations = [e.operation for e in group if isinstance(e.operation, Misfit)]
        crash_point("before_misfit")
        handed_back = await self._port(
            tasks.misfit, pod_id=self._pod_id, operations=operations, code_wait_s=self._code_wait_s
        )
        crash_point("after_misfit")
        for entry in group:
            # As with a release: applied earlier or lost, this attempt is over.
            _answer(entry, handed_back, entry.operation.lease.job_id, or_over=is_repeat)

    async def _release(self, group: Sequence[Entry], is_repeat: bool) -> None:  # noqa: FBT001
        operations = [e.operation for e in group if isinstance(e.operation, Release)]
        crash_point("before_release")
        released = await self._port(tasks.release, pod_id=self._pod_id, operations=operations)
        crash_point("after_release")
        for entry in group:
            # Either applied earlier or lost to another pod: this attempt is over.
            _answer(entry, released, entry.operation.lease.job_id, or_over=is_repeat)

    async def _publish(self, group: Sequence[Entry], is_repeat: bool) -> None:  # noqa: FBT001
        changes = [e.operation for e in group if isinstance(e.operation, Publish)]
        crash_point("before_publish")
        owned = await self._port(published.publish, pod_id=self._pod_id, changes=changes)
        crash_point("after_publish")
        for entry in group:
            _answer(entry, owned, entry.operation.lease.job_id, or_over=is_repeat)

    async def _suspend(self, group: Sequence[Entry], is_repeat: bool) -> None:  # noqa: FBT001
        operations = [e.operation for e in group if isinstance(e.operation, Suspend)]
        crash_point("before_suspend")
        suspended = await self._port(tasks.suspend, pod_id=self._pod_id, operations=operations)
        crash_point("after_suspend")
        self._on_suspended(operations)
        for entry in group:
            # As with a release: applied earlier or lost, this attempt is over.
            _answer(entry, suspended, entry.operation.lease.job_id, or_over=is_repeat)


def _answer(entry: Entry, owned: set[UUID], job_id: UUID, *, or_over: bool = False) -> None:
    if job_id in owned or or_over:
        entry.reply.set(None)
    else:
        entry.reply.fail(_lost(job_id))


def _lost(job_id: UUID) -> LeaseLost:
    return LeaseLost(f"job {job_id} is owned by another attempt")


def _uncalled(intent: EffectIntent, answer: IntentReply) -> EffectReport:
    why = "its attempt ended before the call began"
    return EffectReport(lease=intent.lease, id=answer.id, is_applied=False, why=why, result=None)


def _numbered(entry: Entry) -> tuple[Entry, NumberedStep]:
    step = entry.operation
    if not isinstance(step, StepDone):
        raise TypeError(f"not a step: {step!r}")
    return entry, NumberedStep(step, *step.tally.number(step))


def _in_order(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Split operations, each job's in their order, over statements that are not too large."""
    for round_ in _rounds(entries):
        yield from _portions(round_)


def _rounds(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Split concurrent steps of one job over several statements, in their order."""
    if len({entry.operation.lease.job_id for entry in entries}) == len(entries):
        return [list(entries)] if entries else []
    rounds: list[list[Entry]] = []
    place: dict[UUID, int] = {}
    for entry in entries:
        job_id = entry.operation.lease.job_id
        index = place.get(job_id, 0)
        place[job_id] = index + 1
        if index == len(rounds):
            rounds.append([])
        rounds[index].append(entry)
    return rounds


def _portions(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Split what is too large for one statement, in order; empty for no entries."""
    sizes = [_size(entry.operation) for entry in entries]
    if sum(sizes) <= STATEMENT_BYTES_MAX:
        return [list(entries)] if entries else []
    portions: list[list[Entry]] = []
    room = 0
    for entry, size in zip(entries, sizes, strict=True):
        if size > room or not portions:
            portions.append([])
            room = STATEMENT_BYTES_MAX
        portions[-1].append(entry)
        room -= size
    return portions


def _size(operation: Operation) -> int:
    match operation:
        case StepDone():
            return len(operation.output)
        case Publish():
            return len(operation.changes) + len(operation.defaults) + len(operation.counts)
        case EffectIntent():
            return len(operation.arguments)
        case Finish():
            return len(operation.result or "")
        case Suspend():
            return sum(len(request.arguments) for request in operation.requests)
        case Release() | Misfit() | EffectReport():
            return 0


def _give_up(entries: Iterable[Entry]) -> None:
    for entry in entries:
        if not entry.reply.answered:
            entry.reply.fail(CommitterStopped("the committer stopped"))


def _entry(item: object) -> Entry:
    return item[0] if isinstance(item, tuple) else item  # type: ignore[return-value]
