"""The people of a test: what they decide about questions for approval."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import ApprovalRequest, ApprovalStatus, Decided
from cortex.domain.argument_check import misfits
from cortex.domain.canonical import canonical, digest

PERSON = "test"


@attrs.frozen(kw_only=True)
class Ruling:
    """What people will answer."""

    is_approved: bool
    by: str
    reason: str | None
    arguments: Mapping[str, Any] | None = None
    """Those that they approve instead of the ones asked for."""


@attrs.define
class People:
    """Rulings by the name of a question, and one for all others."""

    rulings: dict[str, Ruling] = attrs.field(factory=dict)
    for_all: Ruling | None = None

    def decide(self, request: ApprovalRequest, *, job_id: UUID, at: datetime) -> Decided | None:
        """Return the decision about a question; None: nobody decides.

        Raises `ValueError` for an edit that people could not make.
        """
        ruling = self._ruling(request)
        if ruling is None:
            return None
        edited = None
        if ruling.arguments is not None:
            edited = _edited(request, ruling.arguments)
        status = ApprovalStatus.APPROVED if ruling.is_approved else ApprovalStatus.DENIED
        given = {"by": ruling.by, "reason": ruling.reason, "at": at, "waited_s": 0.0}
        return decided_on(request, status, job_id=job_id, edited=edited, **given)

    def _ruling(self, request: ApprovalRequest) -> Ruling | None:
        for name in (request.key, request.tool):
            if name is not None and name in self.rulings:
                return self.rulings[name]
        return self.for_all


def decided_on(
    request: ApprovalRequest,
    status: ApprovalStatus,
    *,
    job_id: UUID,
    edited: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Decided:
    """Return a request with its decision; `edited`: the arguments after a person's edit."""
    text = request.arguments if edited is None else canonical(edited)
    defaults: dict[str, Any] = {
        "id": request.id,
        "job_id": job_id,
        "status": status,
        "arguments": text,
        "digest": digest(text),
        "asked_digest": request.digest,
        "risk": request.risk,
        "people": request.people,
        "by": None if status is ApprovalStatus.PENDING else PERSON,
        "reason": None,
        "at": None,
        "waited_s": None,
    }
    return Decided(**defaults | fields)


def _edited(request: ApprovalRequest, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if request.schema is None:
        raise ValueError(f"question {request.key!r} has no schema: people cannot edit it")
    plain = dict(arguments)
    if found := misfits(request.schema, plain):
        raise ValueError(
            f"question {request.key!r} does not take {plain}: {found[0].field} {found[0].reason}"
        )
    return plain
