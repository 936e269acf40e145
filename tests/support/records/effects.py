"""Effects as running jobs record them, on the store alone."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.canonical import canonical, digest
from cortex.domain.job import (
    Claim,
    EffectIntent,
    EffectOutcome,
    EffectReport,
    Finish,
    IntentReply,
    JobStatus,
    NumberedStep,
    Release,
    StepDone,
    StepKind,
    Suspend,
    UnknownEffect,
)
from cortex.durable.tally import Tally
from cortex.postgres.session import Session
from cortex.store import dead_letters, effects, jobs, steps, tasks
from cortex.store.dead_letters import Resubmission
from tests.support.records.factories import JOB_TYPE, a_submission
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

ARGUMENTS = {"account": "ana", "amount": 1}


def an_intent(
    claim: Claim, arguments: Mapping[str, Any] = ARGUMENTS, **fields: Any
) -> EffectIntent:
    """A payment that an attempt asks leave for."""
    text = canonical(dict(arguments))
    defaults: dict[str, Any] = {
        "lease": claim.lease,
        "id": new_id(),
        "key": "pay",
        "tool": "pay",
        "arguments": text,
        "digest": digest(text),
        "is_sure": False,
        "can_reconcile": False,
        "approval_id": None,
    }
    return EffectIntent(**defaults | fields)


@attrs.frozen
class Doers:
    """Jobs that do something outside; `call` runs store methods."""

    call: Session
    dsn: str
    pod_id: UUID = attrs.Factory(new_id)

    def claimed(self, **submission: Any) -> Claim:
        """Submit a job and take it."""
        return self.claimed_many(1, **submission)[0]

    def claimed_many(self, count: int, **submission: Any) -> list[Claim]:
        """Submit `count` jobs and claim them."""
        batch = [a_submission(**submission) for _ in range(count)]
        self.call(jobs.submit, batch)
        ids = {each.id for each in batch}
        return [each for each in self.claims() if each.lease.job_id in ids]

    def claim(self, job_id: UUID) -> Claim:
        """Take a job that is ready."""
        return next(each for each in self.claims() if each.lease.job_id == job_id)

    def intend(
        self, claim: Claim, arguments: Mapping[str, Any] = ARGUMENTS, **fields: Any
    ) -> IntentReply | None:
        """Ask for leave; None: the lease is lost."""
        intent = an_intent(claim, arguments, **fields)
        return self.call(effects.intend, pod_id=self.pod_id, operations=[intent]).get(intent.id)

    def begin(
        self, claim: Claim, arguments: Mapping[str, Any] = ARGUMENTS, **fields: Any
    ) -> IntentReply:
        """Ask for leave and get it."""
        leave = self.intend(claim, arguments, **fields)
        assert leave is not None
        assert leave.verdict == "go", leave
        return leave

    def tell(self, claim: Claim, effect_id: UUID, *, result: str | None = None) -> bool:
        """Record that it was applied with a result, or that it was not; False: refused."""
        message = EffectReport(
            lease=claim.lease,
            id=effect_id,
            is_applied=result is not None,
            why="as the test says",
            result=result,
        )
        return effect_id in self.call(
            effects.record_outcomes, pod_id=self.pod_id, operations=[message]
        )

    def complete(
        self, claim: Claim, effect_id: UUID | None, *, output: str, key: str = "pay"
    ) -> None:
        """Commit the step that the effect is; without one it is a decision."""
        done = StepDone(
            lease=claim.lease,
            kind=StepKind.APPROVAL if effect_id is None else StepKind.EFFECT,
            key=key,
            digest=b"digest",
            duration_s=0.1,
            output=output,
            ended_at=0.0,
            tally=Tally(()),
            effect=None if effect_id is None else EffectOutcome(effect_id),
        )
        step = NumberedStep(done, 1, '{"seq": 1}')
        assert self.call(steps.commit, pod_id=self.pod_id, operations=[step])

    def doubt(self, claim: Claim, effect_id: UUID, why: str = "no answer came") -> None:
        """Let the job wait for a person who knows what became of it."""
        self.suspend(
            claim,
            delay_s=None,
            waiting_on=f"effect:{effect_id}",
            unknown=(UnknownEffect(effect_id, why),),
        )

    def suspend(self, claim: Claim, **fields: Any) -> None:
        """Let the job wait."""
        wish = Suspend(lease=claim.lease, is_counted=False, error="it waits", **fields)
        assert self.call(tasks.suspend, pod_id=self.pod_id, operations=[wish])

    def again(self, claim: Claim) -> Claim:
        """End the attempt as one that failed, and begin the next one."""
        release = Release(lease=claim.lease, outcome="failed")
        assert self.call(tasks.release, pod_id=self.pod_id, operations=[release])
        return self.claim(claim.lease.job_id)

    def fail(self, claim: Claim) -> None:
        """End the job."""
        ending = Finish(
            lease=claim.lease, status=JobStatus.FAILED, error="it broke", code="job_failed"
        )
        assert self.call(jobs.finish, pod_id=self.pod_id, operations=[ending])

    def heir(self, claim: Claim, *, from_start: bool = False) -> Claim:
        """Fail the job, and claim the one that continues it."""
        self.fail(claim)
        wanted = Resubmission(job_id=claim.lease.job_id, new_id=new_id())
        self.call(
            dead_letters.resubmit,
            [wanted],
            by="ana",
            reason="again",
            from_start=from_start,
            agent_version=None,
        )
        return self.claim(wanted.new_id)

    def row(self, effect_id: UUID) -> dict[str, Any]:
        """An effect as the ledger has it."""
        (row,) = sql(self.dsn, "SELECT * FROM cortex.effect WHERE id = $1", effect_id)
        return dict(row)

    def claims(self) -> list[Claim]:
        """Take all jobs that are ready."""
        self.call(tasks.promote)
        found: list[Claim] = []
        while claims := self.call(tasks.claim, pod_id=self.pod_id, types=[JOB_TYPE], limit=500):
            found += claims
        return found
