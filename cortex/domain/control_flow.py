"""What job code must not swallow: the loss of its lease, and the wish to wait."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cortex.domain.waiting import CODE, SLEEP
from cortex.domain.waits import DecisionWait

if TYPE_CHECKING:
    from uuid import UUID

    from cortex.domain.approvals.approval import ApprovalRequest
    from cortex.domain.errors import MisfitKind
    from cortex.domain.failure import Failure
    from cortex.domain.job import UnknownEffect
    from cortex.domain.waits import Wait


class LeaseLost(BaseException):
    """Another attempt owns the job now: this one must stop and touch nothing more."""


class Suspended(BaseException):
    """The job must wait for something outside it, without a pod and without counting a retry.

    `waiting_on` names it ("llm:NAME", "budget:NAME"), `reason` is one line for people. With
    `delay_s` it waits that many seconds (RETRY); without, for a person (WAITING_FOR_APPROVAL).
    `failure` is that of the job's own call, if that caused it, and `opened_unix_s` when the breaker
    opened, by the database's clock: a job whose own calls fail repeatedly, although others succeed
    in between, is not waiting for an outage.

    The questions for people: `requests` for approval, those `awaited` from before, effects of
    `unknown` outcome. `waits`: any of these wakes the job before its time; without a `delay_s`
    only they do.
    """

    def __init__(
        self,
        waiting_on: str,
        reason: str,
        *,
        delay_s: float | None,
        failure: "Failure | None" = None,
        opened_unix_s: float | None = None,
        requests: "tuple[ApprovalRequest, ...]" = (),
        awaited: "tuple[UUID, ...]" = (),
        unknown: "tuple[UnknownEffect, ...]" = (),
        waits: "tuple[Wait, ...]" = (),
    ) -> None:
        super().__init__(reason)
        self.waiting_on = waiting_on
        self.reason = reason
        self.delay_s = delay_s
        self.failure = failure
        self.opened_unix_s = opened_unix_s
        self.requests = requests
        self.awaited = awaited
        self.unknown = unknown
        self.waits = waits


class Unfit(Suspended):
    """The pod's code lacks something that the job needs now: the job is handed back.

    `kind`: of the missing thing. If the job also waits for anything else, that wait goes first.
    """

    def __init__(self, kind: "MisfitKind", reason: str) -> None:
        super().__init__(CODE, reason, delay_s=0.0)
        self.kind = kind


# --- Merging several wishes to wait.


def together(wishes: Sequence[Suspended]) -> Suspended:
    """Return the wish that waits longest, with the questions of all.

    So concurrent calls ask for their decisions at once, not one after the other. Of timers alone,
    and of waits that something else may end before their time, it is the first to end: the code
    behind it has something to do then. What else wakes one of them never keeps the others waiting.
    """
    others = [wish for wish in wishes if not wish.waits] or wishes
    if all(wish.waits or wish.waiting_on == SLEEP for wish in others):
        wish = min(wishes, key=_patience)
    else:
        wish = max(others, key=_patience)
        _let_times_end(wish, wishes)
    if len(wishes) > 1:
        wish.requests = tuple(request for each in wishes for request in each.requests)
        wish.awaited = tuple(awaited for each in wishes for awaited in each.awaited)
        wish.unknown = tuple(unknown for each in wishes for unknown in each.unknown)
        wish.waits = tuple(dict.fromkeys(wait for each in wishes for wait in each.waits))
    return wish


def _let_times_end(wish: Suspended, wishes: Sequence[Suspended]) -> None:
    """Have a wish to wait for people end with the first time of waits beside it, too."""
    times = [each.delay_s for each in wishes if each.waits and each.delay_s is not None]
    asked = [request.id for each in wishes for request in each.requests]
    asked += [awaited for each in wishes for awaited in each.awaited]
    if wish.delay_s is None and times and asked:
        wish.delay_s = min(times)
        wish.waits = (*wish.waits, *(DecisionWait(id=each) for each in dict.fromkeys(asked)))


def _patience(wish: Suspended) -> float:
    """The order of wishes to wait: a person's decision takes longest."""
    return float("inf") if wish.delay_s is None else wish.delay_s
