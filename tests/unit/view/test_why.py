"""Why a job is not running: each cause by its facts, and their order."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex.domain.approvals.approval import ApprovalStatus, Risk
from cortex.domain.effect import EffectStatus
from cortex.domain.job import JobStatus
from cortex.domain.queueing.pauses import Pausable, PauseKind
from cortex.domain.quota import Quota
from cortex.domain.waiting import ApprovalWait, EffectWait, FreezeWait, QuotaWait
from cortex.domain.why_facts import (
    AHEAD_MAX,
    AttemptFacts,
    BreakerFacts,
    BudgetFacts,
    DeafFacts,
    FleetFacts,
    LimitFacts,
    LineFacts,
    MisfitFacts,
    OwnerFacts,
    PauseFacts,
    QueueFacts,
    TaskFacts,
    WaitFacts,
    WhyFacts,
)
from cortex.view.why import PRECEDENCE, Cause, why

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
JOB, OTHER = UUID(int=1), UUID(int=2)
LIVING = OwnerFacts(name="pod-1", is_alive=True)
DEAD = OwnerFacts(name="pod-1", is_alive=False)
QUICK = attrs.evolve(LIVING, silent_after_s=11, swept_after_s=30)
SLOW = attrs.evolve(LIVING, silent_after_s=305, swept_after_s=1000)
FLEET = FleetFacts(
    ready_count=2, knowing_count=1, slots=10, free_slots=3, draining_count=0, types=("work", "mail")
)
NO_FLEET = FleetFacts(
    ready_count=0, knowing_count=0, slots=0, free_slots=0, draining_count=0, types=()
)
TICKED = attrs.evolve(NO_FLEET, has_ticks=True)
LACKING = attrs.evolve(TICKED, do_ticks_lack=True)
OPEN = BreakerFacts(
    name="llm:m", state="OPEN", open_until=None, is_probed=False, forced_by=None, reason=None
)
SPENT = BudgetFacts(name="tenant:t:usd:day", unit="usd", limit=Decimal(5), spent=Decimal("5.25"))
ASKED = ApprovalWait(
    id=OTHER,
    what="refund",
    risk=Risk.CRITICAL,
    people=2,
    agreed=1,
    status=ApprovalStatus.PENDING,
    requested_by="li",
    expires_at=NOW + timedelta(hours=1),
)
DOUBTED = EffectWait(id=OTHER, tool="pay", status=EffectStatus.UNKNOWN, why="no answer\ncame")
FROZEN = FreezeWait(by="ana", reason="an audit", frozen_at=NOW - timedelta(hours=1))
USED_UP = QuotaWait(
    quota=Quota.parse("pay", "500 EUR/day", argument="amount"),
    used=Decimal(480),
    resets_at=NOW + timedelta(hours=12),
)
PAUSED = PauseFacts(
    target=Pausable(PauseKind.QUEUE, "mail"),
    by="ana",
    at=NOW - timedelta(minutes=5),
    reason="a\ndeploy",
)
FULL_RATE = LimitFacts(
    name="a:jobs/day:n",
    key="n",
    value="7",
    unit="jobs",
    per="day",
    amount=5,
    used=5,
    room_at=NOW + timedelta(seconds=60),
)
FAILED_BEFORE = AttemptFacts(
    attempt=3, outcome="retry", error="529\noverloaded", error_class="TRANSIENT_APP"
)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_task(state: str = "READY", *, due_s: float = -1.0) -> TaskFacts:
    return TaskFacts(state=state, run_at=at(due_s), attempts_spent=1, max_attempts=3)


def facts(**fields: Any) -> WhyFacts:
    """A new job that is about to be claimed."""
    nothing: dict[str, Any] = dict.fromkeys(attrs.fields_dict(WhyFacts))
    defaults = nothing | {
        "now": NOW,
        "job_id": JOB,
        "type": "work",
        "status": JobStatus.PENDING,
        "attempt": 0,
        "retry_count": 0,
        "max_retries": 5,
        "ahead_count": 0,
        "task": a_task(),
        "fleet": FLEET,
    }
    return WhyFacts(**defaults | fields)


def running(**fields: Any) -> WhyFacts:
    defaults = {"task": a_task("LOCKED"), "owner": LIVING, "attempt": 1, "heartbeat_at": at(-1)}
    return facts(status=JobStatus.RUNNING, **defaults | fields)


def in_retry(**fields: Any) -> WhyFacts:
    defaults = {"task": None, "retry_count": 2, "next_retry_at": at(40), "last": FAILED_BEFORE}
    return facts(status=JobStatus.RETRY, **defaults | fields)


def in_queue(**fields: Any) -> WhyFacts:
    queue = QueueFacts(name="mail", head_id=OTHER, is_head_running=True)
    return facts(**{"task": a_task("QUEUED"), "queue": queue, **fields})


def waiting(**fields: Any) -> WhyFacts:
    return facts(status=JobStatus.WAITING_FOR_APPROVAL, task=None, **fields)


def fleet(**fields: Any) -> FleetFacts:
    return attrs.evolve(FLEET, **fields)


def breaker(**fields: Any) -> BreakerFacts:
    return attrs.evolve(OPEN, **fields)


# Facts, their cause, words of the sentence, and seconds until it is expected to change.
A_MISFIT = MisfitFacts(
    attempt=1, at=NOW, kind="arguments", error="it lacks site", pod="a", version="v1"
)
MISFITS = (attrs.evolve(A_MISFIT, attempt=2, pod="b", version="v2"), A_MISFIT)
CASES: list[tuple[WhyFacts, Cause, str, float | None]] = [
    (
        running(
            cancel_requested_at=at(-9),
            deaf=DeafFacts(
                stopped_by="cancelled", over_s=5.0, at=at(-3), stands_at="job.py:7 work"
            ),
        ),
        Cause.DEAF,
        "its handler ignores its cancellation (cancelled), at job.py:7 work; pod",
        22,
    ),
    (in_queue(pause=PAUSED), Cause.PAUSED, "its queue mail was paused by ana: a deploy", None),
    (facts(), Cause.READY, "1 pod with 3 free slots can take it; none is ahead of it", 0),
    (facts(ahead_count=1), Cause.READY, "1 is ahead", 0),
    (facts(ahead_count=AHEAD_MAX + 1), Cause.READY, "1000+ are ahead", 0),
    (facts(fleet=fleet(free_slots=0)), Cause.CAPACITY, "all 10 slots of the 1 pod that", None),
    (facts(type="bulk", fleet=fleet(free_slots=0)), Cause.READY, "a slot for bulk operations", 0),
    (
        facts(type="wok", fleet=fleet(knowing_count=0)),
        Cause.CODE,
        "nearest known one is work",
        None,
    ),
    (facts(type="xyz", fleet=fleet(knowing_count=0)), Cause.CODE, "known: work, mail", None),
    (
        facts(fleet=fleet(knowing_count=0, needs=("a", "look_up"), lacking=("look_up",))),
        Cause.CODE,
        "no ready pod has its tool look_up",
        None,
    ),
    (
        facts(fleet=fleet(knowing_count=0, needs=("a", "b"))),
        Cause.CODE,
        "no ready pod has all its tools: a, b",
        None,
    ),
    (
        facts(fleet=fleet(knowing_count=0, draining_count=1, needs=("a",), lacking=("a",))),
        Cause.DRAINING,
        "only pods that are leaving have its tools a",
        None,
    ),
    (
        facts(
            status=JobStatus.RETRY,
            waiting_on="code",
            next_retry_at=at(60),
            misfits=MISFITS,
            fleet=fleet(knowing_count=0),
        ),
        Cause.CODE,
        "it does not fit code v2 of pod b and code v1 of pod a: it lacks site; it fails at ",
        None,
    ),
    (
        facts(misfits=(A_MISFIT,), fleet=NO_FLEET),
        Cause.CODE,
        "it does not fit code v1 of pod a: it lacks site",
        None,
    ),
    (facts(fleet=NO_FLEET), Cause.NO_PODS, "no pod is there", None),
    (facts(fleet=TICKED), Cause.NO_PODS, "it waits for the next cortex tick", None),
    (facts(fleet=LACKING), Cause.NO_PODS, "no cortex tick knows its job type 'work'", None),
    (facts(fleet=attrs.evolve(NO_FLEET, draining_count=1)), Cause.DRAINING, "leaving", None),
    (facts(task=a_task("LATER", due_s=60)), Cause.SCHEDULED, "start later", 60),
    (in_queue(ahead_count=2), Cause.QUEUE, f"job {OTHER} is running; 2 are before it", None),
    (in_queue(), Cause.QUEUE, "it comes next", None),
    (running(), Cause.RUNNING, "on pod-1, attempt 1, before its first step", None),
    (
        running(owner=attrs.evolve(LIVING, code_version="v2")),
        Cause.RUNNING,
        "on pod-1 (code v2), attempt 1",
        None,
    ),
    (running(step="3 fetch"), Cause.RUNNING, "after step 3 · fetch", None),
    (running(owner=DEAD), Cause.ORPHANED, "pod-1 is dead; it is being taken over", 2),
    (running(owner=DEAD, fleet=NO_FLEET), Cause.ORPHANED, "no other pod is running", None),
    (running(owner=DEAD, fleet=TICKED), Cause.ORPHANED, "the next cortex tick takes it", None),
    (running(heartbeat_at=at(-96)), Cause.ORPHANED, "has been silent", 360 - 96),
    (running(heartbeat_at=at(-999)), Cause.ORPHANED, "has been silent", 0),
    (running(owner=QUICK, heartbeat_at=at(-12)), Cause.ORPHANED, "has been silent", 30 - 12),
    (running(owner=SLOW, heartbeat_at=at(-96)), Cause.RUNNING, "on pod-1", None),
    (running(heartbeat_at=None), Cause.RUNNING, "on pod-1", None),
    (
        running(owner=DEAD, fleet=attrs.evolve(FLEET, look_s=3.0)),
        Cause.ORPHANED,
        "it is being taken over",
        12,
    ),
    (running(task=None), Cause.ORPHANED, "its task was deleted: a sweep will run it again", None),
    (facts(task=None), Cause.ORPHANED, "its task was deleted: nothing will run it", None),
    (
        running(cancel_requested_at=at(-5), cancelled_by="ana"),
        Cause.CANCELLING,
        "ana requested its cancellation; its pod pod-1 has to stop it",
        None,
    ),
    (
        running(task=a_task(), owner=None, cancel_requested_at=at(-5), cancelled_by="ana"),
        Cause.CANCELLING,
        "the next pod that takes it",
        None,
    ),
    (
        running(task=a_task("LATER", due_s=7), owner=None, last=FAILED_BEFORE),
        Cause.WORKER_BACKOFF,
        "worker attempt 2 of 3, since attempt 3 ended with TRANSIENT_APP: 529 overloaded",
        7,
    ),
    (running(task=a_task(), owner=None), Cause.READY, "it is due", 0),
    (in_retry(), Cause.APP_RETRY, "retry 2 of 5, since attempt 3 ended with TRANSIENT_APP", 40),
    (in_retry(waiting_on="sleep"), Cause.SLEEP, "it sleeps: 529 overloaded", 40),
    (
        waiting(waiting_on="signal:paid", waits=(WaitFacts(kind="signal", name="paid"),)),
        Cause.SIGNAL,
        "it waits for signal paid",
        None,
    ),
    (
        in_retry(
            waiting_on="signal:paid", waits=(WaitFacts(kind="signal", name="paid", key="o\n1"),)
        ),
        Cause.SIGNAL,
        "the first of: signal paid to key o 1; the end of its time at 2030-01-01",
        40,
    ),
    (
        waiting(waiting_on="child:resize", waits=(WaitFacts(kind="child", name="resize"),)),
        Cause.CHILD,
        "it waits for its children of step resize",
        None,
    ),
    (
        in_retry(
            waiting_on=f"approval:{OTHER}",
            awaited=ASKED,
            waits=(
                WaitFacts(kind="approval", name=str(OTHER), awaited=ASKED),
                WaitFacts(kind="signal", name="paid"),
            ),
        ),
        Cause.APPROVAL,
        "approve refund (CRITICAL), asked for by li; signal paid; the end of its time at",
        40,
    ),
    (in_retry(waiting_on="batch"), Cause.BATCH, "its provider answers within a day", None),
    (in_retry(waiting_on="llm:m"), Cause.APP_RETRY, "it waits for llm:m", 40),
    (in_retry(waiting_on="limit:a:tokens/day"), Cause.LIMIT, "529 overloaded", 40),
    (
        facts(task=a_task("HELD"), line=LineFacts(ahead=0, waiting=1, limits=(FULL_RATE,))),
        Cause.LIMIT,
        "place 1 of 1 for n=7 in limit a:jobs/day:n; 5 of 5 began in the last day",
        60,
    ),
    (
        facts(task=a_task("HELD"), line=LineFacts(ahead=1001, waiting=1001, limits=(FULL_RATE,))),
        Cause.LIMIT,
        "place 1,000+ of 1,000+ for n=7 in limit a",
        None,
    ),
    (in_retry(next_retry_at=at(-1)), Cause.READY, "it is due", 0),
    (in_retry(task=a_task()), Cause.READY, "it is due", 0),
    (in_retry(breaker=breaker(open_until=at(9))), Cause.BREAKER, "llm:m is open", 9),
    (in_retry(breaker=breaker(open_until=at(-9))), Cause.BREAKER, "one job may test it next", 0),
    (
        in_retry(breaker=breaker(state="HALF_OPEN", open_until=at(-9))),
        Cause.BREAKER,
        "llm:m is half-open",
        0,
    ),
    (
        in_retry(breaker=breaker(state="HALF_OPEN", open_until=at(-9), is_probed=True)),
        Cause.BREAKER,
        "one call is testing breaker",
        None,
    ),
    (
        in_retry(breaker=breaker(forced_by="bob", reason="maintenance")),
        Cause.BREAKER,
        "bob holds breaker llm:m open: maintenance",
        None,
    ),
    (
        in_retry(breaker=breaker(forced_by="bob", reason="deploy", open_until=at(9))),
        Cause.BREAKER,
        "bob holds breaker llm:m open: deploy",
        9,
    ),
    (
        in_retry(breaker=breaker(forced_by="bob", reason="deploy", open_until=at(-9))),
        Cause.BREAKER,
        "breaker llm:m is open; one job may test it next",
        0,
    ),
    (in_retry(breaker=breaker(state="CLOSED")), Cause.READY, "it is due", 0),
    (in_retry(breaker=OPEN, task=a_task()), Cause.READY, "it is due", 0),
    (in_retry(budget=SPENT), Cause.BUDGET, "tenant:t:usd:day is spent: $5.25 of $5.00", 40),
    (in_retry(budget=SPENT, next_retry_at=at(-1)), Cause.READY, "it is due", 0),
    (waiting(budget=SPENT), Cause.BUDGET, "is spent", None),
    (
        waiting(
            budget=attrs.evolve(SPENT, unit="tokens", limit=Decimal(1000), spent=Decimal(1000))
        ),
        Cause.BUDGET,
        "1,000 tokens of 1,000 tokens",
        None,
    ),
    (waiting(budget=attrs.evolve(SPENT, limit=Decimal(6))), Cause.READY, "it is due", 0),
    (in_retry(budget=attrs.evolve(SPENT, limit=Decimal(6))), Cause.READY, "it is due", 0),
    (waiting(), Cause.APPROVAL, "a person's decision", None),
    (
        waiting(
            waiting_on="person:llm:m", last=attrs.evolve(FAILED_BEFORE, error="402 billing_error")
        ),
        Cause.APPROVAL,
        "llm:m has no credit: 402 billing_error; it waits until that is fixed",
        None,
    ),
    (
        waiting(waiting_on="person:llm:m", last=attrs.evolve(FAILED_BEFORE, error="no")),
        Cause.APPROVAL,
        "llm:m needs a person: no",
        None,
    ),
    (
        waiting(waiting_on=None),
        Cause.APPROVAL,
        "it waits for a person's decision",
        None,
    ),
    (
        waiting(awaited=ASKED, waiting_on=f"approval:{OTHER}"),
        Cause.APPROVAL,
        "it waits for 2 people (1 agreed so far) to approve refund (CRITICAL), asked for by li",
        3600,
    ),
    (
        facts(
            status=JobStatus.WAITING_FOR_APPROVAL,
            awaited=attrs.evolve(ASKED, status=ApprovalStatus.APPROVED),
        ),
        Cause.READY,
        "it is due",
        0,
    ),
    (
        waiting(awaited=DOUBTED, waiting_on=f"effect:{OTHER}"),
        Cause.EFFECT,
        "it waits for a person to say whether pay was applied: no answer came",
        None,
    ),
    (
        in_retry(awaited=FROZEN, waiting_on="effects:all", next_retry_at=at(-1)),
        Cause.FREEZE,
        "until effects may begin: ana froze them at 2030-01-01T11:00:00Z: an audit",
        None,
    ),
    (in_retry(waiting_on="effects:all", next_retry_at=at(-1)), Cause.READY, "it is due", 0),
    (
        in_retry(awaited=USED_UP),
        Cause.QUOTA,
        "it waits for room in quota pay:amount:day: 480 of 500 EUR used",
        43_200,
    ),
    (
        in_retry(awaited=attrs.evolve(USED_UP, used=Decimal(500)), next_retry_at=at(-1)),
        Cause.QUOTA,
        "500 of 500 EUR used",
        43_200,
    ),
    (in_retry(awaited=USED_UP, next_retry_at=at(-1)), Cause.READY, "it is due", 0),
    (facts(status=JobStatus.COMPLETED, task=None), Cause.ENDED, "has completed", None),
    (
        facts(status=JobStatus.FAILED, task=None, error_message="no", error_class="PERMANENT"),
        Cause.ENDED,
        "it failed with PERMANENT: no",
        None,
    ),
    (
        facts(status=JobStatus.CANCELLED, task=None, cancelled_by="ana", cancel_reason="enough"),
        Cause.ENDED,
        "it was cancelled by ana: enough",
        None,
    ),
]


@pytest.mark.parametrize("seen, cause, words, expected_s", CASES)
def test_each_cause_has_one_sentence(
    seen: WhyFacts, cause: Cause, words: str, expected_s: float | None
) -> None:
    output = why(seen)
    assert output.cause is cause
    assert words in output.sentence
    assert output.expected_at == (None if expected_s is None else at(expected_s))


def test_every_cause_has_a_case_and_one_place() -> None:
    assert [cause for cause, _ in PRECEDENCE] == list(Cause)
    assert {cause for _, cause, _, _ in CASES} == set(Cause)


# With two obstacles at once, the one that must go first.
FIRST: list[tuple[WhyFacts, Cause]] = [
    (facts(status=JobStatus.FAILED, task=None, error_message="x", fleet=NO_FLEET), Cause.ENDED),
    (running(owner=DEAD, cancel_requested_at=NOW), Cause.ORPHANED),
    (running(fleet=NO_FLEET), Cause.RUNNING),
    (in_retry(budget=SPENT, fleet=NO_FLEET), Cause.BUDGET),
    (in_retry(breaker=OPEN, fleet=NO_FLEET), Cause.BREAKER),
    (in_retry(fleet=NO_FLEET), Cause.APP_RETRY),
    (in_retry(awaited=FROZEN, breaker=OPEN), Cause.FREEZE),
    (waiting(awaited=DOUBTED, fleet=NO_FLEET), Cause.EFFECT),
    (in_queue(task=a_task("QUEUED", due_s=9)), Cause.SCHEDULED),
    (in_queue(task=a_task("QUEUED", due_s=9), pause=PAUSED), Cause.PAUSED),
    (running(pause=PAUSED), Cause.RUNNING),
    (
        in_queue(status=JobStatus.RUNNING, task=a_task("QUEUED", due_s=9)),
        Cause.WORKER_BACKOFF,
    ),
    (in_queue(fleet=NO_FLEET), Cause.QUEUE),
    (in_queue(fleet=fleet(knowing_count=0)), Cause.CODE),
    (facts(fleet=attrs.evolve(NO_FLEET, draining_count=1, ready_count=1)), Cause.DRAINING),
    (facts(fleet=fleet(knowing_count=0, slots=0, free_slots=0)), Cause.CODE),
]


@pytest.mark.parametrize("seen, cause", FIRST)
def test_most_important_cause_wins(seen: WhyFacts, cause: Cause) -> None:
    assert why(seen).cause is cause


def test_queue_without_a_head_needs_only_its_turn() -> None:
    idle = QueueFacts(name="mail", head_id=None, is_head_running=False)
    assert why(in_queue(queue=idle, ahead_count=1)).cause is Cause.QUEUE
    assert why(in_queue(queue=idle)).cause is Cause.READY


def test_ways_out_are_commands_with_their_targets() -> None:
    output = {cause: why(seen).ways_out for seen, cause, _, _ in CASES}
    assert output[Cause.APP_RETRY] == (f"cortex jobs retry {JOB}",)
    assert output[Cause.PAUSED] == ("cortex resume queue:mail",)
    default = attrs.evolve(PAUSED, target=Pausable(PauseKind.QUEUE))
    assert why(facts(pause=default)).ways_out == ("cortex resume queue:default",)
    assert output[Cause.QUEUE] == (f"cortex why {OTHER}",)
    assert why(waiting(awaited=ASKED)).ways_out == (f"cortex approvals show {OTHER}",)
    assert output[Cause.EFFECT][0] == f"cortex effects show {OTHER}"
    assert output[Cause.FREEZE] == ("cortex freeze off --reason TEXT",)
    assert output[Cause.QUOTA] == (
        "cortex quotas set pay --limit N --of amount --per day --reason TEXT",
    )
    hostile = in_retry(breaker=breaker(name="http:x; rm -rf"))
    assert why(hostile).ways_out == ("cortex breakers close 'http:x; rm -rf' --reason TEXT",)


def test_a_long_error_is_clipped() -> None:
    last = attrs.evolve(FAILED_BEFORE, error="x" * 10_000)
    assert len(why(in_retry(last=last)).sentence) < 400


instants = st.none() | st.sampled_from([at(-1000), at(-1), NOW, at(60)])


@given(
    status=st.sampled_from(JobStatus),
    task=st.none()
    | st.builds(
        a_task,
        st.sampled_from(["LATER", "QUEUED", "STRANDED", "READY", "LOCKED"]),
        due_s=st.sampled_from([-5.0, 5.0]),
    ),
    owner=st.sampled_from([None, LIVING, DEAD]),
    queue=st.none()
    | st.builds(
        QueueFacts,
        name=st.just("q"),
        head_id=st.sampled_from([None, OTHER]),
        is_head_running=st.booleans(),
    ),
    pause=st.sampled_from([None, PAUSED]),
    fleet=st.sampled_from([FLEET, NO_FLEET]),
    breaker=st.sampled_from([None, OPEN, breaker(state="CLOSED"), breaker(forced_by="ana")]),
    budget=st.sampled_from([None, SPENT]),
    awaited=st.sampled_from([None, ASKED, DOUBTED, FROZEN, USED_UP]),
    last=st.sampled_from([None, FAILED_BEFORE]),
    next_retry_at=instants,
    heartbeat_at=instants,
    cancel_requested_at=instants,
)
def test_every_job_has_an_answer_on_one_line(**fields: Any) -> None:
    output = why(facts(**fields))
    assert output.sentence
    assert "\n" not in output.sentence
    if output.expected_at is not None and output.cause is not Cause.ENDED:
        assert output.expected_at >= NOW


TIMED_OUT = attrs.evolve(FAILED_BEFORE, code="timed_out", pod="pod-2", threads_lost=3, has_pod=True)
MOVED = attrs.evolve(FAILED_BEFORE, outcome="handed_back", pod="pod-2", threads_lost=451)


@pytest.mark.parametrize(
    "given, words",
    [
        (
            in_retry(last=TIMED_OUT),
            "its thread may still run on pod pod-2, 3 of 500 threads left behind by time-outs",
        ),
        (
            running(last=MOVED),
            "pod pod-2 handed it back: it drained with 451 of 500 threads left behind by time-outs",
        ),
        (
            running(owner=attrs.evolve(LIVING, threads_lost=7)),
            "its pod runs with 7 of 500 threads left behind by time-outs",
        ),
        (in_retry(last=attrs.evolve(TIMED_OUT, has_pod=False)), None),
        (in_retry(last=attrs.evolve(TIMED_OUT, code="http_status")), None),
        (running(last=attrs.evolve(MOVED, threads_lost=449)), None),
    ],
)
def test_lost_threads_are_named_while_they_are_lost(given: WhyFacts, words: str | None) -> None:
    sentence = why(given).sentence
    assert sentence.endswith(f"; {words}") if words else "threads" not in sentence
