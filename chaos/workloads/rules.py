"""Job types with rules about their submits, as pods, clients and checkers of a run know them."""

from enum import StrEnum
from typing import Final

PREFIX: Final = "ruled_"
"""Of the job types; the observer knows it, too."""
PERIOD_S: Final = 1.0
"""Of the debounce and of the throttle."""


class Rule(StrEnum):
    """The rules: those of singletons by what a submit does on a conflict."""

    RETURN = "return"
    REPLACE = "replace"
    QUEUE = "queue"
    REFUSE = "refuse"
    DEBOUNCE = "debounce"
    THROTTLE = "throttle"

    @property
    def job_type(self) -> str:
        return f"{PREFIX}{self}"


SINGLETONS: Final = frozenset({Rule.RETURN, Rule.REPLACE, Rule.QUEUE, Rule.REFUSE})
RULES: Final = {rule.job_type: rule for rule in Rule}
"""By the job types."""
