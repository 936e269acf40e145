"""Children of a job in memory: each runs to its end when its parent waits for it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import attrs
import trio

from cortex.domain.child import (
    DEPTH_MAX,
    AdoptVerdict,
    ChildOutcome,
    ChildTerms,
    SpawnReply,
    reason_of_cut,
)
from cortex.domain.control_flow import LeaseLost
from cortex.domain.job import Claim, Finish, JobStatus
from cortex.testing.budgets import MemoryBudgets, given_shares

if TYPE_CHECKING:
    from cortex.testing.clock import RunClock


class ChildJob(Protocol):
    """A child as a job of its own: a `JobRun`."""

    @property
    def job_id(self) -> UUID: ...
    @property
    def payload(self) -> str: ...
    @property
    def ending(self) -> Finish | None: ...
    @property
    def is_stuck(self) -> str | None: ...
    @property
    def budgets(self) -> MemoryBudgets: ...
    async def to_end(self, clock: "RunClock") -> None: ...


@attrs.define
class MemoryChild:
    """One child of a step."""

    step: str
    ordinal: int
    terms: ChildTerms
    run: ChildJob
    has_ended: bool = False
    is_cancelled: bool = False
    """Its parent waited for it no more."""

    @property
    def outcome(self) -> ChildOutcome:
        if self.is_cancelled:
            return ChildOutcome(
                ordinal=self.ordinal,
                job_id=self.run.job_id,
                status=JobStatus.CANCELLED,
                result=None,
                error=reason_of_cut(None, None),
                error_code=None,
                error_class=None,
            )
        end = self.run.ending
        if end is None:
            raise AssertionError(f"child {self.run.job_id} has not ended")
        return ChildOutcome(
            ordinal=self.ordinal,
            job_id=self.run.job_id,
            status=end.status,
            result=end.result,
            error=end.error,
            error_code=end.code,
            error_class=end.error_class,
        )


@attrs.define
class MemoryFamily:
    """The children of one job, whichever of its attempts has submitted them."""

    make: Callable[[ChildTerms, str], "ChildJob | str"] = lambda terms, _: (
        f"submits a job of type {terms.type!r}"
    )
    """Prepares a child; returns why it cannot, in words for people."""
    children: dict[str, list[MemoryChild]] = attrs.field(factory=dict)
    """By step."""
    budgets: MemoryBudgets = attrs.field(factory=MemoryBudgets)
    """Of the parent."""
    depth: int = 0
    """How many jobs are above this one."""

    def give(self, step: str, terms: ChildTerms, child: ChildJob) -> None:
        """Have a child count towards the budgets of its parent, and towards its own share."""
        above = () if terms.is_detached else self.budgets.shares
        own = given_shares(step, child.job_id, terms.budget or {}, above)
        child.budgets.shares = (*above, *own)

    @property
    def all(self) -> list[MemoryChild]:
        return [each for step in self.children.values() for each in step]

    async def run(self, step: str, upto: int, clock: "RunClock") -> str | None:
        """Run the children of a step, those below `upto`; return why one does not end."""
        for each in self.children.get(step, ())[:upto]:
            if (why := await self._end(each, clock)) is not None:
                return why
        return None

    def cancel(self, step: str) -> None:
        """Cancel the children of a step that have not ended and are not detached."""
        for each in self.children.get(step, ()):
            if not (each.has_ended or each.terms.is_detached):
                each.is_cancelled = each.has_ended = True

    async def run_detached(self, clock: "RunClock") -> str | None:
        """Run those that go on after their parent; return why one does not end."""
        for each in self.all:
            if each.terms.is_detached and (why := await self._end(each, clock)) is not None:
                return why
        return None

    async def _end(self, child: MemoryChild, clock: "RunClock") -> str | None:
        if not child.has_ended:
            await child.run.to_end(clock)
            if (why := child.run.is_stuck) is not None:
                return (
                    f"waits for a child of step {child.step!r} of type {child.terms.type!r}: {why}"
                )
            child.has_ended = True
        return None


@attrs.frozen
class MemoryChildren:
    """Implements `cortex.durable.attempt.Children` for one attempt."""

    family: MemoryFamily
    reach: Callable[[str], None]
    """Passes a point at which the attempt may be killed."""
    stuck: Callable[[str], None]

    async def spawn(
        self,
        claim: Claim,  # noqa: ARG002
        *,
        step: str,
        first: int,
        payloads: Sequence[str],
        terms: ChildTerms,
        let_go: int | None,  # noqa: ARG002
    ) -> SpawnReply:
        await trio.lowlevel.checkpoint()
        if self.family.depth >= DEPTH_MAX:
            return SpawnReply(verdict="too_deep", ordinal=self.family.depth)
        self.reach(f"before the children of step {step!r} were submitted")
        known = self.family.children.setdefault(step, [])
        for nth, payload in enumerate(payloads, start=first):
            if nth < len(known):
                if known[nth].run.payload != payload or known[nth].terms.type != terms.type:
                    return SpawnReply(verdict="other", ordinal=nth)
                continue
            made = self.family.make(terms, payload)
            if isinstance(made, str):
                self.stuck(made)
                raise LeaseLost("stuck")
            self.family.give(step, terms, made)
            known.append(MemoryChild(step, nth, terms, made))
        self.reach(f"after the children of step {step!r} were submitted")
        return SpawnReply(verdict="done")

    async def outcomes(
        self,
        claim: Claim,  # noqa: ARG002
        *,
        step: str,
        first: int,
        limit: int,
    ) -> list[ChildOutcome]:
        await trio.lowlevel.checkpoint()
        ended = []
        for each in self.family.children.get(step, ())[first : first + limit]:
            if not each.has_ended:
                break
            ended.append(each.outcome)
        return ended

    async def adopt(
        self,
        claim: Claim,  # noqa: ARG002
        *,
        step: str,  # noqa: ARG002
        first: int,  # noqa: ARG002
        let_go: int,  # noqa: ARG002
    ) -> AdoptVerdict:
        raise AssertionError("a job in memory continues no other")

    async def ids(
        self,
        claim: Claim,  # noqa: ARG002
        *,
        step: str,
        first: int,
        limit: int,
    ) -> list[UUID]:
        await trio.lowlevel.checkpoint()
        return [each.run.job_id for each in self.family.children[step][first : first + limit]]
