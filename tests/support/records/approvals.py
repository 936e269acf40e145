"""Requests for approval as jobs make them, and people who decide, on the store alone."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import attrs
import pytest

from cortex.domain.approvals.approval import Approval, ApprovalRequest, Risk
from cortex.domain.approvals.vote import Vote, last_digits
from cortex.domain.canonical import canonical, digest
from cortex.domain.errors import CortexError
from cortex.domain.job import Claim, Suspend
from cortex.postgres.session import Session
from cortex.store import approvals, jobs, specs, tasks
from cortex.store.approvals import VoteResult
from cortex.store.specs import SpecKind
from tests.support.people import enrolled, user
from tests.support.records.factories import JOB_TYPE, a_submission
from tests.support.records.rows import new_id
from tests.support.servers.postgres import sql

ARGUMENTS = {"customer": "cus_88", "amount": 12.4}
SCHEMA = {
    "type": "object",
    "properties": {"customer": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["customer", "amount"],
    "additionalProperties": False,
}


def a_request(arguments: Mapping[str, Any] = ARGUMENTS, **fields: Any) -> ApprovalRequest:
    """Request of a job; `risk` CRITICAL asks for two people."""
    risk = Risk(fields.pop("risk", "MED"))
    text = canonical(dict(arguments))
    defaults: dict[str, Any] = {
        "id": new_id(),
        "key": "1 refund approval",
        "tool": "refund",
        "arguments": text,
        "digest": digest(text),
        "schema": SCHEMA,
        "effect": "money out",
        "reversible": False,
        "policy": "refunds ask",
        "said": "I will refund it.",
        "people": risk.people_min,
        "expires_s": 3600.0,
        "on_deny": "tell",
        "on_expiry": "fail",
    }
    return ApprovalRequest(**defaults | {"risk": risk} | fields)


def suspension(claim: Claim, *requests: ApprovalRequest, awaited: tuple[UUID, ...] = ()) -> Suspend:
    """The operation by which an attempt asks for these, or waits for what it asked before."""
    first = requests[0].id if requests else awaited[0]
    return Suspend(
        lease=claim.lease,
        delay_s=None,
        is_counted=False,
        waiting_on=f"approval:{first}",
        requests=requests,
        awaited=awaited,
        error="waits for a person",
    )


@attrs.frozen
class Askers:
    """Jobs that ask people; `call` runs store methods."""

    call: Session
    dsn: str
    pod_id: UUID = attrs.Factory(new_id)

    def claimed(self, **submission: Any) -> Claim:
        """Submit a job and take it."""
        job = a_submission(**submission)
        self.call(jobs.submit, [job])
        return self.claim(job.id)

    def claim(self, job_id: UUID) -> Claim:
        """Take a job that is ready."""
        self.call(tasks.promote)
        found = self.call(tasks.claim, pod_id=self.pod_id, types=[JOB_TYPE], limit=500)
        return next(each for each in found if each.lease.job_id == job_id)

    def suspend(
        self, claim: Claim, *requests: ApprovalRequest, awaited: tuple[UUID, ...] = ()
    ) -> None:
        """Let a running job wait for people."""
        operation = suspension(claim, *requests, awaited=awaited)
        done = self.call(tasks.suspend, pod_id=self.pod_id, operations=[operation])
        assert done == {claim.lease.job_id}

    def ask(self, *requests: ApprovalRequest, **submission: Any) -> UUID:
        """Submit a job that asks for these; return its id."""
        claim = self.claimed(**submission)
        self.suspend(claim, *requests)
        return claim.lease.job_id

    def asked(self, **fields: Any) -> ApprovalRequest:
        """Submit a job that asks for one thing; return that."""
        submitter = fields.pop("submitted_by", None)
        request = a_request(**fields)
        job_id = self.ask(request)
        if submitter is not None:  # as a pod's API does, which is not under test here
            query = "UPDATE cortex.approval SET requested_by = $2 WHERE job_id = $1"
            sql(self.dsn, query, job_id, submitter)
        return request

    def asked_below(self, threshold: float) -> ApprovalRequest:
        """Ask one person for a refund of 12.4, by an agent whose larger ones are CRITICAL."""
        rules: list[dict[str, Any]] = [
            {"tool": "refund", "when": {"amount": {"ge": threshold}}, "risk": "CRITICAL"},
            {"tool": "refund", "risk": "MED"},
        ]
        given = {"approvals": [{"approve": True, **each} for each in rules], "tools": ["refund"]}
        spec = {"name": "payer", "model": "claude", "system": "Pay.", **given}
        self.call(specs.apply, SpecKind.AGENT, new_id=new_id(), name="payer", spec=spec, by="ana")
        request = a_request()
        self.ask(request, agent="payer")
        return request

    def row(self, request: ApprovalRequest | UUID) -> Approval:
        """A request as people are shown it."""
        return self.call(approvals.show, request if isinstance(request, UUID) else request.id)

    def decide(self, request: ApprovalRequest, **fields: Any) -> VoteResult:
        """Let a person decide: `by` is an identity, or the name of somebody who may."""
        by = fields.get("by", "ana")
        if isinstance(by, str):
            fields["by"] = enrolled(self.dsn, by) if request.risk == "CRITICAL" else user(by)
        (result,) = self.call(approvals.decide, [a_verdict(request, **fields)])
        return result

    def refused(self, request: ApprovalRequest, **fields: Any) -> CortexError:
        """Let a person decide whose vote does not count; return why."""
        with pytest.raises(CortexError) as caught:
            self.decide(request, **fields)
        return caught.value


def a_verdict(request: ApprovalRequest, **fields: Any) -> Vote:
    """Approval by ana of the request as it was asked."""
    is_approved = fields.get("is_approved", True)
    defaults: dict[str, Any] = {
        "approval_id": request.id,
        "is_approved": True,
        "by": user("ana"),
        "seen": request.digest,
        "reason": None if is_approved else "no",
        "confirm": last_digits(request.id) if is_approved else None,
        "channel": "cli",
    }
    return Vote(**defaults | fields)


def facts(dsn: str, approval_id: UUID) -> list[tuple[str, dict[str, Any]]]:
    """Facts of a request, in order: the subtype and its data."""
    query = "SELECT subtype, data FROM cortex.fact WHERE source = $1 ORDER BY id"
    rows = sql(dsn, query, f"approval:{approval_id}")
    return [(row["subtype"], json.loads(row["data"])) for row in rows]
