"""What a person does to many dead letters at once, and how far that is: in words."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import attrs

from cortex.domain.phrases import age

RATE_DEFAULT: Final = 50.0
"""Letters a second."""
RATE_MIN: Final = 0.001
RATE_MAX: Final = 10_000.0
"""Of whatever is done to many: letters, or jobs, a second."""
LIMIT_DEFAULT: Final = 1_000
LETTERS_MAX: Final = 10_000
"""Of one act; the oldest ones."""
OVERDUE_S: Final = 15.0
"""A batch that is so late waits for something: pods look each five seconds."""


class BulkVerb(StrEnum):
    """What becomes of the letters."""

    RETRY = "RETRY"
    DISCARD = "DISCARD"

    @property
    def done(self) -> str:
        """What became of a letter."""
        return "retried" if self is BulkVerb.RETRY else "discarded"


class BulkState(StrEnum):
    """How an act stands."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    DONE = "DONE"
    """Each letter had its turn."""
    ENDED = "ENDED"
    """By a person, before that."""

    @property
    def is_over(self) -> bool:
        """Nothing more comes of it."""
        return self in (BulkState.DONE, BulkState.ENDED)


@attrs.frozen(kw_only=True)
class BulkChange:
    """What a person may do to an act that is under way."""

    name: str
    """What it is called, and what is recorded of it: `dead_act_…`."""
    before: tuple[BulkState, ...]
    after: BulkState


PAUSE: Final = BulkChange(name="paused", before=(BulkState.RUNNING,), after=BulkState.PAUSED)
RESUME: Final = BulkChange(name="resumed", before=(BulkState.PAUSED,), after=BulkState.RUNNING)
CANCEL: Final = BulkChange(
    name="cancelled", before=(BulkState.RUNNING, BulkState.PAUSED), after=BulkState.ENDED
)


def passed(row: Mapping[str, Any]) -> int:
    """Return how many letters had their turn."""
    return int(row["done_count"] + row["failed_count"])


def left(row: Mapping[str, Any]) -> int:
    """Return how many letters have had no turn."""
    return int(row["letter_count"]) - passed(row)


def progress(row: Mapping[str, Any]) -> str:
    """Say how far an act is: `retried 612 of 1,204, 3 not`."""
    done = f"{BulkVerb(row['verb']).done} {row['done_count']:,} of {row['letter_count']:,}"
    return done + (f", {row['failed_count']:,} not" if row["failed_count"] else "")


def hold_up(row: Mapping[str, Any], now: datetime) -> str:
    """Say what an act waits for, or how it ended by a person; "": it goes on, or is done.

    Holds names and words of people: not safe yet.
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
                return f"no pod has gone on with it for {age(late_s)}"
            return _held(row, is_due=late_s >= 0)
        case _:
            return ""


def _held(row: Mapping[str, Any], *, is_due: bool) -> str:
    """Say that an act makes no headway with its next letter; "": it makes some.

    After a batch that went well the next one may be larger than one letter.
    """
    if row["batch_max"] > 1:
        return ""
    return "tries its next letter alone" if is_due else "waits for a letter that somebody holds"
