"""All that a run left behind for the checkers: its history, the record, and the world outside.

Read once, after the run has come to rest, by SQL of its own on a connection of its own.
"""

from typing import Any
from uuid import UUID

from attrs import field, frozen

from chaos.history import Event

Row = dict[str, Any]
"""A row of a table by its columns; times are aware datetimes, JSON is decoded."""


@frozen(kw_only=True)
class Application:
    """Something that the ledger outside did, once for each of these."""

    account: str
    """`<kind>:<job's idempotency key>:<place in its program>`; see `chaos.workloads.program`."""
    key: str
    """The idempotency key of the call."""
    attempt: int
    at_s: float
    result: int
    """What the ledger answered."""


@frozen(kw_only=True)
class Ask:
    """A request that the ledger took: to apply something, or to say what became of it."""

    key: str
    attempt: int


@frozen(kw_only=True)
class ModelCall:
    """One call that the scripted model took."""

    conversation: str
    """`<job's idempotency key>/<name of its step>`, by which the call's first message begins."""
    number: int
    """How often this very turn was asked for by then, from 1."""
    at_s: float
    outcome: str
    """`answered`, `refused`, `disconnected` …, as the server's log has it."""
    ended_s: float | None = None
    """None: it was still being answered when the run ended."""


@frozen(kw_only=True)
class Settings:
    """The figures that a checker judges by, in seconds: those the pods of the run had."""

    heartbeat_s: float
    zombie_s: float
    sweep_s: float
    look_s: float
    drain_s: float
    close_s: float
    poll_s: float
    deaths_max: int
    settle_s: float = 5.0
    """After the server's start nobody is judged for so long."""
    clock_step_s: float = 0.0
    """The pods' clock may go on by so much at once: what was due in between comes after it."""


@frozen(kw_only=True)
class Evidence:
    """What checkers look at; they change nothing."""

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
    asks: tuple[Ask, ...] = ()
    """In the order in which the ledger took them."""
    votes: tuple[Row, ...] = ()
    """`approval_vote`."""
    claims: tuple[Row, ...] = ()
    """What `chaos.observer` saw, in its order: each attempt's beginning; empty without it."""
    moves: tuple[Row, ...] = ()
    """Each change of a job's state, which the history must tell as well."""
    beats: tuple[Row, ...] = ()
    """Each heartbeat of a pod."""
    renewals: tuple[Row, ...] = ()
    """When each attempt's own heartbeat was last renewed."""
    setbacks: tuple[Row, ...] = ()
    """Heads of jobs that were set to no more steps than they had."""
    strangers: tuple[Row, ...] = ()
    """Jobs that a pod's heartbeat kept alive although another pod ran them."""
    canaries: tuple[str, ...] = ()
    """Secrets that the run gave to its pods: none of them may be written anywhere."""
    logs: dict[str, str] = field(factory=dict)
    """What each pod wrote to stderr, by its name in the run."""

    def job(self, job_id: UUID) -> Row | None:
        """One job."""
        return next((row for row in self.jobs if row["id"] == job_id), None)
