"""Named points at which a test kills this process: what is left must be enough to go on.

`CORTEX_CRASH_AT=point:nth` ends the process with SIGKILL at the nth passing of a point,
`point:nth:stop` stops it there with SIGSTOP until SIGCONT, and `record:FILE` appends the name of
each passed point to a file. The starter of a pod arms it; unarmed, passing a point costs a read of
one global.

Between any two transactions that one operation makes there is a point without a line of its own.
`between_transactions.MODULE.FUNCTION.N` is passed before the Nth transaction of one store method.
`between_transactions.OPERATION.MODULE.FUNCTION` is passed before the first transaction of a store
method if an earlier one of the same operation has committed a write; a tick of a runner and a batch
of the committer are operations. `between_transactions` names them all, and the beginning of such a
name all that begin so, such as `between_transactions.schedules`.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Final

import attrs

from cortex.domain.errors import UsageError

VARIABLE: Final = "CORTEX_CRASH_AT"
RECORD: Final = "record"
BETWEEN: Final = "between_transactions"
SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Kind(StrEnum):
    """The circumstances in which a point is passed."""

    POD = "pod"
    """Every pod, with any jobs."""
    JOB = "job"
    """Every job, even one without steps."""
    STEP = "step"
    MODEL = "model"
    TOOL = "tool"
    """A tool without effect."""
    EFFECT = "effect"
    """An effect of a tool or of the job itself."""
    REFUSAL = "refusal"
    """An effect that was certainly not applied: it ends in an error, not in a step."""
    DOUBT = "doubt"
    """An effect of which an earlier attempt left only the intent."""
    APPROVAL = "approval"
    RETRY = "retry"
    """A job that asks to be tried again later."""
    FAILURE = "failure"
    """An attempt that fails, and counts."""
    TIMEOUT = "timeout"
    """An attempt that its limit ends."""
    HAND_BACK = "hand_back"
    """A job whose pod shuts down while it runs."""
    SCHEDULE = "schedule"
    """A schedule with an instant that is due."""
    MESSAGE = "message"
    """A message that somebody subscribes to."""
    TICK = "tick"
    """A `cortex tick`."""
    RETENTION = "retention"
    """A cluster that deletes old records."""
    REMINDER = "reminder"
    """A request whose people are to be reminded."""
    EXPIRY = "expiry"
    """A request that is not decided in time."""
    MISFIT = "misfit"
    """A job that does not fit the code of its pod."""
    BUDGET = "budget"
    """A job that waits for room in its budget."""
    ORPHAN = "orphan"
    """A job that the pod owns without knowing it."""
    LOST_CALL = "lost_call"
    """A model call of a job that ended with its pod."""
    DEATH = "death"
    """A job whose pod was killed; the pod that takes it over passes the point."""
    SILENCE = "silence"
    """A job whose pod was stopped; the pod that frees it passes the point."""
    SIGNAL = "signal"
    """A job that receives a signal, and waits for it."""
    CALLBACK = "callback"
    """A job that opens a callback URL."""
    CHILD = "child"
    """A job that submits others, and waits for them."""
    ADOPTION = "adoption"
    """A job that continues a failed one, whose children it takes on."""
    CUT = "cut"
    """A job that goes on without a child, which is cancelled."""
    PUBLISHED = "published"
    """A job that shows state or progress."""
    LIMIT = "limit"
    """A job of a type with limits."""
    PAUSE = "pause"
    """A job that is paused, and resumed."""
    LOG = "log"
    """A job that logs."""
    ACT = "act"
    """A write requested through the API."""


@attrs.frozen
class Point:
    """One place in the code."""

    what: str
    """The state when it is passed."""
    kinds: tuple[Kind, ...]
    """The circumstances in which it is passed."""


_STEPS: Final = (
    *(Kind.STEP, Kind.MODEL, Kind.TOOL, Kind.EFFECT),
    *(Kind.APPROVAL, Kind.SIGNAL, Kind.CALLBACK, Kind.CHILD),
)
_CALLS: Final = (Kind.EFFECT, Kind.REFUSAL)
_WAITS: Final = (Kind.APPROVAL, Kind.RETRY, Kind.DOUBT, Kind.BUDGET, Kind.SIGNAL, Kind.CHILD)

POINTS: Final[dict[str, Point]] = {
    # a pod begins
    "before_enter": Point("the pod is about to enter its job types and settings", (Kind.POD,)),
    "after_enter": Point("they are committed, the pod is not registered yet", (Kind.POD,)),
    "before_register": Point("it holds its lock and is about to enter itself", (Kind.POD,)),
    "after_register": Point("it is on record and has not beaten", (Kind.POD,)),
    "before_declare": Point("its code's schedules are about to be entered", (Kind.POD,)),
    "after_declare": Point("they are committed, it takes no jobs yet", (Kind.POD,)),
    "before_beat": Point("it is about to send a heartbeat for itself and its jobs", (Kind.POD,)),
    "after_beat": Point(
        "the heartbeat is committed, its lost jobs are not stopped yet", (Kind.POD,)
    ),
    # a claim
    "before_promote": Point("due tasks are about to be made ready", (Kind.POD,)),
    "after_promote": Point("they are ready", (Kind.POD,)),
    "before_claim": Point("the pod is about to take as many tasks as it has slots", (Kind.JOB,)),
    "after_claim": Point("they are its own, none of their jobs runs", (Kind.JOB,)),
    "before_orphans": Point("it is about to give back what it does not run", (Kind.ORPHAN,)),
    "after_orphans": Point("that is given back", (Kind.ORPHAN,)),
    # any operation
    BETWEEN: Point("an operation has committed, and goes on in a new transaction", (Kind.POD,)),
    # a step
    "before_step": Point("steps have ended, the committer is about to write them", _STEPS),
    "after_step": Point("they are committed, their jobs have no reply yet", _STEPS),
    # an effect
    "before_intent": Point("an effect is about to be entered in the ledger", _CALLS),
    "after_intent": Point("its intent is committed, the call has not begun", _CALLS),
    "during_call": Point("it is under way; no code of ours passes it, a test's tool does", _CALLS),
    "after_call": Point("the call has ended, nothing is recorded of it", (Kind.EFFECT,)),
    "before_outcome": Point("an outcome without a step is about to be written", (Kind.REFUSAL,)),
    "after_outcome": Point("it is committed, its error has not been raised", (Kind.REFUSAL,)),
    "before_reconcile": Point("the other side is about to be asked what came of it", (Kind.DOUBT,)),
    "after_reconcile": Point("it has answered, nothing is recorded of that", (Kind.DOUBT,)),
    # a decision
    "before_approval": Point("a decision is found, its step is not written", (Kind.APPROVAL,)),
    "after_approval": Point("its step is committed, its call is not intended", (Kind.APPROVAL,)),
    "before_expiry": Point("requests that are due are about to be closed", (Kind.POD, Kind.EXPIRY)),
    "after_expiry": Point("they are closed, their jobs go on or have failed", (Kind.EXPIRY,)),
    "before_reminder": Point(
        "people are about to be reminded of requests", (Kind.POD, Kind.REMINDER)
    ),
    "after_reminder": Point(
        "the reminders that are due are in the outbox", (Kind.POD, Kind.REMINDER)
    ),
    # money
    "before_reserve": Point("room for a model call is about to be taken", (Kind.MODEL,)),
    "after_reserve": Point("it is taken, the call has not begun", (Kind.MODEL,)),
    "before_settle": Point("a model call has ended and is about to be booked", (Kind.MODEL,)),
    "after_settle": Point("it is booked, its answer is in no record", (Kind.MODEL,)),
    "before_lost_calls": Point(
        "calls of ended attempts are about to be booked", (Kind.POD, Kind.LOST_CALL)
    ),
    "after_lost_calls": Point("they are booked, at their estimate", (Kind.LOST_CALL,)),
    "before_wake": Point("jobs whose budget has room are about to go on", (Kind.POD, Kind.BUDGET)),
    "after_wake": Point("they have tasks again", (Kind.BUDGET,)),
    # a wait for something outside
    "before_take": Point("a step is about to take a signal, if there is one", (Kind.SIGNAL,)),
    "after_take": Point(
        "a signal belongs to the step, whose output is not recorded", (Kind.SIGNAL,)
    ),
    "before_waits": Point(
        "jobs that have what they wait for are about to go on",
        (Kind.POD, Kind.SIGNAL, Kind.CHILD),
    ),
    "after_waits": Point(
        "jobs that had what they waited for have tasks again", (Kind.SIGNAL, Kind.CHILD)
    ),
    "before_callback": Point("a callback is about to be opened", (Kind.CALLBACK,)),
    "after_callback": Point("the callback is open, its step is not on record", (Kind.CALLBACK,)),
    # jobs that a job submits
    "before_spawn": Point("a job is about to submit others", (Kind.CHILD,)),
    "after_spawn": Point("they are submitted, the step is not recorded", (Kind.CHILD,)),
    "before_adopt": Point(
        "a job is about to take on what an earlier one of its lineage has left", (Kind.ADOPTION,)
    ),
    "after_adopt": Point("those are its children now, and run again", (Kind.ADOPTION,)),
    "before_cut": Point(
        "children of jobs that have ended are about to be cancelled", (Kind.POD, Kind.CUT)
    ),
    "after_cut": Point(
        "they are, or were asked to end; the list still has their parent", (Kind.CUT,)
    ),
    # a call in a batch; no program of chaos makes one: tests/batches kills at each of these
    "before_batch_add": Point("a call is about to wait for a batch, with its room", ()),
    "after_batch_add": Point("the call waits, its job does not yet", ()),
    "before_batch_gather": Point("calls are about to be put into a batch", ()),
    "after_batch_gather": Point("the batch is on record, it is not sent", ()),
    "before_batch_sent": Point("its provider has it, nothing says so", ()),
    "after_batch_sent": Point("its provider's id is on record", ()),
    "before_batch_unsend": Point("a batch certainly does not exist, its calls are in it", ()),
    "after_batch_unsend": Point("they wait for another one, or are made directly", ()),
    "before_batch_look": Point("a batch that is due is about to be taken", ()),
    "after_batch_look": Point("one process has it in its hands", ()),
    "before_batch_results": Point("results have come, none is on record", ()),
    "after_batch_results": Point("results are on record and booked", ()),
    "before_batch_end": Point("all are, their batch is open", ()),
    "after_batch_end": Point("their batch has ended", ()),
    "before_batch_wake": Point("jobs whose call is over are about to go on", (Kind.POD,)),
    "after_batch_wake": Point("jobs whose call is over have tasks again", ()),
    # what a job shows while it runs
    "before_publish": Point(
        "state or progress of jobs is about to be published", (Kind.PUBLISHED,)
    ),
    "after_publish": Point("it is committed, its job goes on already", (Kind.PUBLISHED,)),
    # the end of an attempt
    "before_finish": Point("a job has ended, nothing is recorded of that", (Kind.JOB,)),
    "after_finish": Point("its end is committed, its pod has no reply yet", (Kind.JOB,)),
    "before_release": Point(
        "an attempt has ended and its task is about to be freed", (Kind.FAILURE, Kind.HAND_BACK)
    ),
    "after_release": Point("its task is free", (Kind.FAILURE, Kind.HAND_BACK)),
    "before_misfit": Point(
        "its pod's code cannot take a job, which is about to be handed back", (Kind.MISFIT,)
    ),
    "after_misfit": Point("it waits for other code; no reply yet", (Kind.MISFIT,)),
    "before_suspend": Point("an attempt has ended, its job is about to wait", _WAITS),
    "after_suspend": Point("it waits, for people or for its time; no reply yet", _WAITS),
    "before_receipt": Point("a limit has ended something, its receipt is taken", (Kind.TIMEOUT,)),
    "after_receipt": Point("the receipt is committed, the attempt goes on to end", (Kind.TIMEOUT,)),
    # what goes on later, and elsewhere
    "before_due": Point("jobs whose time has come are about to get tasks", (Kind.POD, Kind.RETRY)),
    "after_due": Point("they have tasks", (Kind.RETRY,)),
    "before_admission": Point(
        "jobs are about to be let through their limits", (Kind.POD, Kind.LIMIT)
    ),
    "after_admission": Point("they hold their places, no pod has them", (Kind.LIMIT,)),
    "before_line": Point(
        "paused tasks are about to be set aside or given back, old ones to rise",
        (Kind.POD, Kind.PAUSE),
    ),
    "after_line": Point("they are", (Kind.PAUSE,)),
    "before_fire": Point(
        "schedules that are due are about to submit jobs", (Kind.POD, Kind.SCHEDULE)
    ),
    "after_fire": Point("their instants and jobs are committed", (Kind.SCHEDULE,)),
    "before_outbox_reclaim": Point("messages of lost leases are about to be freed", (Kind.POD,)),
    "after_outbox_reclaim": Point("they are free, or given up", (Kind.POD,)),
    "before_outbox_claim": Point("due messages are about to be claimed", (Kind.MESSAGE,)),
    "after_outbox_claim": Point("it holds their leases, none is sent", (Kind.MESSAGE,)),
    "before_message_sent": Point("one of them is about to be sent", (Kind.MESSAGE,)),
    "after_message_sent": Point("its receiver has it, nothing says so", (Kind.MESSAGE,)),
    "before_outbox_record": Point("that it was sent is about to be recorded", (Kind.MESSAGE,)),
    "after_outbox_record": Point("that it was sent is recorded", (Kind.MESSAGE,)),
    "before_retention": Point("old records are about to be deleted", (Kind.RETENTION,)),
    "after_archive": Point("their copy is on the disk, none is deleted", (Kind.RETENTION,)),
    "after_retention": Point("they are deleted", (Kind.RETENTION,)),
    "before_lines": Point("log lines of jobs are about to be stored", (Kind.LOG,)),
    "after_lines": Point("they are stored", (Kind.LOG,)),
    "before_housekeeping": Point("what has expired is about to be deleted", (Kind.POD,)),
    "after_housekeeping": Point("a batch of it is deleted", (Kind.POD,)),
    "before_alarms": Point("what lasts too long is about to be announced", (Kind.POD,)),
    "after_alarms": Point("it is announced, or was not new", (Kind.POD,)),
    "before_runs": Point("the last runs of runners are about to be recorded", (Kind.POD,)),
    "after_runs": Point("they are recorded", (Kind.POD,)),
    "before_tick_record": Point("a tick is over, nothing is recorded of it", (Kind.TICK,)),
    "after_tick_record": Point("its runs are recorded", (Kind.TICK,)),
    "before_takeover": Point("a pod is dead, its jobs are about to be freed", (Kind.DEATH,)),
    "after_takeover": Point("its jobs are free, or failed as poison", (Kind.DEATH,)),
    "before_sweep": Point("jobs of silent pods are about to be freed", (Kind.POD, Kind.SILENCE)),
    "after_sweep": Point("they are free, or failed", (Kind.SILENCE,)),
    "before_overrun": Point("jobs past their time-out are about to be ended", (Kind.POD,)),
    "after_overrun": Point("they have ended, or there were none", (Kind.POD,)),
    "before_retire": Point("pods that are silent for long are about to be buried", (Kind.POD,)),
    "after_retire": Point("they are dead on record", (Kind.POD,)),
    "before_triage": Point("dead letters are about to be triaged", (Kind.POD,)),
    "after_triage": Point("some go on, some are archived, some are reported", (Kind.POD,)),
    # a pod leaves
    "drain_intake": Point("its shutdown was requested: it takes no more", (Kind.HAND_BACK,)),
    "drain_jobs": Point("its jobs go on to their next checkpoint", (Kind.HAND_BACK,)),
    "drain_hand_back": Point("those that still run are about to be cancelled", (Kind.HAND_BACK,)),
    "drain_flush": Point("no job runs, the committer takes no more", (Kind.HAND_BACK,)),
    "drain_sign_off": Point("all is committed, its heart still beats", (Kind.HAND_BACK,)),
    "before_sign_off": Point("it is about to sign off", (Kind.HAND_BACK,)),
    "after_sign_off": Point("it has signed off, its connections are open", (Kind.HAND_BACK,)),
    # the API
    "before_act": Point("a write requested through the API is about to be made", (Kind.ACT,)),
    "after_act": Point("it is committed, no client has an answer yet", (Kind.ACT,)),
}
"""Every point. A test checks that each write of progress stands between two of them."""

_passed: Callable[[str], None] | None = None


def crash_point(name: str) -> None:
    """Pass a point; `name` is one of `POINTS`, but not `BETWEEN`."""
    if _passed is not None:
        _passed(name)


def is_armed() -> bool:
    """Return whether passing a point does anything."""
    return _passed is not None


@attrs.define
class _Operation:
    name: str
    has_written: bool = False


_operation: ContextVar[_Operation | None] = ContextVar("crash_point_operation", default=None)


def one_operation(name: str) -> AbstractContextManager[None]:
    """Make the store methods called in a block, and in the tasks it starts, one operation."""
    return nullcontext() if _passed is None else _in_operation(name)


@contextmanager
def _in_operation(name: str) -> Iterator[None]:
    token = _operation.set(_Operation(name))
    try:
        yield
    finally:
        _operation.reset(token)


def is_in_operation() -> bool:
    """Return whether `note_write` is to be called after each transaction that has written."""
    return _passed is not None and _operation.get() is not None


def note_write() -> None:
    """Note that a transaction of the present operation has written, and is committed."""
    if (present := _operation.get()) is not None:
        present.has_written = True


def pass_between(method: str, begin: Callable[[], object]) -> Callable[[], None]:
    """Wrap `begin`, called for each transaction of one store method, to pass the points between.

    `method`: `MODULE.FUNCTION`. A transaction that is repeated after a rollback counts again.
    """
    count = 0
    whole = _operation.get()

    def passing() -> None:
        nonlocal count
        count += 1
        if _passed is not None:
            if count > 1:
                _passed(f"{BETWEEN}.{method}.{count}")
            elif whole is not None and whole.has_written:
                _passed(f"{BETWEEN}.{whole.name}.{method}")
        begin()

    return passing


def arm(setting: str | None) -> None:
    """Follow a setting from now on. Raises `UsageError` for an invalid one."""
    global _passed  # noqa: PLW0603 -- one check at each point is all that it may cost
    _passed = crash_points(setting, hit=_hit) if setting else None


def crash_points(setting: str, *, hit: Callable[[signal.Signals], None]) -> Callable[[str], None]:
    """Return the function to call at a point, with its name. Raises `UsageError`."""
    point, _, rest = setting.partition(":")
    if point == RECORD and rest:
        return _recorder(Path(rest))
    nth, _, how = rest.partition(":")
    is_number = nth.isascii() and nth.isdecimal() and int(nth) > 0
    if point.partition(".")[0] not in POINTS or not is_number or (how or "kill") not in SIGNALS:
        raise UsageError(
            f"{VARIABLE} is {setting!r}, not point:nth, point:nth:stop or record:FILE",
            hint=f"the points: {', '.join(POINTS)}",
        )
    left = int(nth)

    def passed(name: str) -> None:
        nonlocal left
        if f"{name}.".startswith(f"{point}."):
            left -= 1
            if left == 0:
                hit(SIGNALS[how or "kill"])

    return passed


def _recorder(path: Path) -> Callable[[str], None]:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def passed(name: str) -> None:
        os.write(file, f"{name}\n".encode())

    return passed


def _hit(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
