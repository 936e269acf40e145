"""The ledger that tests of users' jobs have: it answers as `cortex.intend` does in Postgres."""

import random
from typing import Any, Final

import attrs
import pytest

from cortex.domain.approvals.approval import ApprovalStatus
from cortex.domain.clock import seeded_chance
from cortex.domain.effect import Resolution
from cortex.domain.job import (
    Claim,
    EffectIntent,
    EffectOutcome,
    EffectReport,
    IntentReply,
    JobStatus,
    UnknownEffect,
)
from cortex.postgres.session import Session
from cortex.store import effects
from cortex.testing.ledger import Ledger
from cortex.testing.people import decided_on
from cortex.testing.record import JobRecord
from tests.support.people import user
from tests.support.records.approvals import Askers, a_request
from tests.support.records.effects import ARGUMENTS, Doers, an_intent
from tests.support.records.rows import new_id

SEQUENCES: Final = 40
LENGTH: Final = 9
OTHERS: Final[dict[str, Any]] = {"account": "bo"}


@attrs.define
class Both:
    """One job with both ledgers; each act is done to both, and must have the same answer."""

    doers: Doers
    claim: Claim
    rng: random.Random
    outputs: dict[str, str] = attrs.field(factory=dict)
    ledger: Ledger = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: Ledger(self.outputs.get, lambda _: True), takes_self=True
        ),
    )
    last: EffectIntent | None = None
    acts: list[str] = attrs.field(factory=list)

    def act(self) -> None:
        """Do something that an attempt, its pod or a person could do now."""
        choices = [self.intend, self.intend, self.again, self.tell, self.complete, self.doubt]
        self.rng.choice(choices)()
        for each in self.ledger.effects:
            row = self.doers.row(each.id)
            stored = (row["status"], row["is_sure"], row["why"], row["calls_count"], row["attempt"])
            kept = (each.status, each.is_sure, each.why, each.calls_count, each.attempt)
            assert kept == stored, self.acts
        job = self.claim.lease.job_id
        stored_open = self.doers.call(effects.unrecorded, job, lineage_id=job, of_line=False)
        assert self.ledger.unrecorded(self.outputs) == list(stored_open), self.acts

    def intend(self) -> None:
        fields: dict[str, Any] = {"is_sure": self.rng.random() < 0.3}
        if self.rng.random() < 0.15:
            fields["tool"] = "refund"
            fields["is_named"] = self.rng.random() < 0.5
        arguments = OTHERS if self.rng.random() < 0.2 else ARGUMENTS
        intent = an_intent(self.claim, arguments, **fields)
        if self.last is not None and self.rng.random() < 0.15:
            intent = attrs.evolve(self.last, lease=self.claim.lease)  # its reply was lost
        self.last = intent
        (stored,) = self.doers.call(
            effects.intend, pod_id=self.doers.pod_id, operations=[intent]
        ).values()
        self.acts.append(f"intend {intent.arguments} {fields}: {stored.verdict}")
        assert self.ledger.intend(intent) == stored, self.acts

    def again(self) -> None:
        self.acts.append("again")
        self.claim = self.doers.again(self.claim)

    def tell(self) -> None:
        if not self.ledger.effects:
            return
        effect = self.rng.choice(self.ledger.effects)
        result = self.rng.choice([None, '{"n":7}'])
        self.acts.append(f"tell {effect.intent.arguments} {result}")
        report = EffectReport(
            lease=self.claim.lease,
            id=effect.id,
            is_applied=result is not None,
            why="as the test says",
            result=result,
        )
        assert self.ledger.report(report) == self.doers.tell(self.claim, effect.id, result=result)

    def complete(self) -> None:
        mine = [each for each in self.ledger.effects if each.attempt == self.claim.lease.attempt]
        if not mine or self.outputs:
            return
        effect = self.rng.choice(mine)
        self.acts.append(f"complete {effect.intent.arguments}")
        self.doers.complete(self.claim, effect.id, output='{"n":8}')
        self.outputs["pay"] = '{"n":8}'
        self.ledger.step(EffectOutcome(effect.id))

    def doubt(self) -> None:
        mine = [
            each
            for each in self.ledger.effects
            if each.attempt == self.claim.lease.attempt
            and each.status == "PENDING"
            and not each.is_sure
        ]
        if not mine:
            return
        effect, said = self.rng.choice(mine), self.rng.choice(list(Resolution))
        self.acts.append(f"doubt {effect.intent.arguments}: {said}")
        self.doers.doubt(self.claim, effect.id, "no answer came")
        self.ledger.doubt(UnknownEffect(effect.id, "no answer came"))
        self.doers.call(effects.resolve, effect.id, said, by=user("ana"), reason="seen", result="7")
        self.ledger.resolve(effect.id, said, result="7")
        self.claim = self.doers.claim(self.claim.lease.job_id)

    def end(self) -> None:
        self.doers.fail(self.claim)
        self.ledger.close(JobStatus.FAILED)
        for each in self.ledger.effects:
            row = self.doers.row(each.id)
            assert (each.status, each.is_sure, each.why) == (
                row["status"],
                row["is_sure"],
                row["why"],
            ), self.acts


@pytest.fixture
def doers(store: Session, database: str) -> Doers:
    return Doers(store, database)


def test_ledger_in_memory_answers_as_postgres_does(doers: Doers) -> None:
    rng = random.Random(7)
    verdicts: set[str] = set()
    for claim in doers.claimed_many(SEQUENCES):
        both = Both(doers, claim, rng)
        for _ in range(LENGTH):
            both.act()
        both.end()
        verdicts |= {act.rpartition(": ")[2] for act in both.acts if act.startswith("intend")}
    assert verdicts == {"go", "recheck", "done", "diverged", "abandoned"}


def test_approval_in_memory_covers_what_it_covers_in_postgres(doers: Doers) -> None:
    askers = Askers(doers.call, doers.dsn, doers.pod_id)
    claim = askers.claimed()
    request = a_request(ARGUMENTS, tool="pay", key="pay")
    askers.suspend(claim, request)
    askers.decide(request)
    claim = askers.claim(claim.lease.job_id)
    record = JobRecord(seeded_chance(7, lambda: 0))
    record.ask(request)
    job_id = claim.lease.job_id
    record.decisions["pay"] = decided_on(request, ApprovalStatus.APPROVED, job_id=job_id)
    found: list[IntentReply] = []
    cases: list[dict[str, Any]] = [
        {"arguments": OTHERS},
        {"tool": "refund"},
        {"approval_id": new_id()},
        {},
        {"key": "pay#2"},
    ]
    for fields in cases:
        intent = an_intent(claim, **{"approval_id": request.id, **fields})
        (stored,) = doers.call(effects.intend, pod_id=doers.pod_id, operations=[intent]).values()
        found.append(stored)
        assert record.ledger.intend(intent) == stored
    assert [each.verdict for each in found] == [*["unapproved"] * 3, "go", "unapproved"]
