"""Why a job is not running: one cause, one sentence, and when that is expected to change.

Pure: takes the job's `WhyFacts`, all read at one instant. If several causes hold, the first one in
`PRECEDENCE` is reported: the one that must go before anything moves.

Long because each cause has a sentence of its own.
"""

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import attrs

from cortex.domain.approvals.approval import APPROVAL, ApprovalStatus
from cortex.domain.budget import Unit, worded
from cortex.domain.dead_letter import DECISIONS
from cortex.domain.job import ABANDONED_AFTER_S, BULK, JobStatus
from cortex.domain.job_limits import LIMIT
from cortex.domain.known_tool import TRUST
from cortex.domain.limits import THREADS_MAX, is_worn_out
from cortex.domain.phrases import short_id, utc_time
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.queueing.submit_rules import is_queue_of_key
from cortex.domain.waiting import (
    BATCH,
    CHILD,
    PERSON,
    SIGNAL,
    SLEEP,
    ApprovalWait,
    EffectWait,
    FreezeWait,
    QuotaWait,
    named,
)
from cortex.domain.why_facts import (
    AHEAD_MAX,
    FleetFacts,
    LineFacts,
    MisfitFacts,
    WaitFacts,
    WhyFacts,
)
from cortex.view.steps import last_step, running_step

TAKEN_OVER_CHECKS: Final = 4
"""The surviving pods take over a dead pod's jobs after two polls; twice that leaves room."""
ERROR_CHARS_MAX: Final = 200
CODES_SHOWN: Final = 3
_NEW_CODE: Final = ("cortex up --app FILE", "cortex pods ls")
"""Commands that bring the code that a job needs, and show what runs."""
_BY_TICK: Final = "; the next cortex tick takes it over"
_TIMED_OUT: Final = frozenset({"timed_out", "job_timed_out"})
_SUSPENDED: Final = (JobStatus.WAITING_FOR_APPROVAL, JobStatus.RETRY)


class Cause(StrEnum):
    """What keeps a job from running."""

    ENDED = "ended"
    ORPHANED = "orphaned"
    DEAF = "deaf"
    CANCELLING = "cancelling"
    RUNNING = "running"
    BUDGET = "budget"
    EFFECT = "effect"
    SIGNAL = "signal"
    CHILD = "child"
    APPROVAL = "approval"
    FREEZE = "freeze"
    QUOTA = "quota"
    LIMIT = "limit"
    BREAKER = "breaker"
    SLEEP = "sleep"
    BATCH = "batch"
    APP_RETRY = "app_retry"
    PAUSED = "paused"
    WORKER_BACKOFF = "worker_backoff"
    SCHEDULED = "scheduled"
    CODE = "code"
    QUEUE = "queue"
    DRAINING = "draining"
    NO_PODS = "no_pods"
    CAPACITY = "capacity"
    READY = "ready"


@attrs.frozen(kw_only=True)
class Why:
    """One cause, in words, and its remedies."""

    cause: Cause
    sentence: str
    """For people, without a full stop. Contains text of jobs and users: pass it through `safe`."""
    expected_at: datetime | None
    """When the cause is expected to go; None if unknown."""
    since: datetime | None
    """Since when the cause holds, where that is useful."""
    ways_out: tuple[str, ...]
    """Commands that help."""


@attrs.frozen
class _Found:
    sentence: str
    expected_at: datetime | None = None
    since: datetime | None = None
    ways_out: tuple[str, ...] = ()


def why(facts: WhyFacts) -> Why:
    """Return the first cause that holds; the last one always does."""
    for cause, find in PRECEDENCE:
        found = find(facts)
        if found is not None:
            found = attrs.evolve(found, sentence=found.sentence + _threads(facts) + _order(facts))
            return Why(cause=cause, **attrs.asdict(found, recurse=False))
    raise AssertionError("the last cause always holds")


def _order(f: WhyFacts) -> str:
    """Return what the sentence adds about the job's place in the line, or nothing."""
    if f.status.is_terminal:
        return ""
    late = ""
    if f.due_by is not None and f.due_by < f.now:
        late = f"; it is late: its deadline was {utc_time(f.due_by)}"
    if f.task is not None and f.task.state == "READY" and f.task.priority != f.priority:
        return f"{late}; its priority has risen from {f.priority} to {f.task.priority}"
    return late


def _threads(f: WhyFacts) -> str:
    """Return what the sentence adds about threads that time-outs have left behind, or nothing."""
    last, parts = f.last, []
    if last is not None and last.outcome == "handed_back" and is_worn_out(last.threads_lost):
        parts.append(f"pod {last.pod} handed it back: it drained with {_lost(last.threads_lost)}")
    if _is_taken(f) and f.owner is not None and f.owner.threads_lost:
        parts.append(f"its pod runs with {_lost(f.owner.threads_lost)}")
    elif last is not None and last.code in _TIMED_OUT and last.has_pod and last.threads_lost:
        parts.append(f"its thread may still run on pod {last.pod}, {_lost(last.threads_lost)}")
    return "".join(f"; {part}" for part in parts)


def _lost(count: int) -> str:
    return f"{count} of {THREADS_MAX} threads left behind by time-outs"


def _ended(f: WhyFacts) -> _Found | None:
    match f.status:
        case JobStatus.COMPLETED:
            return _Found("it has completed", since=f.finished_at)
        case JobStatus.FAILED:
            kind = f" with {f.error_class}" if f.error_class else ""
            out = "jobs retry" if f.error_code in DECISIONS else "dead show"
            ways = (f"cortex jobs show {f.job_id}", f"cortex {out} {f.job_id}")
            return _Found(
                f"it failed{kind}: {_clipped(f.error_message)}", since=f.finished_at, ways_out=ways
            )
        case JobStatus.CANCELLED:
            reason = f": {_clipped(f.cancel_reason)}" if f.cancel_reason else ""
            who = f" by {f.cancelled_by}" if f.cancelled_by else ""
            return _Found(f"it was cancelled{who}{reason}", since=f.finished_at)
        case _:
            return None


def _orphaned(f: WhyFacts) -> _Found | None:
    if f.task is None and f.status in (JobStatus.PENDING, JobStatus.RUNNING):
        ways = (f"cortex jobs cancel {f.job_id}",)
        then = (
            "a sweep will run it again" if f.status is JobStatus.RUNNING else "nothing will run it"
        )
        return _Found(f"its task was deleted: {then}", ways_out=ways)
    if not _is_taken(f):
        return None
    then = "cancelled, as requested" if f.cancel_requested_at else "taken over"
    name = f.owner.name if f.owner else "that has no record"
    if f.owner is None or not f.owner.is_alive:
        if not f.fleet.ready_count:
            is_left = not f.fleet.has_ticks
            comes = ", and no other pod is running to take it over" if is_left else _BY_TICK
            return _Found(
                f"its pod {name} is dead{comes}",
                since=f.heartbeat_at,
                ways_out=("cortex up",) if is_left else (),
            )
        soon = f.now + timedelta(seconds=TAKEN_OVER_CHECKS * f.fleet.look_s)
        return _Found(f"its pod {name} is dead; it is being {then}", soon, f.heartbeat_at)
    silent_after = timedelta(seconds=f.owner.silent_after_s)
    if f.heartbeat_at is None or f.now - f.heartbeat_at <= silent_after:
        return None
    swept_at = f.heartbeat_at + timedelta(seconds=f.owner.swept_after_s)
    sentence = f"its pod {name} lives, but has been silent for too long; it will be {then}"
    return _Found(sentence, max(swept_at, f.now), f.heartbeat_at, ("cortex pods ls",))


def _deaf(f: WhyFacts) -> _Found | None:
    if not _is_taken(f) or f.owner is None or f.deaf is None:
        return None
    since = f.deaf.at - timedelta(seconds=f.deaf.over_s)
    by = f.deaf.stopped_by.replace("_", " ")
    sentence = f"its handler ignores its cancellation ({by}), at {_clipped(f.deaf.stands_at)}"
    ended_at = max(f.now, since + timedelta(seconds=ABANDONED_AFTER_S))
    return _Found(f"{sentence}; pod {f.owner.name} ends it", ended_at, since)


def _cancelling(f: WhyFacts) -> _Found | None:
    if f.cancel_requested_at is None:
        return None
    pod = f"its pod {f.owner.name}" if _is_taken(f) and f.owner else "the next pod that takes it"
    who = f.cancelled_by or "somebody"
    return _Found(
        f"{who} requested its cancellation; {pod} has to stop it", since=f.cancel_requested_at
    )


def _running(f: WhyFacts) -> _Found | None:
    if not _is_taken(f) or f.owner is None:
        return None
    code = f" (code {f.owner.code_version})" if f.owner.code_version else ""
    after = f", after step {last_step(f.step)}" if f.step else ", before its first step"
    if f.running_step is not None:
        after = f", in step {running_step(f.running_step, f.now)}"
    return _Found(
        f"it is running on {f.owner.name}{code}, attempt {f.attempt}{after}",
        since=f.started_at,
        ways_out=(f"cortex jobs watch {f.job_id}",),
    )


def _budget(f: WhyFacts) -> _Found | None:
    b = f.budget
    if f.task is not None or f.status not in _SUSPENDED or b is None or not b.is_spent:
        return None
    if f.next_retry_at is not None and f.next_retry_at <= f.now:
        return None
    spent = f"{worded(b.spent, Unit(b.unit))} of {worded(b.limit, Unit(b.unit))}"
    ways = (f"cortex budgets raise {shlex.quote(b.name)} --to AMOUNT --reason TEXT",)
    # A daily budget resets by itself; only a person can raise a run's budget.
    words = f"budget {b.name}"
    if b.share_of is not None:
        words = f"{b.name}, the share that job {short_id(b.share_of)} gave to its child,"
    return _Found(f"{words} is spent: {spent}", f.next_retry_at, f.suspended_at, ways)


def _effect(f: WhyFacts) -> _Found | None:
    observed = f.awaited
    if f.task is not None or not isinstance(observed, EffectWait):
        return None
    return _Found(
        f"it {_clipped(observed.words)}", since=f.suspended_at, ways_out=observed.ways_out
    )


def _approval(f: WhyFacts) -> _Found | None:
    is_asked = (f.waiting_on or "").startswith(APPROVAL)
    if f.task is not None or f.budget is not None or f.status not in _SUSPENDED:
        return None
    if is_asked and f.waits:
        return _woken(f)
    if f.status is not JobStatus.WAITING_FOR_APPROVAL:
        return None
    observed = f.awaited
    if isinstance(observed, ApprovalWait) and observed.status is ApprovalStatus.PENDING:
        over_at = max(observed.expires_at, f.now)
        return _Found(f"it {_clipped(observed.words)}", over_at, f.suspended_at, observed.ways_out)
    waiting_on = f.waiting_on or ""
    if waiting_on.startswith(PERSON):
        source = waiting_on.removeprefix(PERSON)
        what = needs_person(source, f.last.error if f.last else None)
        return _Found(
            f"{what}; it waits until that is fixed",
            since=f.suspended_at,
            ways_out=(f"cortex jobs retry {f.job_id}",),
        )
    what = f" about {named(waiting_on)}" if waiting_on else ""
    return _Found(f"it waits for a person's decision{what}", since=f.suspended_at)


def _freeze(f: WhyFacts) -> _Found | None:
    observed = f.awaited
    if f.task is not None or not isinstance(observed, FreezeWait):
        return None
    return _Found(
        f"it {_clipped(observed.words)}", since=f.suspended_at, ways_out=observed.ways_out
    )


def _quota(f: WhyFacts) -> _Found | None:
    observed = f.awaited
    if f.task is not None or not isinstance(observed, QuotaWait):
        return None
    if not observed.is_used_up and (f.next_retry_at is None or f.next_retry_at <= f.now):
        return None
    return _Found(f"it {observed.words}", observed.resets_at, f.suspended_at, observed.ways_out)


def _limit(f: WhyFacts) -> _Found | None:
    """The limits of its type have no room for it, or for the tokens of its call."""
    ways = ("cortex limits ls",)
    if f.task is None and f.waiting_on is not None and f.waiting_on.startswith(LIMIT):
        reason = f.last.error if f.last is not None else None
        words = _clipped(reason) or f"it waits for {named(f.waiting_on)}"
        return _Found(words, f.next_retry_at, f.suspended_at, ways)
    if f.line is None or f.pause is not None:
        return None
    if not f.fleet.ready_count and not any(each.is_full for each in f.line.limits):
        return None  # it waits for a pod: only pods let it through
    return _Found(limit_text(f.line), _room_at(f.line), f.suspended_at, ways)


def limit_text(line: LineFacts) -> str:
    """Describe where the job stands, and what fills the limit that it waits for."""
    full = next((each for each in line.limits if each.is_full), None)
    place = f"place {_upto(line.ahead + 1)} of {_upto(line.waiting)}"
    if not line.waiting:  # a list, for which nobody is counted
        place = "waits for room"
    if full is None:
        return f"{place}: its limits have room, it is about to be let through"
    whose = "" if full.key is None else f" for {full.key}={full.value or '(none)'}"
    counted = "run" if full.per is None else f"began in the last {full.per}"
    used = f"{full.used:,} of {full.amount:,} {counted}"
    return f"{place}{whose} in limit {full.name}; {used}"


def _room_at(line: LineFacts) -> datetime | None:
    """When it may be let through, if only time has to pass."""
    full = [each for each in line.limits if each.is_full]
    if line.ahead or not full or any(each.room_at is None for each in full):
        return None
    return max(each.room_at for each in full if each.room_at is not None)


def _upto(number: int) -> str:
    return f"{AHEAD_MAX:,}+" if number > AHEAD_MAX else f"{number:,}"


def _breaker(f: WhyFacts) -> _Found | None:
    b = f.breaker
    if f.task is not None or f.status is not JobStatus.RETRY or b is None or b.state == "CLOSED":
        return None
    name = shlex.quote(b.name)
    # Not a retry: the breaker decides about the job's calls, even after a person releases the job.
    close = f"cortex breakers close {name} --reason TEXT"
    if b.forced_by is not None:
        reason = f": {_clipped(b.reason)}" if b.reason else ""
        is_over = b.open_until is not None and b.open_until <= f.now
        if not is_over:
            held = f"{b.forced_by} holds breaker {b.name} open{reason}"
            return _Found(held, b.open_until, f.suspended_at, (close,))
    if b.is_probed:
        tried = f"one call is testing breaker {b.name}; its outcome decides"
        return _Found(tried, None, f.suspended_at, (close,))
    probe_at = None if b.open_until is None else max(b.open_until, f.now)
    sentence = f"breaker {b.name} is {b.state.lower().replace('_', '-')}; one job may test it next"
    return _Found(sentence, probe_at, f.suspended_at, (close,))


def _sleep(f: WhyFacts) -> _Found | None:
    due_at = _due_at(f)
    if f.waiting_on != SLEEP or f.task is not None or due_at is None:
        return None
    if f.waits:
        return _woken(f)
    reason = f": {_clipped(f.last.error)}" if f.last is not None and f.last.error else ""
    return _Found(f"it sleeps{reason}", due_at, f.suspended_at)


def _signal(f: WhyFacts) -> _Found | None:
    is_it = f.task is None and f.status in _SUSPENDED and (f.waiting_on or "").startswith(SIGNAL)
    return _woken(f) if is_it else None


def _child(f: WhyFacts) -> _Found | None:
    is_it = f.task is None and f.status in _SUSPENDED and (f.waiting_on or "").startswith(CHILD)
    return _woken(f) if is_it else None


def _woken(f: WhyFacts) -> _Found:
    """Name all that would wake a suspended job, and how to bring it about."""
    parts: list[str] = []
    ways: list[str] = []
    for wait in f.waits:
        part, way = _wait(f, wait)
        parts.append(part)
        ways += way
    if f.next_retry_at is not None:
        time = "its timer" if f.waiting_on == SLEEP else "the end of its time"
        parts.append(f"{time} at {utc_time(f.next_retry_at)}")
    if not parts:  # it was woken just now
        parts.append(named(f.waiting_on or "its next attempt"))
    what = parts[0] if len(parts) == 1 else f"the first of: {'; '.join(parts)}"
    due_at = None if f.next_retry_at is None else max(f.next_retry_at, f.now)
    return _Found(f"it waits for {what}", due_at, f.suspended_at, tuple(dict.fromkeys(ways)))


def children_text(counts: Mapping[str, int]) -> str:
    """Say how many children have not ended: `: 48 running, 2 pending, 9,950 held`."""
    words = Counter[str]()
    for state, number in sorted(counts.items(), key=lambda each: _CHILD_STATES.index(each[0])):
        words[_CHILD_WORDS.get(state, "waiting")] += number
    text = ", ".join(f"{number:,} {word}" for word, number in words.items())
    return f": {text}" if text else ""


_CHILD_WORDS: Final = {
    "RUNNING": "running",
    "PENDING": "pending",
    "unserved": "of a type that no pod runs",
    "held": "held until others end",
}
_CHILD_STATES: Final = (*_CHILD_WORDS, "RETRY", "WAITING_FOR_APPROVAL")


def _wait(f: WhyFacts, wait: WaitFacts) -> tuple[str, tuple[str, ...]]:
    """Return one of the things that wake a job, in words, and the commands that bring it about."""
    name = shlex.quote(wait.name)
    if wait.kind == "signal" and wait.key is not None:
        way = f"cortex jobs signal {name} --key {shlex.quote(wait.key)} --data JSON"
        return f"signal {_clipped(wait.name)} to key {_clipped(wait.key)}", (way,)
    if wait.kind == "signal":
        way = f"cortex jobs signal {f.job_id} {name} --data JSON"
        return f"signal {_clipped(wait.name)}", (way,)
    if isinstance(wait.awaited, ApprovalWait):
        words = wait.awaited.words.removeprefix("waits for ")
        return _clipped(words), wait.awaited.ways_out
    if wait.kind == "child":
        counts = children_text(wait.children or {})
        way = f"cortex jobs tree {f.job_id}"
        return f"its children of step {_clipped(wait.name)}{counts}", (way,)
    return named(f"{APPROVAL}{wait.name}"), ()


def _batch(f: WhyFacts) -> _Found | None:
    if f.waiting_on != BATCH or f.task is not None or f.status is not JobStatus.RETRY:
        return None
    reason = (
        f.last.error if f.last is not None and f.last.error else "a model call waits in a batch"
    )
    words = f"{_clipped(reason)}, at half the price; its provider answers within a day"
    return _Found(words, None, f.suspended_at)


def _app_retry(f: WhyFacts) -> _Found | None:
    due_at = _due_at(f)
    if f.task is not None or f.status is not JobStatus.RETRY or due_at is None:
        return None
    ways = (f"cortex jobs retry {f.job_id}",)
    if f.waiting_on is not None and f.waiting_on.startswith(TRUST):
        agent, _, tool = f.waiting_on.removeprefix(TRUST).partition("/")
        changed = (
            f"a person must accept what MCP server {tool.partition('.')[0]} says of {tool} now"
        )
        return _Found(changed, None, f.suspended_at, (f"cortex agents trust {agent} {tool}",))
    if f.waiting_on is not None:
        return _Found(f"it waits for {f.waiting_on}, {_after(f)}", due_at, f.suspended_at, ways)
    number = f"retry {f.retry_count} of {f.max_retries}"
    return _Found(f"it waits for its {number}, {_after(f)}", due_at, f.suspended_at, ways)


def _paused(f: WhyFacts) -> _Found | None:
    if f.pause is None:
        return None
    paused = f"{_paused_words(f.pause.target)} was paused by {f.pause.by}"
    sentence = f"{paused}: {_clipped(f.pause.reason)}"
    ways = (f"cortex resume {shlex.quote(str(f.pause.target))}",)
    return _Found(sentence, since=f.pause.at, ways_out=ways)


def _paused_words(target: Pausable) -> str:
    match target.kind:
        case PauseKind.ALL:
            return "everything"
        case PauseKind.JOB:
            return "it"
        case _:
            return f"its {target.words}"


def _worker_backoff(f: WhyFacts) -> _Found | None:
    if f.status is not JobStatus.RUNNING or f.task is None or f.task.run_at <= f.now:
        return None
    number = f"{f.task.attempts_spent + 1} of {f.task.max_attempts}"
    return _Found(
        f"it waits for its worker attempt {number}, {_after(f)}",
        f.task.run_at,
        f.suspended_at,
        (f"cortex jobs retry {f.job_id}",),
    )


def _scheduled(f: WhyFacts) -> _Found | None:
    if f.task is None or f.task.run_at <= f.now:
        return None
    return _Found("it was submitted to start later", f.task.run_at)


def _queue(f: WhyFacts) -> _Found | None:
    if f.queue is None or f.task is None or f.task.state != "QUEUED":
        return None
    is_of_key = is_queue_of_key(f.queue.name)
    one = f"its queue {f.queue.name} runs one job after another"
    if is_of_key:
        one = "jobs of its singleton key run one after another"
    ahead = f"{_ahead(f)} before it" if f.ahead_count else "it comes next"
    if f.queue.head_id is None:
        return _Found(f"{one}; {ahead}") if f.ahead_count else None
    if f.queue.head_waits is not None:
        one = one if is_of_key else f"its queue {f.queue.name} is strict"
        waits = _WAITS[f.queue.head_waits]
        sentence = f"{one}: job {f.queue.head_id} has begun and {waits}; {ahead}"
        return _Found(sentence, ways_out=(f"cortex why {f.queue.head_id}",))
    does = "is running" if f.queue.is_head_running else "is about to"
    sentence = f"{one}, and job {f.queue.head_id} {does}; {ahead}"
    return _Found(sentence, ways_out=(f"cortex why {f.queue.head_id}",))


_WAITS: Final = {
    JobStatus.RUNNING: "waits for its next attempt",
    JobStatus.RETRY: "waits to go on",
    JobStatus.WAITING_FOR_APPROVAL: "waits for a person or an event",
}


def _draining(f: WhyFacts) -> _Found | None:
    if f.fleet.knowing_count or not f.fleet.draining_count:
        return None
    known = (
        f"have its tools {_listed(f.fleet.needs)}"
        if f.fleet.needs
        else f"know its job type {f.type!r}"
    )
    sentence = f"only pods that are leaving {known}"
    return _Found(sentence, ways_out=("cortex up", "cortex pods ls"))


def _no_pods(f: WhyFacts) -> _Found | None:
    if f.fleet.ready_count:
        return None
    if f.fleet.has_ticks and f.fleet.do_ticks_lack:
        return _Found(
            f"no cortex tick knows its job type {f.type!r}", ways_out=("cortex jobs types",)
        )
    if f.fleet.has_ticks:
        return _Found("it waits for the next cortex tick; no pod is running")
    return _Found("no pod is there to run it", ways_out=("cortex up",))


def _code(f: WhyFacts) -> _Found | None:
    """The job waits for code: no code that runs can take it, see `cortex.domain.job.Misfit`."""
    is_due = f.task is not None and f.task.state in ("READY", "QUEUED", "STRANDED")
    if not is_due or f.fleet.knowing_count or f.fleet.draining_count:
        return None
    if f.misfits:
        ways = (*_NEW_CODE, f"cortex jobs retry {f.job_id}", f"cortex jobs cancel {f.job_id}")
        return _Found(f"{misfit_text(f.misfits)}{_until(f)}", since=f.suspended_at, ways_out=ways)
    if not f.fleet.ready_count:
        return None
    if f.type in f.fleet.types and f.fleet.needs:
        return _Found(f"no ready pod has {_tools(f.fleet)}", ways_out=_NEW_CODE)
    near = difflib.get_close_matches(f.type, f.fleet.types, n=1)
    known = f"the nearest known one is {near[0]}" if near else f"known: {_listed(f.fleet.types)}"
    return _Found(
        f"no pod knows its job type {f.type!r}; {known}", ways_out=("cortex jobs types", *_NEW_CODE)
    )


def misfit_text(misfits: tuple[MisfitFacts, ...]) -> str:
    """Describe each misfit, and which codes looked."""
    looked: dict[str, list[str]] = {}
    for each in misfits:
        pod = f"pod {each.pod}" if each.pod else "a pod that has ended"
        code = f"code {each.version} of {pod}" if each.version else pod
        looked.setdefault(_clipped(each.error), []).append(code)
    return "; ".join(
        f"it does not fit {' and '.join(codes[:CODES_SHOWN])}{_more(codes)}: {error}"
        for error, codes in list(looked.items())[:CODES_SHOWN]
    )


def _more(codes: list[str]) -> str:
    more = len(codes) - CODES_SHOWN
    return f" and {more} more" if more > 0 else ""


def _until(f: WhyFacts) -> str:
    return "" if f.next_retry_at is None else f"; it fails at {utc_time(f.next_retry_at)}"


def _tools(fleet: FleetFacts) -> str:
    if fleet.lacking:
        tools = "tool" if len(fleet.lacking) == 1 else "tools"
        return f"its {tools} {_listed(fleet.lacking)}"
    return f"all its tools: {_listed(fleet.needs)}"


def _capacity(f: WhyFacts) -> _Found | None:
    if f.fleet.free_slots > 0 or f.type == BULK:  # a pod has a slot of its own for that type
        return None
    pods = _counted(f.fleet.knowing_count, "pod")
    full = f"all {f.fleet.slots} slots of the {pods} that know its type {f.type} are taken"
    return _Found(f"{full}; {_ahead(f)} ahead of it", ways_out=("cortex up", "cortex pods ls"))


def _ready(f: WhyFacts) -> _Found:
    pods = _counted(f.fleet.knowing_count, "pod")
    room = "a slot for bulk operations" if f.type == BULK else f"{f.fleet.free_slots} free slots"
    return _Found(f"it is due: {pods} with {room} can take it; {_ahead(f)} ahead of it", f.now)


PRECEDENCE: Final[tuple[tuple[Cause, Callable[[WhyFacts], _Found | None]], ...]] = (
    (Cause.ENDED, _ended),
    (Cause.ORPHANED, _orphaned),
    (Cause.DEAF, _deaf),
    (Cause.CANCELLING, _cancelling),
    (Cause.RUNNING, _running),
    (Cause.BUDGET, _budget),
    (Cause.EFFECT, _effect),
    (Cause.SIGNAL, _signal),
    (Cause.CHILD, _child),
    (Cause.APPROVAL, _approval),
    (Cause.FREEZE, _freeze),
    (Cause.QUOTA, _quota),
    (Cause.LIMIT, _limit),
    (Cause.BREAKER, _breaker),
    (Cause.SLEEP, _sleep),
    (Cause.BATCH, _batch),
    (Cause.APP_RETRY, _app_retry),
    (Cause.PAUSED, _paused),
    (Cause.WORKER_BACKOFF, _worker_backoff),
    (Cause.SCHEDULED, _scheduled),
    (Cause.CODE, _code),
    (Cause.QUEUE, _queue),
    (Cause.DRAINING, _draining),
    (Cause.NO_PODS, _no_pods),
    (Cause.CAPACITY, _capacity),
    (Cause.READY, _ready),
)
"""First what has happened to the job, then what it waits for, then what the fleet lacks."""


def _is_taken(f: WhyFacts) -> bool:
    return f.task is not None and f.task.state == "LOCKED"


def _due_at(f: WhyFacts) -> datetime | None:
    """When the job is due, if in the future.

    What it waited for may have released it earlier.
    """
    is_let_go = f.breaker is not None or f.budget is not None or f.awaited is not None
    if f.next_retry_at is None or f.next_retry_at <= f.now or is_let_go:
        return None
    return f.next_retry_at


def _after(f: WhyFacts) -> str:
    if f.last is None:
        return "as an earlier attempt requested"
    kind = f" with {f.last.error_class}" if f.last.error_class else ""
    error = f": {_clipped(f.last.error)}" if f.last.error else ""
    return f"since attempt {f.last.attempt} ended{kind}{error}"


def _clipped(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= ERROR_CHARS_MAX else f"{line[: ERROR_CHARS_MAX - 1]}…"


def needs_person(source: str, error: str | None) -> str:
    """Describe what happened to a job that only a person can help; text of others, on one line."""
    text = _clipped(error)
    if _NO_CREDIT.search(text):
        return f"{source} has no credit: {text}"
    return f"{source} needs a person: {text}" if text else f"{source} needs a person"


_NO_CREDIT: Final = re.compile(r"\b402\b|billing|credit|spend_limit", re.IGNORECASE)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"


def _ahead(f: WhyFacts) -> str:
    if f.ahead_count > AHEAD_MAX:
        return f"{AHEAD_MAX}+ are"
    return f"{f.ahead_count or 'none'} {'is' if f.ahead_count in (0, 1) else 'are'}"
