"""The verdict of a checker, and its findings on the way there."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any
from uuid import UUID

from attrs import define, field, frozen

from chaos.evidence import Evidence

LINES_MAX = 40
"""Further lines of the same kind add nothing."""


class Result(StrEnum):
    """UNKNOWN means that the evidence is insufficient; it is not VALID."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class Verdict:
    invariant: str
    """Its number, such as `I3`."""
    claim: str
    """What should be true, in one line."""
    result: Result
    checked: int
    """How many things were checked: a claim about nothing proves nothing."""
    why: tuple[str, ...] = ()
    """The findings, one line each; empty if all is well."""
    jobs: tuple[UUID, ...] = ()
    """The jobs that broke the rule."""
    figures: dict[str, Any] = field(factory=dict)
    """What the checker measured."""


Checker = Callable[[Evidence], Verdict]


@define
class Findings:
    """Notes of one checker: how much it checked, and what was wrong."""

    invariant: str
    claim: str
    checked: int = 0
    _why: list[str] = field(factory=list, init=False)
    _jobs: dict[UUID, None] = field(factory=dict, init=False)

    def count(self, number: int = 1) -> None:
        """Count things that were checked."""
        self.checked += number

    def broken(self, why: str, *, job: UUID | None = None) -> None:
        """The rule was broken, by this job if there is one."""
        self._why.append(why)
        if job is not None:
            self._jobs[job] = None

    def verdict(self, *, unknown: str | None = None, **figures: Any) -> Verdict:
        """Return INVALID if anything was broken; `unknown` says why the rest cannot be judged."""
        result, why = Result.VALID, self._why[:LINES_MAX]
        if self._why:
            result = Result.INVALID
            if more := len(self._why) - len(why):
                why.append(f"and {more} more")
        elif unknown is not None or not self.checked:
            result = Result.UNKNOWN
            why = [unknown or "nothing of the kind happened"]
        return Verdict(
            invariant=self.invariant,
            claim=self.claim,
            result=result,
            checked=self.checked,
            why=tuple(why),
            jobs=tuple(self._jobs),
            figures=figures,
        )
