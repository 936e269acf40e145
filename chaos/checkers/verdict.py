"""What a checker answers, and the notes that it takes on the way there."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any
from uuid import UUID

from attrs import define, field, frozen

from chaos.evidence import Evidence

LINES_MAX = 40
"""More of the same tells a reader nothing more."""


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


@define
class Findings:
    """Notes of one checker: what it looked at, and what was wrong with it."""

    invariant: str
    claim: str
    seen: int = 0
    _why: list[str] = field(factory=list, init=False)
    _jobs: dict[UUID, None] = field(factory=dict, init=False)

    def look(self, count: int = 1) -> None:
        """So many things were looked at."""
        self.seen += count

    def broken(self, why: str, *, job: UUID | None = None) -> None:
        """The rule was broken, by this job if it is one's."""
        self._why.append(why)
        if job is not None:
            self._jobs[job] = None

    def verdict(self, *, unknown: str | None = None, **figures: Any) -> Verdict:
        """Judge: what is broken is invalid; `unknown` says why the rest cannot be told."""
        result, why = Result.VALID, self._why[:LINES_MAX]
        if self._why:
            result = Result.INVALID
            if more := len(self._why) - len(why):
                why.append(f"and {more} more")
        elif unknown is not None or not self.seen:
            result = Result.UNKNOWN
            why = [unknown or "nothing of the kind happened"]
        return Verdict(
            invariant=self.invariant,
            claim=self.claim,
            result=result,
            seen=self.seen,
            why=tuple(why),
            jobs=tuple(self._jobs),
            figures=figures,
        )
