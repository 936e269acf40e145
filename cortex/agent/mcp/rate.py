"""A bound on how fast a server may talk."""

from typing import Final

import attrs
import trio

from cortex.domain.errors import UnavailableError

MESSAGES_MAX: Final = 5_000
WINDOW_S: Final = 10.0


@attrs.define
class Rate:
    """Counts the messages of one server."""

    _since: float = attrs.field(factory=trio.current_time)
    _count: int = 0

    def add(self) -> None:
        """Count one. Raises `UnavailableError` for too many within a short time."""
        now = trio.current_time()
        if now - self._since > WINDOW_S:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > MESSAGES_MAX:
            raise UnavailableError(f"sent {MESSAGES_MAX:,} messages within {WINDOW_S:g} seconds")
