"""All that a run left behind for the checkers: its history, the record, and the world outside.

Read once, after the run has come to rest, with its own SQL on its own connection.
"""

from typing import Any
from uuid import UUID

from attrs import field, frozen

from chaos.history import Event

Row = dict[str, Any]
"""A table row by column; times are aware datetimes, JSON is decoded."""


@frozen(kw_only=True)
class Application:
    """One application of an operation by the ledger outside."""

    account: str
    """`<kind>:<job's idempotency key>:<place in its program>`; see `chaos.workloads.program`."""
    key: str
    """The idempotency key of the call."""
    attempt: int
    at_s: float
    result: int
    """The ledger's answer."""


@frozen(kw_only=True)
class LedgerRequest:
    """A request to the ledger: to apply an operation, or to query its outcome."""

    key: str
    attempt: int


@frozen(kw_only=True)
class ModelCall:
    """One call to the scripted model."""

    conversation: str
    """`<job's idempotency key>/<name of its step>`, the start of the call's first message."""
    turn: int = 0
    """How many answers the conversation had."""
    number: int
    """How often this turn had been requested by then, from 1."""
    at_s: float
    outcome: str
    """`answered`, `refused`, `disconnected` …, as in the server's log."""
    ended_s: float | None = None
    """None if it was still being answered when the run ended."""
    rule: str | None = None
    """The fault of the model that it met, if any."""


@frozen(kw_only=True)
class Delivery:
    """One delivery of a message to a receiver."""

    subscription: str
    message: str
    """Its id, as it was sent."""
    topic: str
    payload: dict[str, Any]
    at_s: float
    is_accepted: bool
    """Whether the receiver took it; it may have cut the connection all the same."""


@frozen(kw_only=True)
class Settings:
    """The limits that a checker judges by, in seconds: those of the run's pods."""

    heartbeat_s: float
    zombie_s: float
    sweep_s: float
    peer_check_s: float
    drain_s: float
    close_s: float
    poll_s: float
    deaths_max: int
    code_wait_s: float
    """How long a job waits for code that fits it, before it fails."""
    settle_s: float = 5.0
    """Nothing is judged for this long after the server's start."""
    clock_step_s: float = 0.0
    """How far the pods' clock may jump at once: what was due in between happens afterwards."""


@frozen(kw_only=True)
class Evidence:
    """The input of all checkers; they never change it."""

    settings: Settings
    events: tuple[Event, ...]
    jobs: tuple[Row, ...]
    transitions: tuple[Row, ...]
    """`job_history`, in its order."""
    attempts: tuple[Row, ...]
    """`job_attempt`."""
    steps: tuple[Row, ...]
    """`job_step`, by job and seq."""
    effects: tuple[Row, ...]
    approvals: tuple[Row, ...]
    facts: tuple[Row, ...]
    pods: tuple[Row, ...]
    tasks: tuple[Row, ...]
    """What is left in the queue."""
    dead_letters: tuple[Row, ...]
    applications: tuple[Application, ...]
    model_calls: tuple[ModelCall, ...]
    requests: tuple[LedgerRequest, ...] = ()
    """In the order in which the ledger received them."""
    schedules: tuple[Row, ...] = ()
    instants: tuple[Row, ...] = ()
    """What became of each instant of a schedule."""
    subscriptions: tuple[Row, ...] = ()
    messages: tuple[Row, ...] = ()
    """The outbox: a row for each subscription that gets a message, in their order."""
    signals: tuple[Row, ...] = ()
    """In the order of their arrival."""
    deliveries: tuple[Delivery, ...] = ()
    """Of the subscriptions whose receivers the run watches, in order."""
    archived: frozenset[str] = frozenset()
    """The ids of the jobs in the archive of the retention."""
    reopened: tuple[Row, ...] = ()
    """Messages that were written to after their end."""
    log_lines: tuple[Row, ...] = ()
    """What jobs logged, by job, attempt and number."""
    votes: tuple[Row, ...] = ()
    """`approval_vote`."""
    claims: tuple[Row, ...] = ()
    """Each attempt's start, as recorded by `chaos.observer`, in order; empty without it."""
    moves: tuple[Row, ...] = ()
    """Each change of a job's state; the history must contain the same."""
    pauses: tuple[Row, ...] = ()
    """Each pause of jobs, and each end of one, in order."""
    births: tuple[Row, ...] = ()
    """When the submit of each job committed whose type has a rule about submits."""
    beats: tuple[Row, ...] = ()
    renewals: tuple[Row, ...] = ()
    """When each attempt's own heartbeat was last written."""
    setbacks: tuple[Row, ...] = ()
    """Jobs whose step count was set to no more than it was."""
    wrong_deaths: tuple[Row, ...] = ()
    """Attempts that were taken from a pod as dead, although it held its lock."""
    strangers: tuple[Row, ...] = ()
    """Jobs that a pod's heartbeat kept alive although another pod ran them."""
    canaries: tuple[str, ...] = ()
    """The pods' secrets: none of them may be written anywhere."""
    logs: dict[str, str] = field(factory=dict)
    """Each pod's stderr, by its name in the run."""

    def job(self, job_id: UUID) -> Row | None:
        return next((row for row in self.jobs if row["id"] == job_id), None)
