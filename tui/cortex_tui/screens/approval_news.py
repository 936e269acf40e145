"""What became of a request while somebody looked at it, and whether their own act tells that."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cortex.domain.errors import ConflictError
from cortex.domain.safe import safe
from cortex_tui.backend.approvals import over_briefly
from cortex_tui.model.subject import Subject

ACTS_MAX: Final = 32
"""Acts of one sitting wait for each other; those that are over matter for a moment."""

Version = tuple[object, ...]


class OwnActions:
    """As which version requests were decided on here.

    A look may see what an act did before the act itself hears of it, or after. Either way the first
    change of that version is told by the act: what it did, or what was there first. The changes
    after that are somebody else's.
    """

    def __init__(self) -> None:
        self._versions: deque[Version] = deque(maxlen=ACTS_MAX)

    @contextmanager
    def acting(self, subject: Subject) -> Iterator[None]:
        """Decide on it; an act that failed otherwise than by a change is not there any more."""
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

    def tell(self, before: Subject) -> bool:
        """Whether an act of one's own tells what became of a request as it stood."""
        return before.version in self._versions


def news_of(subject: Subject) -> str:
    """Say what became of it elsewhere."""
    over = over_briefly(subject.approvals)
    return subject.facts.votes_words if over is None else safe(over)
