"""A person's operation on many dead letters at once, and its progress as text."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import attrs

from cortex.domain.phrases import age

RATE_DEFAULT: Final = 50.0
"""Dead letters per second."""
RATE_MIN: Final = 0.001
RATE_MAX: Final = 10_000.0
"""Dead letters or jobs per second."""
LIMIT_DEFAULT: Final = 1_000
LETTERS_MAX: Final = 10_000
"""Dead letters of one operation; the oldest ones."""
OVERDUE_S: Final = 15.0
"""A batch this late is waiting for something: pods poll every five seconds."""


class BulkVerb(StrEnum):
    """What happens to the dead letters."""

    RETRY = "RETRY"
    DISCARD = "DISCARD"

    @property
    def done(self) -> str:
        """What happened to a dead letter."""
        return "retried" if self is BulkVerb.RETRY else "discarded"


class BulkState(StrEnum):
    """The state of a bulk operation."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DONE = "DONE"
    """Each dead letter had its turn."""
    ENDED = "ENDED"
    """A person ended it early."""

    @property
    def is_over(self) -> bool:
        """Nothing more happens."""
        return self in (BulkState.DONE, BulkState.ENDED)


@attrs.frozen(kw_only=True)
class BulkChange:
    """A person's change to an unfinished bulk operation."""

    name: str
    """The name of the change, and in the facts: `dead_act_…`."""
    before: tuple[BulkState, ...]
    after: BulkState


PAUSE: Final = BulkChange(name="paused", before=(BulkState.RUNNING,), after=BulkState.PAUSED)
RESUME: Final = BulkChange(name="resumed", before=(BulkState.PAUSED,), after=BulkState.RUNNING)
CANCEL: Final = BulkChange(
    name="cancelled", before=(BulkState.RUNNING, BulkState.PAUSED), after=BulkState.ENDED
)


def passed(row: Mapping[str, Any]) -> int:
    """Return how many dead letters had their turn."""
    return int(row["done_count"] + row["failed_count"])


def left(row: Mapping[str, Any]) -> int:
    """Return how many dead letters had no turn yet."""
    return int(row["letter_count"]) - passed(row)


def progress(row: Mapping[str, Any]) -> str:
    """Return the progress of an operation: `retried 612 of 1,204, 3 not`."""
    done = f"{BulkVerb(row['verb']).done} {row['done_count']:,} of {row['letter_count']:,}"
    return done + (f", {row['failed_count']:,} not" if row["failed_count"] else "")


def hold_up(row: Mapping[str, Any], now: datetime) -> str:
    """Return what an operation waits for, or who ended it; "": it goes on, or is done.

    Contains names and texts of people: not safe for display yet.
    """
    match BulkState(row["state"]):
        case BulkState.PAUSED | BulkState.ENDED:
            word = "paused" if row["state"] == BulkState.PAUSED else "ended"
            why = f': "{row["change_reason"]}"' if row["change_reason"] else ""
            return f"{word} by {row['changed_by']}{why}"
        case BulkState.RUNNING:
            late_s = (now - row["due_at"]).total_seconds()
            if not row["has_pod"]:
                return "waits for a pod: none is alive"
            if late_s > OVERDUE_S:
                return f"no pod has continued it for {age(late_s)}"
            return _held(row, is_due=late_s >= 0)
        case _:
            return ""


def _held(row: Mapping[str, Any], *, is_due: bool) -> str:
    """Return why an operation is stuck at its next dead letter; "": it is not.

    After a successful batch the next one may be larger than one dead letter.
    """
    if row["batch_max"] > 1:
        return ""
    return "tries its next letter alone" if is_due else "waits for a locked letter"
