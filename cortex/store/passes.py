"""The results of one pass of background work over the record."""

from typing import Generic, TypeVar

import attrs

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class DuePass:
    """A pass over what has become due."""

    count: int
    is_skipped: bool
    """Another process was doing it."""
    due_in_s: float | None
    """When the next one becomes due; not positive: it is, but was not handled; None: none waits."""

    def next_s(self, *, least_s: float, most_s: float) -> float:
        """Return in how many seconds to call again, within these bounds."""
        return most_s if self.due_in_s is None else min(max(least_s, self.due_in_s), most_s)


@attrs.frozen(kw_only=True)
class PartPass(Generic[T]):
    """A pass over the next part of a long list."""

    count: int
    is_skipped: bool
    after: T | None
    """Where to continue; None at the end."""
