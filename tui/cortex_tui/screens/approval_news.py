"""Changes of a request during its display, and whether the operator's own action reports them."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from cortex.domain.errors import ConflictError
from cortex.domain.safe import safe
from cortex_tui.backend.approvals import over_briefly
from cortex_tui.model.subject import Subject

ACTS_MAX: Final = 32
"""Actions run one by one, and finished ones matter only for a moment."""

Version = tuple[object, ...]


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


def news_of(subject: Subject) -> str:
    """Return what another person or time did to the request."""
    over = over_of(subject)
    return subject.facts.votes_words if over is None else over


def over_of(subject: Subject, now: datetime | None = None) -> str | None:
    """Return why it cannot be decided any more, in one safe line; None if it can.

    `now`: the instant to judge by; None: when it was read.
    """
    over = over_briefly(subject.approvals, now)
    return None if over is None else safe(over)
