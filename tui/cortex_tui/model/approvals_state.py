"""What the inbox shows and asks about: the requests in front, their edit, and the batch."""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from typing import Final
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import Approval, ApprovalHead
from cortex.domain.approvals.vote import BATCH_MAX
from cortex.domain.argument_check import ArgumentChange
from cortex.domain.errors import ConflictError
from cortex.domain.phrases import short_id
from cortex.domain.safe import safe
from cortex.view.approval_facts import Facts, facts_of
from cortex.view.approvals import over_briefly
from cortex_tui.model.inbox import Inbox, Tab

ACTS_MAX: Final = 32
"""Actions run one by one, and finished ones matter only for a moment."""

Version = tuple[object, ...]


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

    def over(self, now: datetime | None = None) -> str | None:
        """Return why it cannot be decided any more, in one safe line; None if it can.

        `now`: the instant to judge by; None: when it was read.
        """
        over = over_briefly(self.approvals, now)
        return None if over is None else safe(over)

    @property
    def news(self) -> str:
        """What another person or time did to the request."""
        return self.over() or self.facts.votes_words

    @property
    def digests(self) -> tuple[bytes, ...]:
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


class OwnActions:
    """The versions of the requests that this operator decided.

    A poll may see the result of an action before or after the action itself returns. In both cases
    the action reports the first change of that version: its own, or the one that came first. All
    later changes are another person's.
    """

    def __init__(self) -> None:
        self._versions: deque[Version] = deque(maxlen=ACTS_MAX)

    @contextmanager
    def acting(self, subject: Subject) -> Iterator[None]:
        """Record a decision; removed again if the action fails otherwise than by a conflict."""
        version = subject.version
        self._versions.append(version)
        try:
            yield
        except ConflictError:
            raise
        except BaseException:
            if version in self._versions:
                self._versions.remove(version)
            raise

    def reports(self, before: Subject) -> bool:
        """Whether the operator's own action reports the change of this version."""
        return before.version in self._versions


class SubjectChange(Enum):
    """What a read of the requests in front brought."""

    NONE = "none"
    FIRST = "first"
    """They were not read before."""
    ARGUMENTS = "arguments"
    STATUS = "status"


@attrs.define(kw_only=True)
class ApprovalsState:
    """`inbox` holds the rows; the rest is about the requests in front."""

    inbox: Inbox
    batch: tuple[UUID, ...] = ()
    """The requests that are decided together, in the order of the list."""
    in_front: tuple[UUID, ...] = ()
    """The requests that the guard and the page show."""
    subject: Subject | None = None
    """The same, once read."""
    edit: Edit | None = None
    is_raw: bool = False
    is_flowing: bool = False
    """It came to the front through a decision on the previous one."""
    agreed_at: float = float("-inf")
    """The clock's time of the operator's last decision."""
    wants_first: bool = False
    """Go to the most urgent request; moving the cursor cancels that, as `Inbox.seek`."""
    is_to_approve: bool = False
    """Approve the edited arguments as soon as they were seen."""

    @property
    def is_seeking(self) -> bool:
        """Whether another request is about to come to the front."""
        return self.wants_first or self.inbox.is_seeking

    @property
    def is_fresh(self) -> bool:
        """Whether the requests in front were read in their current version."""
        if self.subject is None:
            return False
        rows = [self.inbox.row(each) for each in self.in_front]
        versions = tuple(version_of(row) for row in rows if row is not None)
        return len(versions) < len(rows) or versions == self.subject.version

    def job_under_cursor(self) -> tuple[UUID, Hashable] | None:
        """Return the job of the request under the cursor, and the version of the request."""
        row = self.inbox.window.current
        return None if row is None else (row.job_id, (row.id, row.version, row.status))

    def bring_to_front(self, *, is_flowing: bool) -> bool:
        """Put the batch, or the request under the cursor, in front; return whether it changed."""
        focused = self.inbox.focused
        wanted = self.batch or ((focused,) if focused else ())
        if wanted == self.in_front:
            return False
        self.in_front, self.subject, self.edit = wanted, None, None
        self.is_raw, self.is_flowing, self.is_to_approve = False, is_flowing, False
        return True

    def update(self, subject: Subject) -> SubjectChange:
        """Take the current version of the requests in front; other arguments void the edit."""
        before, self.subject = self.subject, subject
        if before is None:
            return SubjectChange.FIRST
        if before.digests != subject.digests:
            self.edit = None
            return SubjectChange.ARGUMENTS
        is_same = before.version == subject.version
        return SubjectChange.NONE if is_same else SubjectChange.STATUS

    def stay(self) -> None:
        """Keep the cursor where the operator has moved it."""
        if self.inbox.is_read:
            self.wants_first = False
            self.inbox.seek(None)

    def toggle_mark(self) -> bool:
        """Mark the request under the cursor, or unmark it; return whether that was possible."""
        focused = self.inbox.focused
        if focused is None or self.inbox.tab is Tab.DECIDED:
            return False
        self.stay()
        self.inbox.marked ^= {focused}
        self.inbox.arrange()
        return True

    def toggle_batch(self) -> bool:
        """Take the marked requests together, or leave the batch; return False if they make none."""
        inbox = self.inbox
        if self.batch:
            self.batch = ()
        elif len(inbox.marked) in range(2, BATCH_MAX + 1):
            order = (row.id for row in inbox.window.rows)
            self.batch = tuple(each for each in order if each in inbox.marked)
        else:
            return False
        return True

    def unmark(self) -> int:
        """Clear all marks, because they freeze the order; return how many there were."""
        count = len(self.inbox.marked)
        self.batch = ()
        self.inbox.marked.clear()
        return count

    def drop_decided(self, ids: Sequence[UUID]) -> None:
        """Unmark requests that were decided, and leave the batch if it was these."""
        self.inbox.marked -= set(ids)
        if tuple(ids) == self.batch:
            self.batch = ()
