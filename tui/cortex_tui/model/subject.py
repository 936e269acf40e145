"""What is decided on: one request, or several of one shape, as it was shown."""

from collections.abc import Sequence
from uuid import UUID

import attrs

from cortex.domain.approval import Approval, ApprovalHead
from cortex.domain.argument_diff import ArgumentChange
from cortex.view.approval_facts import Facts, facts_of


@attrs.frozen(kw_only=True)
class Subject:
    """Requests in full; of a batch all of one shape."""

    approvals: Sequence[Approval]
    facts: Facts
    """Of the first one."""

    @property
    def ids(self) -> tuple[UUID, ...]:
        """In their order."""
        return tuple(each.id for each in self.approvals)

    @property
    def version(self) -> tuple[object, ...]:
        """Differs when something that decides did."""
        return tuple(map(version_of, self.approvals))

    @property
    def digests(self) -> tuple[bytes, ...]:
        """Of the arguments."""
        return tuple(each.digest for each in self.approvals)


@attrs.frozen(kw_only=True)
class Edit:
    """Arguments as the operator edited them."""

    text: str
    """Canonical JSON."""
    changes: Sequence[ArgumentChange]


def version_of(row: ApprovalHead) -> tuple[object, ...]:
    """Return what differs when a request was changed or decided; of a row or of all of it."""
    return row.id, row.status, row.digest, row.agreed if row.people > 1 else 0


def subject_of(approvals: Sequence[Approval]) -> Subject:
    """Return requests as what is decided on."""
    return Subject(approvals=approvals, facts=facts_of(approvals[0]))
