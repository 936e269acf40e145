"""Approvals: requests that people decide."""

from typing import Any, Final

from cortex.domain.approvals.approval import Approval, ApprovalHead, ApprovalRow, ApprovalVote
from cortex.domain.argument_check import ArgumentChange, changes
from cortex.domain.job import JobStatus
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.domain.token import Role
from cortex.view.approvals import (
    agreed,
    brief,
    brief_cell,
    decided,
    expires_cell,
    if_approved,
    if_denied,
    if_expired,
    left_s,
    risk_cell,
    state_cell,
)
from cortex.view.cells import Cell
from cortex.view.phrases import NOTHING
from cortex.view.resource import Field, Resource, Shape, on_demand


def _digest(row: ApprovalHead) -> str:
    return row.digest.hex()


def _asked_digest(row: Approval) -> str:
    return row.asked_digest.hex()


def _changes(row: Approval) -> list[ArgumentChange]:
    return changes(row.asked, row.arguments)


FIELDS: Final[tuple[Field[Any], ...]] = (
    Field(name="id", shown=lambda r: Cell(short_id(r.id), "bold")),
    Field(name="risk", shown=risk_cell),
    Field(name="what", value=brief, shown=brief_cell, least=24, is_for_people=True),
    Field(name="status", title="state", shown=state_cell, is_default=False),
    Field(
        name="expires_in_s",
        doc="time left, by the database's clock",
        title="expires in",
        value=left_s,
        shown=expires_cell,
        is_right=True,
    ),
    Field(
        name="agreed",
        doc="number of people who agreed",
        shown=lambda r: Cell(agreed(r)),
        is_right=True,
    ),
    Field(
        name="agent",
        shown=lambda r: Cell(safe(r.agent or r.job_type or NOTHING)),
        least=8,
    ),
    Field(
        name="job_id",
        title="job",
        shown=lambda r: Cell(short_id(r.job_id), "dim"),
        is_spare=True,
    ),
    Field(
        name="decided_at",
        title="decided",
        shown=lambda r: Cell(decided(r) or NOTHING, "dim"),
        is_default=False,
        least=12,
    ),
    *on_demand(
        tool="null for a gate in the job's own code", key="the step of the job that waits for it"
    ),
    Field(
        name="arguments",
        doc="exactly what will run",
        json=lambda r: r.arguments_text,
        is_default=False,
    ),
    Field(
        name="digest",
        doc="SHA-256 of the arguments, hexadecimal",
        value=_digest,
        is_default=False,
    ),
    *on_demand(
        version="increased by each edit",
        schema="JSON Schema of edits; null: not editable",
        effect="the external effect, in words",
        reversible="null: unknown",
        policy="the policy that requires approval, in words",
        people="number of different people who must agree",
    ),
    *on_demand("job_type", "created_at", requested_by="submitter of the job"),
    *on_demand("edited_by", "decided_by", "reason", expires_at="afterwards nobody can decide"),
    *on_demand(channel="channel of the decision: cli, api, page, link, tui or mcp"),
)

APPROVALS: Final = Resource(
    name="ApprovalRow",
    noun="approvals",
    doc="A request for approval.",
    row=ApprovalRow,
    fields=FIELDS,
    unlisted=frozenset({"now", "arguments_text", "is_open"}),
)

VOTE: Final = Shape(
    name="ApprovalVote",
    doc="One person who agreed.",
    row=ApprovalVote,
    fields=(
        Field(name="person"),
        Field(name="credential", role=Role.ADMIN),
        *on_demand(
            "at",
            "channel",
            "reason",
            digest="SHA-256 of the arguments that were agreed to, hexadecimal",
        ),
        *on_demand("edited", is_disabled="has been disabled since: does not count while it waits"),
    ),
)

APPROVAL: Final = Shape(
    name="Approval",
    doc="One request, with everything a person must see before deciding.",
    row=Approval,
    fields=(
        *FIELDS,
        Field(
            name="asked",
            doc="the original arguments, before any edit",
            json=lambda r: r.asked_text,
        ),
        Field(name="asked_digest", doc="SHA-256 of these, hexadecimal", value=_asked_digest),
        Field(name="changes", doc="edits of the original arguments", value=_changes),
        Field(name="job_status", kind=JobStatus | None),
        *on_demand("agent_version", "lineage_id", "attempt", "tenant"),
        *on_demand(
            job_head="the job's last step and cost so far",
            said="the model's text; not a basis for the decision",
            on_deny="what a denial does: the agent is informed, or the job fails",
            on_expiry="the same, for an expiry",
        ),
        Field(name="if_approved", doc="the consequence, in words", value=if_approved),
        Field(name="if_denied", value=if_denied),
        Field(name="if_expired", value=if_expired),
        Field(name="votes", doc="who agreed", parts=VOTE, is_default=False),
        Field(name="address", doc="where the decision came from", role=Role.ADMIN),
        Field(name="client", doc="the browser or program that sent it", role=Role.ADMIN),
        Field(name="token_by", doc="the person who created its link", role=Role.ADMIN),
        *on_demand("effect_status", "has_link"),
        *on_demand(
            effect_id="the effect that it allowed",
            now="the database's time, for comparison",
        ),
    ),
    unlisted=frozenset(
        {
            *("arguments_text", "asked_text", "is_open", "is_job_due", "seq", "agent_id"),
            *("requested_with", "decided_with"),
        }
    ),
)
