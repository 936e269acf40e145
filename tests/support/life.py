"""Brings jobs into any state through the store, as pods would."""

import json
from decimal import Decimal
from typing import Any
from uuid import UUID

from cortex.domain.clock import system_chance
from cortex.domain.drain import Liveness
from cortex.domain.job import (
    PATCH_PREFIX,
    Claim,
    Finish,
    JobStatus,
    NumberedStep,
    Release,
    StepDone,
    StepKind,
    Submission,
)
from cortex.domain.policy import JobPolicy
from cortex.domain.usage import Usage
from cortex.durable.registry import JobType
from cortex.durable.tally import Tally
from cortex.postgres.session import Session
from cortex.store import codes, jobs, pods, specs, steps, tasks
from cortex.store.codes import Code
from cortex.store.specs import SpecKind
from tests.support.servers.postgres import sql

CHANCE = system_chance()


class Life:
    """Acts of pods on jobs, one method for each."""

    def __init__(self, call: Session, dsn: str) -> None:
        self.call = call
        self.dsn = dsn

    def pod(
        self,
        name: str = "pod-1",
        *types: str,
        code: str | None = None,
        takes: JobType[..., Any] | None = None,
        liveness: Liveness = Liveness.LOCK,
    ) -> UUID:
        """Register a pod; `takes`: its code has this job type. No session holds its lock."""
        known = None
        if code is not None:
            arguments = {} if takes is None else {takes.name: takes.schema}
            known = Code(version=code, arguments=arguments)
            self.call(codes.ensure, known)
        pod = pods.Pod(
            id=CHANCE.new_id(),
            lock_key=CHANCE.rng.getrandbits(62),
            name=name,
            version="1.0",
            job_types=types or ("digest",),
            slots=10,
            code=known,
            liveness=liveness,
        )
        self.call(pods.register, pod)
        return pod.id

    def agent(self, name: str = "researcher") -> None:
        spec = {"name": name, "model": "claude", "system": "Find out.", "tools": ["read_file"]}
        self.call(
            specs.apply, SpecKind.AGENT, new_id=CHANCE.new_id(), name=name, spec=spec, by="ana"
        )

    def type(self, name: str = "digest") -> None:
        self.call(jobs.ensure_types, {name: JobPolicy()})

    def job(self, job_type: str = "digest", **attributes: Any) -> UUID:
        submission = Submission(id=CHANCE.new_id(), type=job_type, **attributes)
        self.call(jobs.submit, [submission])
        return submission.id

    def claim(self, pod: UUID, job_type: str = "digest") -> Claim:
        (claim,) = self.call(tasks.claim, pod_id=pod, types=[job_type], limit=1)
        return claim

    def claims(self, pod: UUID, job_type: str = "digest", *, limit: int = 10) -> list[Claim]:
        """Return what a pod gets when it promotes and claims."""
        self.call(tasks.promote)
        return list(self.call(tasks.claim, pod_id=pod, types=[job_type], limit=limit))

    def step(
        self,
        pod: UUID,
        claim: Claim,
        seq: int,
        key: str,
        *,
        kind: StepKind = StepKind.STEP,
        is_paid: bool = False,
    ) -> None:
        done = StepDone(
            lease=claim.lease,
            kind=StepKind.MODEL if is_paid else kind,
            key=key,
            digest=b"digest",
            duration_s=0.25,
            output='"out"',
            usage=json.dumps(Usage(input_tokens=1200, output_tokens=34).to_json())
            if is_paid
            else None,
            cost_usd=Decimal("0.0123") if is_paid else None,
            ended_at=0.0,
            tally=Tally(()),
        )
        head = {"seq": seq, "key": key, "kind": done.kind.value}
        if is_paid:
            head |= {"input_tokens": 1200, "output_tokens": 34, "cost_usd": "0.0123"}
        numbered = NumberedStep(done, seq, json.dumps(head))
        assert self.call(steps.commit, pod_id=pod, operations=[numbered]) == {claim.lease.job_id}

    def patch(self, pod: UUID, claim: Claim, seq: int, patch: str, *, is_new: bool) -> None:
        """Record which branch of a patch a job takes."""
        done = StepDone(
            lease=claim.lease,
            kind=StepKind.PATCH,
            key=f"{PATCH_PREFIX}{patch}",
            digest=b"digest",
            duration_s=0.0,
            output=json.dumps(is_new),
            ended_at=0.0,
            tally=Tally(()),
        )
        operations = [NumberedStep(done, seq, None)]
        assert self.call(steps.commit, pod_id=pod, operations=operations)

    def finish(
        self,
        pod: UUID,
        claim: Claim,
        *,
        result: str | None = '{"text": "done"}',
        error: str | None = None,
    ) -> None:
        ending = Finish(
            lease=claim.lease,
            status=JobStatus.COMPLETED if error is None else JobStatus.FAILED,
            result=result if error is None else None,
            error=error,
            code=None if error is None else "job_failed",
        )
        assert self.call(jobs.finish, pod_id=pod, operations=[ending])

    def release(self, pod: UUID, claim: Claim, outcome: str, error: str | None = None) -> None:
        ending = Release(lease=claim.lease, outcome=outcome, error=error)
        assert self.call(tasks.release, pod_id=pod, operations=[ending])

    def failed(self, error: str = "no such page") -> UUID:
        pod = self.pod()
        job_id = self.job()
        self.finish(pod, self.claim(pod), error=error)
        return job_id

    def many_steps(self, job_id: UUID, count: int) -> None:
        query = """
            INSERT INTO cortex.job_step (
                job_id, seq, attempt, kind, key, digest, started_at, finished_at)
            SELECT $1, n, 1, 'step', 'step ' || n, 'x', now(), now()
            FROM generate_series(1, $2) AS n
        """
        self.sql(query, job_id, count)

    def sql(self, query: str, *args: object) -> list[Any]:
        return list(sql(self.dsn, query, *args))
