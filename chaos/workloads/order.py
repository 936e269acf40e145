"""What clients request: jobs, some of them twice under their key, some to be cancelled."""

import random
from enum import StrEnum
from typing import Any, Final

from attrs import frozen

REPEATED_SHARE: Final = 0.16
CANCELLED_SHARE: Final = 0.05
CANCELLED_AFTER_S: Final = 3.0
"""By then a job waits, runs, or has ended already."""
PEOPLE: Final = ("ann", "bob")


class Repeat(StrEnum):
    """What is requested again under the key of an acknowledged job."""

    SAME = "same"
    """The same request: the answer is the same job."""
    OTHER = "other"
    """A different request: it is refused."""


@frozen(kw_only=True)
class Cancel:
    """The cancellation of a job by a person."""

    by: str
    after_s: float
    """After it was acknowledged."""


@frozen(kw_only=True)
class Order:
    """A job to be submitted, `at_s` after the load began."""

    at_s: float
    key: str
    job_type: str
    payload: dict[str, Any]
    repeat: Repeat | None = None
    cancel: Cancel | None = None


def draw_repeat(dice: random.Random) -> Repeat | None:
    """Draw what is requested again, usually nothing."""
    return dice.choice(list(Repeat)) if dice.random() < REPEATED_SHARE else None


def draw_cancel(dice: random.Random) -> Cancel | None:
    """Draw who cancels a job and when, usually nobody."""
    if dice.random() >= CANCELLED_SHARE:
        return None
    return Cancel(by=dice.choice(PEOPLE), after_s=round(dice.uniform(0, CANCELLED_AFTER_S), 3))
