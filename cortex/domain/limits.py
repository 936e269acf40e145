"""Limits that are no settings.

Of size: the most bytes of each thing that one job may put into the record. Every pod must be able
to read what another has written. Of threads: how many a process has, and may lose. Of numbers: see
`number_of`.
"""

import math
from typing import Final

from attrs import frozen

from cortex.domain.errors import InvalidValueError

KIB: Final = 1_024
MIB: Final = 1_024 * KIB


@frozen(kw_only=True)
class SizeLimit:
    """The most bytes of UTF-8 JSON, and what to do instead."""

    bytes_max: int
    way_out: str

    def check(self, size: int, *, what: str) -> None:
        """Raise `InvalidValueError` with the thing, its size, the limit and the way out."""
        if size > self.bytes_max:
            raise InvalidValueError(
                f"{what} is {size:,} bytes of JSON, more than {self.bytes_max:,}",
                hint=self.way_out,
            )


PAYLOAD: Final = SizeLimit(
    # A job is claimed with its payload, 500 of them in one answer of the database. The schema has
    # the same figure.
    bytes_max=256 * KIB,
    way_out="keep large data in a file and pass its path",
)
CHECKPOINT: Final = SizeLimit(
    # Per step. A job that resumes reads the outputs of all its steps at once.
    bytes_max=1 * MIB,
    way_out="write it to a file in the job's workspace and return its path",
)
MODEL_RESPONSE: Final = SizeLimit(
    # It is paid for, so it is kept: a million tokens, the most of one response, are about 4 MB.
    bytes_max=4 * MIB,
    way_out="lower max_tokens",
)
ARGUMENTS: Final = SizeLimit(
    # For an effect, or a question for people: as much as a model can pass to a tool at once.
    bytes_max=4 * MIB,
    way_out="keep large data in a file and pass its path",
)
TOOL_OUTPUT: Final = SizeLimit(
    # Beyond a checkpoint's size it is a file, and only its beginning is recorded. The bound is for
    # the memory of the pod, which holds it whole.
    bytes_max=64 * MIB,
    way_out="ask for less of it, or have it written to a file",
)
RESULT: Final = SizeLimit(
    # Of a job, which has one, read by everyone who waits for it.
    bytes_max=4 * MIB,
    way_out="write it to a file in the job's workspace and return its path",
)


# --- Threads that time-outs have left behind.


THREADS_MAX: Final = 500
"""Threads of a process for sync functions; one that a time-out left behind counts until it ends."""
LOST_SHARE: Final = 0.9
"""Share of the threads: when time-outs have left that many behind, the pod is replaced."""


def is_worn_out(threads_lost: int) -> bool:
    """Return whether a pod has left so many threads behind that it drains."""
    return threads_lost >= LOST_SHARE * THREADS_MAX


def number_of(value: object) -> float | None:
    """Return a number as a float, infinite if none is as large; None for what is no number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
