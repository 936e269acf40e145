"""When the terminal rings: for a new request, and once when one is about to expire."""

from datetime import datetime, timedelta
from typing import Final

SOON: Final = timedelta(minutes=5)
MUTED_S: Final = 3_600.0


class Bell:
    """Updated at each poll with what waits; `now` is the clock's seconds."""

    def __init__(self) -> None:
        self._count: int | None = None
        self._warned_of: datetime | None = None
        self._muted_until = float("-inf")

    def mute(self, now: float) -> None:
        self._muted_until = now + MUTED_S

    def unmute(self) -> None:
        self._muted_until = float("-inf")

    def is_muted(self, now: float) -> bool:
        return now < self._muted_until

    def rings(self, count: int, first_expiry: datetime | None, *, at: datetime, now: float) -> bool:
        """Take what waits at a database time; return whether to ring."""
        is_new = self._count is not None and count > self._count
        self._count = count
        is_soon = first_expiry is not None and timedelta() < first_expiry - at <= SOON
        is_first_warning = is_soon and first_expiry != self._warned_of
        if is_first_warning:
            self._warned_of = first_expiry
        return (is_new or is_first_warning) and not self.is_muted(now)
