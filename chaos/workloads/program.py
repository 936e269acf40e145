"""What a job of a run does, as data: a list of operations, drawn from the seed."""

from enum import StrEnum
from typing import Any, Final

from attrs import asdict, frozen

MODEL: Final = "chaos-model"
BUSY_MODEL: Final = "chaos-busy-"
"""Before the job's key: refusals of such a call open their own breaker."""


NOTE: Final = "chaos.note"
"""The topic of what jobs `send_notification` send by themselves, without the outbox."""


class Op(StrEnum):
    """The kinds of operations; each becomes steps of the job."""

    MODEL = "model"
    """One call of the scripted model."""
    PURE = "pure"
    """A tool without effect: may run any number of times."""
    IDEMPOTENT = "idempotent"
    """An effect outside that honours its key."""
    RECONCILABLE = "reconcilable"
    """An effect outside that does not, but whose outcome can be looked up."""
    UNSAFE = "unsafe"
    """An effect outside with neither keys nor lookups: doubled ones are counted."""
    APPROVAL = "approval"
    """A gate that a person opens, denies or lets expire."""
    RETRY = "retry"
    """A model call that gets 429 the first times."""
    PUBLISH = "publish"
    """A message, written with its step; the step's key is that of its topic."""
    NOTIFY = "notify"
    """A notification, as agents send it: a job of its own, which sends it by itself."""
    AGENT = "agent"
    """An agent with a tool, whose model's answers are cut and odd."""
    SLEEP = "sleep"
    """Time passes inside a step."""
    POISON = "poison"
    """Kills its own process each time it starts."""
    CRASH = "crash"
    """Makes a step, then kills its own process, once."""
    STRAY = "stray"
    """Raises an error that is meant for the interpreter, once: see `STRAYS` of the application."""
    LOG = "log"
    """Writes log lines."""
    FLOOD = "flood"
    """Writes far more of them than an attempt may."""
    SIGNALS = "signals"
    """Receives signals that are sent to a key, one after another."""
    RENAMED = "renamed"
    """An unsafe effect with another name in all attempts but the first, as after a release."""


LINES: Final = {Op.LOG: 40, Op.FLOOD: 60_000}
"""How many lines each writes: numbered from 0, with the place of the operation."""
EFFECTS = frozenset({Op.IDEMPOTENT, Op.RECONCILABLE, Op.UNSAFE})


@frozen(kw_only=True)
class Operation:
    """One operation. Its step's key is `<place>:<op>`, its account `<op>:<job's key>:<place>`."""

    op: Op
    takes_ms: int = 0
    """How long the other side delays its answer."""


@frozen(kw_only=True)
class Program:
    """A job of a run; `key` is its idempotency key, and unique in the run."""

    key: str
    operations: tuple[Operation, ...]

    def payload(self) -> dict[str, Any]:
        """The payload of job type `chaos_program`."""
        return {"key": self.key, "operations": [asdict(op) for op in self.operations]}


PAUSE_S: Final = 0.3
PAUSE_MAX_S: Final = 10.0
"""Of the timers beside which a job waits for a signal, ever longer ones: the first are over when a
killed job goes on."""
SIGNALS: Final = 4
"""How many an operation receives: numbered from 0, sent to the key of its job, under the name of
its step."""


def model_of(op: Op, key: str) -> str:
    """The model that an operation of a job calls."""
    return f"{BUSY_MODEL}{key}" if op is Op.RETRY else MODEL


def account(op: Op, key: str, place: int) -> str:
    """The ledger account of one operation: each is applied at most once if all is well."""
    return f"{op}:{key}:{place}"
