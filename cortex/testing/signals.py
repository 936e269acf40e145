"""What a test sends to its jobs, and the steps that have received it."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

import attrs

from cortex.domain.signals import ReceivedSignal
from cortex.domain.waits import SignalWait, Wait


@attrs.frozen(kw_only=True)
class SentSignal:
    """A signal for each job that runs later."""

    id: UUID
    name: str
    key: str | None
    payload: str
    """JSON text."""
    after_s: float
    """Seconds from the begin of the job to its arrival."""


def _in_order(sent: Iterable[SentSignal]) -> list[SentSignal]:
    return sorted(sent, key=lambda each: each.after_s)


@attrs.define
class SignalQueue:
    """The signals of one job, in the order in which they arrive."""

    sent: list[SentSignal] = attrs.field(factory=list, converter=_in_order)
    taken: dict[str, SentSignal] = attrs.field(factory=dict)
    """By step."""

    def take(
        self, step: str, name: str, key: str | None, *, began: datetime, now_s: float
    ) -> ReceivedSignal | None:
        """Give a step the first signal that no step has, or the one that it has already."""
        found = self.taken.get(step)
        if found is None:
            waiting = self._untaken(SignalWait(name=name, key=key))
            found = next((each for each in waiting if each.after_s <= now_s), None)
        if found is None:
            return None
        self.taken[step] = found
        sent_at = began + timedelta(seconds=found.after_s)
        return ReceivedSignal(id=found.id, payload=found.payload, sent_at=sent_at)

    def withdraw(self, step: str) -> None:
        """Give back what a step has taken."""
        self.taken.pop(step, None)

    def next_s(self, waits: Iterable[Wait]) -> float | None:
        """Return when, since the job began, the first of these waits is met; None: never."""
        wanted = [each for each in waits if isinstance(each, SignalWait)]
        return min((each.after_s for wait in wanted for each in self._untaken(wait)), default=None)

    def _untaken(self, wait: SignalWait) -> list[SentSignal]:
        taken = {each.id for each in self.taken.values()}
        return [
            each
            for each in self.sent
            if (each.name, each.key) == (wait.name, wait.key) and each.id not in taken
        ]
