"""What a checker answers."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any
from uuid import UUID

from attrs import field, frozen

from chaos.evidence import Evidence


class Result(StrEnum):
    """Unknown is an answer: the evidence does not tell. It is not valid."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class Verdict:
    """One invariant in one run."""

    invariant: str
    """Its number, such as `I3`."""
    claim: str
    """What should be true, in a line."""
    result: Result
    seen: int
    """How many things were looked at: a claim about nothing proves nothing."""
    why: tuple[str, ...] = ()
    """What was found, a line each, unless all is well."""
    jobs: tuple[UUID, ...] = ()
    """The jobs that broke the rule."""
    figures: dict[str, Any] = field(factory=dict)
    """What it measured on the way."""


Checker = Callable[[Evidence], Verdict]
