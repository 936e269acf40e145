"""The requests under decision, one or several of the same shape, as they were shown."""

from collections.abc import Sequence
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import Approval, ApprovalHead
from cortex.domain.argument_check import ArgumentChange
from cortex.domain.phrases import short_id
from cortex.view.approval_facts import Facts, facts_of


@attrs.frozen(kw_only=True)
class Subject:
    """Requests in full; those of a batch have the same shape."""

    approvals: Sequence[Approval]
    facts: Facts
    """Facts of the first request."""

    @property
    def name(self) -> str:
        """The requests in one safe line."""
        if len(self.approvals) > 1:
            return f"{len(self.approvals)} times {self.facts.title}"
        return f"{short_id(self.facts.id)} {self.facts.title}"

    @property
    def ids(self) -> tuple[UUID, ...]:
        """Ids in the order shown."""
        return tuple(each.id for each in self.approvals)

    @property
    def version(self) -> tuple[object, ...]:
        """Differs when a fact that matters to the decision changed."""
        return tuple(map(version_of, self.approvals))

    @property
    def digests(self) -> tuple[bytes, ...]:
        """Digests of the arguments."""
        return tuple(each.digest for each in self.approvals)


@attrs.frozen(kw_only=True)
class Edit:
    """Arguments as the operator edited them."""

    text: str
    """Canonical JSON."""
    changes: Sequence[ArgumentChange]


def version_of(row: ApprovalHead) -> tuple[object, ...]:
    """Return a value that differs once a request was changed or decided, from a row or in full."""
    return row.id, row.status, row.digest, row.agreed if row.people > 1 else 0


def subject_of(approvals: Sequence[Approval]) -> Subject:
    """Return requests as the subject of a decision."""
    return Subject(approvals=approvals, facts=facts_of(approvals[0]))
