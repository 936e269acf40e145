"""The jobs of pods that die at named points: a program for each kind of point.

A program of a kind passes the points of that kind, and otherwise only those that every pod and
every job passes. A run starts by checking this, so the table in the code stays true.
"""

from pathlib import Path
from typing import Any, Final, Literal

from attrs import field, frozen

from chaos.workloads.program import NOTE, Op, Operation, account
from chaos.workloads.program import Program as Operations
from cortex.crash_points import Kind
from cortex.domain.job import BULK, RUN_FLOW, SEND_NOTIFICATION
from cortex.flows.spec import parse_flows

APP: Final = "chaos.points.app"
IDLE: Final = "points_idle"
"""The type of jobs that no pod runs."""
IDLE_COUNT: Final = 3
LIMITED: Final = "points_limited"
RIVALS: Final = 1
"""Further jobs of a type with limits, in a trial of it."""
LAST_NUMBER: Final = 2
"""The argument of the last submit to a type with a rule, in a trial of rules."""
RULED: Final = ("points_replaced", "points_debounced", "points_throttled")
"""Types with a rule, beside the one of the trial's job."""
REFUSED: Final = "refused"
"""Accounts with this prefix refuse everything."""
_FLOW_YAML: Final = """
name: points
inputs:
  account: {required: true}
steps:
- name: pay
  uses: tool
  with:
    tool: chaos_idempotent
    arguments: {account: "${{ inputs.account }}", takes_ms: 0}
- name: report
  uses: publish
  with:
    topic: trial.paid
    payload: {result: "${{ steps.pay.result }}"}
    key: k
result: {paid: "${{ steps.pay.result > 0 }}"}
"""
FLOW: Final = parse_flows(_FLOW_YAML, "points")[0]
EVERYONES: Final = frozenset({Kind.POD, Kind.JOB})
ANYONES: Final = EVERYONES | {Kind.LOG}
"""A library may log in any job; its lines are stored a moment later, or with those of others."""


@frozen(kw_only=True)
class First:
    """The job's history: another pod had it, and ended at a point."""

    at: str
    """Such as `after_intent:1`, and how, in the variable's format."""

    @property
    def is_stopped(self) -> bool:
        return self.at.endswith(":stop")


@frozen(kw_only=True)
class Program:
    """One job, its surroundings, and its expected end."""

    name: str
    kinds: frozenset[Kind]
    """The kinds of points at which it is tried."""
    also: frozenset[Kind] = frozenset()
    """Kinds whose points it passes as well, but at which other programs are tried."""
    job_type: str = "chaos_program"
    operations: tuple[Op, ...] = ()
    account_kind: str | None = None
    """Of a job that runs no operations and pays into an account."""
    has_gate: bool = False
    """It waits for a file, which exists from the first pod's end on."""
    status: str = "COMPLETED"
    person: Literal["agrees", "agrees once reminded", "lets it expire", "looks on"] = "agrees"
    first: First | None = None
    event: Literal[
        "none",
        "leave",
        "request",
        "budget",
        "message",
        "lost claim",
        "cancel",
        "schedule",
        "retention",
        "tick",
        "signal",
        "signals",
        "callback",
        "pause",
        "rules",
        "mend",
    ] = "none"
    """What else happens while the pod under test runs."""
    awaited: tuple[str, ...] = ()
    """Points that its pod reaches only some time after the job has ended."""
    is_pair: bool = False
    """Killed a second time: only that is tried of it."""
    settings: dict[str, object] = field(factory=dict)
    own_payload: dict[str, Any] | None = None
    """Of a user's job."""
    others: int = 0
    """How many jobs there are beside it and the idle ones: its children, its rivals."""
    cancels_idle: bool = False
    """It is a bulk operation, which cancels the jobs that no pod runs."""
    may_wait_for_people: bool = False
    """No person resolves its unknown effects: then its job waits."""

    @property
    def is_of_flow(self) -> bool:
        """Whether a flow makes its steps."""
        return self.job_type == RUN_FLOW

    @property
    def has_stop(self) -> bool:
        """Whether a pod before the one under test is stopped."""
        return self.first is not None and self.first.is_stopped

    def payload(self, key: str, folder: Path) -> dict[str, Any]:
        """The job's payload; `key` is unique in the run."""
        if self.own_payload is not None:
            return self.own_payload
        if self.job_type == "chaos_program":
            operations = tuple(Operation(op=op) for op in self.operations)
            return Operations(key=key, operations=operations).payload()
        named: dict[str, Any] = {}
        if self.account_kind is not None:
            named["account"] = f"{self.account_kind}:{key}:0"
        if self.has_gate:
            named["gate"] = str(gate(folder))
        if self.job_type == LIMITED:
            named["call"] = key
        if self.is_of_flow:
            return {"flow": FLOW.name, "inputs": named}
        if self.job_type == SEND_NOTIFICATION:
            return {"text": "all is well", "topic": NOTE}
        return named

    def applied_once(self, key: str) -> list[str]:
        """The ledger accounts that must be paid into, once each."""
        if self.account_kind is not None:
            return (
                [] if self.account_kind in (REFUSED, LIMITED) else [f"{self.account_kind}:{key}:0"]
            )
        paying = (Op.IDEMPOTENT, Op.RECONCILABLE, Op.UNSAFE)
        return [account(op, key, n) for n, op in enumerate(self.operations) if op in paying]

    def conversations(self, key: str) -> list[str]:
        """The prefixes of its model conversations."""
        return [f"{key}/{n}:{op}" for n, op in enumerate(self.operations) if op is Op.MODEL]


def gate(folder: Path) -> Path:
    """The file that lets the jobs of a trial end."""
    return folder / "gate"


def address(folder: Path) -> Path:
    """The file with the callback URL of the job of a trial."""
    return gate(folder).with_suffix(".url")


def notes(folder: Path) -> Path:
    """The file in which jobs of a trial note when they run; `folder` is that of its pods."""
    return folder / "notes"


def running(folder: Path) -> Path:
    """The file by which the job of a trial with a gate reports that it runs."""
    return gate(folder).with_suffix(".running")


def _of(kind: Kind, *operations: Op, name: str = "", more: tuple[Kind, ...] = ()) -> Program:
    kinds = frozenset({kind, *more})
    return Program(name=name or kind.value, kinds=kinds, operations=operations)


def _job(name: str, job_type: str, *kinds: Kind, **rest: Any) -> Program:
    return Program(name=name, job_type=job_type, kinds=frozenset(kinds), **rest)


_EFFECTS: Final = {
    "idempotent effect": {"operations": (Op.IDEMPOTENT,)},
    "reconcilable effect": {"operations": (Op.RECONCILABLE,)},
    "unsafe effect": {"operations": (Op.UNSAFE,)},
    "own effect": {"job_type": "points_own", "account_kind": "reconcilable"},
}
_LEFT_OPEN: Final = {"not applied": "after_intent:1", "applied": "during_call:2"}
_DOUBT: Final = frozenset({Kind.EFFECT, Kind.DOUBT})
_DEATH: Final = frozenset({Kind.DEATH})
_SERVES: Final = {"http": "127.0.0.1:0"}
URL: Final = "https://shop.example.org"
"""Of the pods, as those see it who call them back."""

PROGRAMS: Final[tuple[Program, ...]] = (
    _job(
        "nothing",
        "points_nothing",
        *EVERYONES,
        awaited=("after_retire", "after_triage", "after_runs"),
        settings={"zombie_s": 3.0},  # no pod sweeps before it has been healthy this long
    ),
    _of(Kind.STEP, Op.SLEEP),
    _job("patched", "points_patched", Kind.STEP),
    _job(
        "bulk",
        BULK,
        Kind.STEP,
        cancels_idle=True,
        settings={"code_wait_s": 86_400.0},  # its idle jobs are for no pod, and must not fail
    ),
    _of(Kind.MODEL, Op.MODEL),
    _of(Kind.TOOL, Op.PURE),
    *(
        Program(name=name, kinds=frozenset({Kind.EFFECT}), **terms)  # type: ignore[arg-type]
        for name, terms in _EFFECTS.items()
    ),
    _job("refusal", "points_refused", Kind.REFUSAL, account_kind=REFUSED, status="FAILED"),
    _of(Kind.APPROVAL, Op.APPROVAL),
    _job(
        "approved effect",
        "points_approved",
        Kind.APPROVAL,
        Kind.EFFECT,
        account_kind="reconcilable",
    ),
    _job("retry", "points_later", Kind.RETRY),
    _job("signal", "points_receiving", Kind.SIGNAL, event="signal"),
    _job(
        "callback",
        "points_calling",
        Kind.CALLBACK,
        Kind.ACT,
        also=frozenset({Kind.SIGNAL}),
        has_gate=True,
        event="callback",
        settings=_SERVES
        | {"callback_secret": "a secret of trials that is long enough", "public_url": URL},
    ),
    _job("children", "points_parent", Kind.CHILD, others=4),
    _job(
        "adoption",
        "points_adopting",
        Kind.ADOPTION,
        also=frozenset({Kind.CHILD}),
        has_gate=True,
        status="FAILED",
        event="mend",
        others=3,  # its child, the job that continues it, and that one's child
    ),
    _job(
        "first",
        "points_first",
        Kind.CUT,
        Kind.SIGNAL,
        also=frozenset({Kind.CHILD, Kind.RETRY}),
        event="signals",
        person="looks on",
        others=1,
    ),
    _job(
        "limits",
        LIMITED,
        Kind.LIMIT,
        Kind.MODEL,
        also=frozenset({Kind.RETRY}),
        account_kind=LIMITED,
        others=RIVALS,
    ),
    _job("published", "points_showing", Kind.PUBLISHED, Kind.STEP),
    _job(
        "pause",
        "points_due",
        Kind.PAUSE,
        own_payload={"number": 1},
        event="pause",
        others=1,
        settings={"slots": 1},
    ),
    _job(
        "rules",
        "points_single",
        Kind.ACT,
        also=frozenset({Kind.PAUSE}),
        own_payload={"customer": 10, "number": 1},
        event="rules",
        others=len(RULED) + 1,  # one is replaced
        settings=_SERVES,
    ),
    _job("log", "points_logging", Kind.LOG, also=frozenset({Kind.STEP}), awaited=("after_lines",)),
    _job("failure", "points_failing", Kind.FAILURE),
    _job(
        "misfit",
        "points_nothing",
        Kind.MISFIT,
        own_payload={"unknown": 1},
        status="FAILED",
        settings={"code_wait_s": 1.0},  # no other code comes
    ),
    _job("timeout", "points_endless", Kind.TIMEOUT, status="FAILED"),
    _job(
        "hand back",
        "points_waiting",
        Kind.HAND_BACK,
        has_gate=True,
        event="leave",
        # The claims' end has a second; an abort before that would skip `drain_jobs`.
        settings={"abort_s": 2.0, "closed_s": 8.0, "kill_s": 12.0},
    ),
    Program(
        name="expiry",
        kinds=frozenset({Kind.EXPIRY}),
        also=frozenset({Kind.APPROVAL}),
        operations=(Op.APPROVAL,),
        person="lets it expire",
        status="FAILED",
    ),
    Program(
        name="reminder",
        kinds=frozenset({Kind.REMINDER}),
        also=frozenset({Kind.APPROVAL, Kind.MESSAGE, Kind.DEATH}),
        operations=(Op.APPROVAL,),
        person="agrees once reminded",
        first=First(at="after_suspend:1"),
        event="message",
    ),
    Program(
        name="budget",
        kinds=frozenset({Kind.BUDGET}),
        also=frozenset({Kind.MODEL}),
        operations=(Op.MODEL,),
        event="budget",
    ),
    _job(
        "lost claim",
        "points_nothing",
        Kind.ORPHAN,
        event="lost claim",
        settings={"sweep_s": 60.0},  # on a slow machine its own sweep would come earlier
    ),
    _job(
        "flow",
        RUN_FLOW,
        Kind.STEP,
        Kind.EFFECT,
        also=frozenset({Kind.MESSAGE}),
        account_kind="idempotent",
        event="message",
    ),
    _job(
        "notification",
        SEND_NOTIFICATION,
        Kind.STEP,
        also=frozenset({Kind.MESSAGE}),
        event="message",
    ),
    _job("schedule", "points_scheduled", Kind.SCHEDULE, event="schedule"),
    _job(
        "message",
        "points_nothing",
        Kind.MESSAGE,
        event="message",
        awaited=("after_outbox_record",),
    ),
    Program(
        name="publish",
        kinds=frozenset({Kind.STEP}),
        also=frozenset({Kind.MESSAGE}),
        operations=(Op.PUBLISH, Op.PUBLISH),
        event="message",
        awaited=("after_outbox_record",),
    ),
    _job(
        "tick",
        "points_nothing",
        Kind.TICK,
        also=frozenset({Kind.HAND_BACK}),
        event="tick",
        awaited=("after_tick_record",),
    ),
    _job(
        "retention",
        "points_nothing",
        Kind.RETENTION,
        event="retention",
        awaited=("after_retention",),
    ),
    _job("death", "points_nothing", Kind.DEATH, first=First(at="after_claim:1")),
    Program(
        name="lost call",
        kinds=frozenset({Kind.LOST_CALL}),
        also=_DEATH,
        operations=(Op.MODEL,),
        status="CANCELLED",
        first=First(at="after_reserve:1"),
        event="cancel",
        awaited=("after_lost_calls",),
    ),
    _job(
        "silence",
        "points_nothing",
        Kind.SILENCE,
        also=frozenset({Kind.RETRY}),
        first=First(at="after_claim:1:stop"),
    ),
    _job("request", "points_nothing", Kind.ACT, event="request", settings=_SERVES),
    *(
        Program(
            name=f"{name}, {left}",
            kinds=_DOUBT,
            also=_DEATH,
            first=First(at=at),
            is_pair=True,
            **terms,  # type: ignore[arg-type]
        )
        for name, terms in _EFFECTS.items()
        for left, at in _LEFT_OPEN.items()
    ),
)
