"""Requests for approval in columns."""

from collections.abc import Sequence
from typing import Final

from cortex.domain.approvals.approval import ApprovalRow
from cortex.domain.phrases import NOTHING, short_id
from cortex.domain.safe import safe
from cortex.view.approvals import (
    agreed,
    brief,
    brief_cell,
    decided,
    expires_cell,
    left_s,
    risk_cell,
    state_cell,
)
from cortex.view.cells import Cell
from cortex.view.resource import Field, on_demand

APPROVAL_COLUMNS: Final[Sequence[Field[ApprovalRow]]] = (
    Field(name="id", shown=lambda r: Cell(short_id(r.id), "bold")),
    Field(name="risk", shown=risk_cell),
    Field(name="what", value=brief, shown=brief_cell, least=24, is_for_people=True),
    Field(name="status", title="state", shown=state_cell, is_default=False),
    Field(
        name="expires_in_s",
        title="expires in",
        value=left_s,
        shown=expires_cell,
        is_right=True,
    ),
    Field(name="agreed", shown=lambda r: Cell(agreed(r)), is_right=True),
    Field(
        name="agent",
        value=lambda r: r.agent,
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
        *("tool", "key", "arguments", "digest", "version", "effect", "reversible", "policy"),
        *("people", "job_type", "requested_by", "created_at", "expires_at", "edited_by"),
        *("decided_by", "reason"),
    ),
)
