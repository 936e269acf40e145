"""The queue of signals in memory against the one in SQL: the same operations, the same answers."""

from random import Random
from typing import Final

import attrs

from cortex.domain.job import Claim
from cortex.testing.clock import BEGIN
from cortex.testing.signals import SentSignal, SignalQueue
from tests.signals.conftest import Stage
from tests.support.records.rows import new_id, seeded_random

OPERATIONS: Final = 80


@attrs.define
class Both:
    """One job in both."""

    stage: Stage
    claim: Claim
    suffix: str
    """Of its keys: other tests send to keys, too."""
    queue: SignalQueue = attrs.field(factory=SignalQueue)

    def send(self, name: str, key: str | None, number: int) -> None:
        one = SentSignal(id=new_id(), name=name, key=key, payload=f"{number}", after_s=0.0)
        self.queue.sent.append(one)
        to = {} if key is None else {"key": f"{key}{self.suffix}"}
        job = self.claim.lease.job_id if key is None else None
        self.stage.send(job, name, f"{number}", **to)

    def take(self, step: str, name: str, key: str | None) -> tuple[str | None, str | None]:
        """Return what each gives the step."""
        there = None if key is None else f"{key}{self.suffix}"
        stored = self.stage.take(self.claim, step, name, there)
        kept = self.queue.take(step, name, key, began=BEGIN, now_s=0.0)
        return (
            None if stored is None else stored.payload,
            None if kept is None else kept.payload,
        )


def test_both_queues_give_the_same_steps_the_same_signals(stage: Stage) -> None:
    dice: Random = seeded_random()
    both = Both(stage, stage.running(), new_id().hex)
    terms = [(name, key) for name in ("x", "y") for key in (None, "k")]
    steps = {f"step {number}": dice.choice(terms) for number in range(20)}
    for number in range(OPERATIONS):
        if dice.random() < 0.4:
            both.send(*dice.choice(terms), number)
            continue
        step = dice.choice(list(steps))
        stored, kept = both.take(step, *steps[step])
        assert stored == kept, f"operation {number}: {step} asks for {steps[step]}"
