"""What a job of a run is to do, as data: a list of operations, drawn from the seed."""

from enum import StrEnum
from typing import Any, Final

from attrs import asdict, frozen

MODEL: Final = "chaos-model"
BUSY_MODEL: Final = "chaos-busy-"
"""Before the job's key: what such a call is refused opens a breaker of its own."""


class Op(StrEnum):
    """The kinds of operations; each becomes steps of the job."""

    MODEL = "model"
    """One call of the scripted model."""
    PURE = "pure"
    """A tool without effect: may run as often as it likes."""
    IDEMPOTENT = "idempotent"
    """An effect outside that honours its key."""
    RECONCILABLE = "reconcilable"
    """An effect outside that does not, but can be asked what became of it."""
    UNSAFE = "unsafe"
    """An effect outside that neither honours keys nor answers: doubled ones are counted."""
    APPROVAL = "approval"
    """A gate that a person opens, denies or lets expire."""
    RETRY = "retry"
    """A model call that is told 429 the first times."""
    SLEEP = "sleep"
    """Some time passes inside a step."""
    POISON = "poison"
    """Kills its own process each time it is begun."""
    CRASH = "crash"
    """Makes a step, then kills its own process, once."""
    RENAMED = "renamed"
    """An unsafe effect that all attempts but the first ask for under another name: a release."""


EFFECTS = frozenset({Op.IDEMPOTENT, Op.RECONCILABLE, Op.UNSAFE})


@frozen(kw_only=True)
class Operation:
    """One operation. Its step's key is `<place>:<op>`, its account `<op>:<job's key>:<place>`."""

    op: Op
    takes_ms: int = 0
    """How long the other side lets it wait."""


@frozen(kw_only=True)
class Program:
    """A job of a run; `key` is its idempotency key, and unique in the run."""

    key: str
    operations: tuple[Operation, ...]

    def payload(self) -> dict[str, Any]:
        """What is submitted, as the payload of job type `chaos_program`."""
        return {"key": self.key, "operations": [asdict(op) for op in self.operations]}


def model_of(op: Op, key: str) -> str:
    """The model that an operation of a job asks."""
    return f"{BUSY_MODEL}{key}" if op is Op.RETRY else MODEL


def account(op: Op, key: str, place: int) -> str:
    """The account in the ledger of one operation: each is applied at most once, if all is well."""
    return f"{op}:{key}:{place}"
